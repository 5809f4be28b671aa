"""Stand-in for the first interface generation's base class: names and signatures only."""


class Task:
    pass


class UcmKVStoreBase:
    def __init__(self, config):
        self.config = config

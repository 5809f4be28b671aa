"""Stand-in for the second interface generation's base class: names and signatures only."""


class Task:
    pass


class UcmKVStoreBaseV1:
    def __init__(self, config):
        self.config = config

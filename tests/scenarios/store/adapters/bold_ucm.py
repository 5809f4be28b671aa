"""UCM's adapters with promises that its stores do not keep."""

from scenarios.store.adapters.ucm import Ucm, UcmFirst


class BoldUcm(Ucm):
    survives_damage = True
    lookup_stops_at_a_miss = False


class BoldUcmFirst(UcmFirst):
    survives_damage = True


class Uncommitted(UcmFirst):
    """Forgets to commit and expects hits."""

    commits = False

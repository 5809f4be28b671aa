"""The enumerations of `pl` and `pld`; numbers, where a program could see one, as in PyPTO's ABI.

NotifyOp and WaitCmp are the harness's own (harness/rank.py), which has them from there.
"""

from __future__ import annotations

import enum

from harness.rank import NotifyOp, WaitCmp

__all__ = [
    "AtomicType", "ForKind", "FunctionType", "Level", "MemorySpace", "NotifyOp", "ReduceOp", "Role",
    "ScopeMode", "SplitMode", "TensorLayout", "TileLayout", "WaitCmp",
]


class AtomicType(enum.IntEnum):
    """What a write does to the elements it meets."""

    None_ = 0
    Add = 1


class ReduceOp(enum.IntEnum):
    """How a collective reduces."""

    Sum = 0
    Max = 1
    Min = 2
    Prod = 3


class Level(enum.Enum):
    """Where a function or a scope runs."""

    AIV = 0
    AIC = 1
    CORE_GROUP = 2
    CHIP_DIE = 3
    CHIP = 4
    HOST = 5
    GLOBAL = 6


class Role(enum.Enum):
    """What a function of a level does there."""

    Orchestrator = 0
    SubWorker = 1


class FunctionType(enum.Enum):
    """What a function of a program class is."""

    Opaque = 0
    Orchestration = 1
    InCore = 2
    AIC = 3
    AIV = 4
    Group = 5
    Inline = 6
    Spmd = 7
    Host = 8


class MemorySpace(enum.Enum):
    """A core's memories; where a tile lies makes no difference here."""

    DDR = 0
    Vec = 1
    Mat = 2
    Left = 3
    Right = 4
    Acc = 5
    Bias = 6


class SplitMode(enum.Enum):
    """How `split_aiv` divides its tiles between the two vector cores."""

    NONE = 0
    UP_DOWN = 1
    LEFT_RIGHT = 2


class ScopeMode(enum.Enum):
    """Whether the edges between tasks of a scope are inferred."""

    AUTO = 0
    MANUAL = 1


class ForKind(enum.Enum):
    """Kinds of loops."""

    Sequential = 0
    Parallel = 1
    Unroll = 2
    Pipeline = 3


class TensorLayout(enum.Enum):
    """Layouts of tensors; all are held row by row here."""

    ND = 0
    DN = 1
    NZ = 2


class TileLayout(enum.Enum):
    """Layouts of tiles; all are held row by row here."""

    none_box = 0
    row_major = 1
    col_major = 2

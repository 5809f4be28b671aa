"""What one rank asked of torch.distributed in one call, as a frozen value.

The backend makes a Call at the moment of the call, before anything moves, and appends it to
`run.torch_calls[rank]`, also where the call is refused. Agreement between ranks is judged from these
values alone (agreement.py), and so are the findings (harness/checkers/torch_*.py).

Modelled: every parameter that ranks have to agree on, the user's place, and which variables of the
user's frame held the tensor. Not modelled: values (events keep those, and results go by bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType

# The names of kinds: what the user calls. Forms of one collective that may meet each other on every
# backend have one family: a list of tensors and one flat tensor move the same bytes.
FAMILY = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
P2P = frozenset(("send", "recv"))  # isend is a send with async_op; irecv a recv
ROOTED = frozenset(("broadcast", "reduce", "gather", "scatter"))
REDUCING = frozenset(("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"))
FUNCTIONAL = "functional collective"  # whose result waits for itself when it is used
ANY = -1  # the peer or tag of a recv that takes any; the root of a collective that has none


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A tensor as the call saw it.

    dtype: without `torch.`, as in "float32"; "float32 sparse" of a sparse tensor. strides: in elements.
    storage: a number that two tensors of one rank share if and only if they lie in the same memory,
    -1 = unknown. lo, hi: the bytes of that memory from its first to behind its last element.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    storage: int = -1
    lo: int = 0
    hi: int = 0

    @property
    def numel(self) -> int:
        """How many elements it has."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def overlaps(self, other: TensorMeta) -> bool:
        """Whether the two may share a byte (strides are not looked at)."""
        known = self.storage >= 0 and self.storage == other.storage
        return known and self.lo < other.hi and other.lo < self.hi

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's part in one collective, or one end of a message.

    kind: all_reduce, all_gather, all_gather_into_tensor, reduce, reduce_scatter, reduce_scatter_tensor,
    broadcast, scatter, gather, all_to_all, all_to_all_single, barrier, monitored_barrier, send, recv;
    new_group, which all ranks of the world call with the same ranks (without local synchronisation);
    split_group, which all ranks of the parent call with the same parts.
    rank, group, root, peer: global ranks; group in the order of its group ranks.
    seq: which collective of this group on this rank, from 0; for a message: of this pair and tag.
    op: "sum", "product", "min", "max", "band", "bor", "bxor", "avg", "premul_sum", or "".
    root: -1 where the kind has none. peer, tag: of a message; ANY for a recv that takes any.
    inputs, outputs: in the order of the call (an all_reduce's tensors are in both).
    splits: (input sizes, output sizes) of all_to_all_single; empty = even.
    async_op: the caller got a handle. number: the engine's number of the work, -1 if none was made.
    code, lasti: the user's call. names: variables of the user's frame that held the first tensor.
    version: how often that had been written (torch's own count), -1 = unknown. beside: other tensors of
    its shape and dtype, in other memory, that variables held: storage and version of each.
    refused: the error of an entry check on this rank alone, before anything moved; "" if none. A call
    that does not agree with other ranks' is not refused in this sense: it is judged with them.
    at: how many events the run had when the call was made. what: "" or a note on an object
    collective ("all_gather_object") of which this call is a part, or FUNCTIONAL; of a new_group its list
    of ranks, of a split_group its parts.
    card: machine and CUDA device where NCCL would do it, as `0:3`; "" where that is not certain.
    thread: the name of the program's thread that made it; "" for the main one.
    """

    kind: str
    rank: int
    group: tuple[int, ...]
    group_name: str = ""
    seq: int = 0
    op: str = ""
    root: int = ANY
    peer: int = ANY
    tag: int = 0
    inputs: tuple[TensorMeta, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    async_op: bool = False
    number: int = -1
    code: CodeType | None = None
    lasti: int = -1
    names: tuple[str, ...] = ()
    version: int = -1
    beside: tuple[tuple[int, int], ...] = ()
    refused: str = ""
    at: int = 0
    what: str = ""
    card: str = ""
    thread: str = ""

    @property
    def family(self) -> str:
        """The collective, whatever the form in which it was called."""
        return FAMILY.get(self.kind, self.kind)

    @property
    def p2p(self) -> bool:
        """Whether this is one end of a message."""
        return self.kind in P2P

    def __str__(self) -> str:
        """`all_reduce(x: [4] float32, op=sum)`, as findings print it."""
        tensors = self.inputs or self.outputs
        name = f"{self.names[0]}: " if self.names else ""
        parts = [name + ", ".join(map(str, tensors[:2])) + (", …" if len(tensors) > 2 else "")]
        parts += [f"op={self.op}"] if self.op else []
        parts += [f"root={self.root}"] if self.root != ANY else []
        if self.p2p:
            parts.append(f"{'to' if self.kind == 'send' else 'from'} "
                         f"{'any rank' if self.peer == ANY else f'rank {self.peer}'}")
            parts += [f"tag={self.tag}"] if self.tag else []
        for side, sizes in zip(("in", "out"), self.splits, strict=True):
            parts += [f"{side}_splits={list(sizes)}"] if sizes else []
        return f"{self.kind}({', '.join(filter(None, parts))})"

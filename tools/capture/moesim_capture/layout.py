"""Ranks of a job: which coordinates a rank has, which groups there are, what they are called, how files are named.

Megatron's order tp-exp-edp-pp, fastest first: rank = tp + TP*(exp + EXP*(edp + EDP*pp)).
"""
from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple


class Coordinates(NamedTuple):
    tp: int
    exp: int
    edp: int
    pp: int


# Coordinates that vary inside a group, by the group's label in recordings.
_VARYING = {"tp": ("tp",), "exp": ("exp",), "exp_dp": ("edp",), "dp": ("exp", "edp"), "pp": ("pp",),
            "tp_exp": ("tp", "exp")}


@dataclass(frozen=True)
class Layout:
    world: int
    tp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self):
        for name in ("world", "tp", "ep", "pp"):
            if getattr(self, name) < 1:
                raise ValueError("found %s %d, expected at least 1" % (name, getattr(self, name)))
        if self.world % (self.tp * self.ep * self.pp):
            raise ValueError("found %d ranks, expected a multiple of tp %d x ep %d x pp %d" % (
                self.world, self.tp, self.ep, self.pp))

    @property
    def dp(self) -> int:
        return self.world // (self.tp * self.pp)

    @property
    def edp(self) -> int:
        return self.dp // self.ep

    def of(self, rank: int) -> Coordinates:
        rest, tp = divmod(rank, self.tp)
        rest, exp = divmod(rest, self.ep)
        pp, edp = divmod(rest, self.edp)
        return Coordinates(tp, exp, edp, pp)

    def rank(self, at: Coordinates) -> int:
        return at.tp + self.tp * (at.exp + self.ep * (at.edp + self.edp * at.pp))

    def group(self, label: str, rank: int) -> List[int]:
        """Members of the rank's group of this label, ascending."""
        at, sizes = self.of(rank), Coordinates(self.tp, self.ep, self.edp, self.pp)
        members = [at]
        for axis in _VARYING[label]:
            members = [m._replace(**{axis: i}) for m in members for i in range(getattr(sizes, axis))]
        return sorted(self.rank(m) for m in members)

    def groups(self, label: str) -> List[List[int]]:
        """Every group of this label, by the smallest member."""
        return sorted({tuple(self.group(label, rank)) for rank in range(self.world)}, key=lambda g: g[0])

    def labels_of(self, ranks: Sequence[int]) -> Tuple[str, ...]:
        """Labels that fit the members; several where sizes make groups equal, none for other sets."""
        wanted = sorted(ranks)
        return tuple(label for label in _VARYING if wanted and self.group(label, wanted[0]) == wanted)


class GroupNames:
    """Labels of torch.distributed groups in a recording.

    Names given with `name` win. Others follow from the members and the layout; where groups of two kinds have the same
    members, the call decides: gathers, scatters and all-to-alls are the experts', reductions are data parallelism's.
    """

    _REDUCED, _GATHERED = ("tp", "dp", "exp_dp", "exp", "tp_exp", "pp"), ("tp", "exp", "tp_exp", "dp", "exp_dp", "pp")
    _PREFER = {"allreduce": _REDUCED, "broadcast": _REDUCED, "allgather": _GATHERED, "reduce_scatter": _GATHERED,
               "all_to_all": ("exp", "tp", "tp_exp", "dp", "exp_dp", "pp")}

    def __init__(self, layout: Optional[Layout] = None):
        self.layout = layout
        self._named: Dict[int, str] = {}
        self._preferred: Dict[int, str] = {}
        self._kept = []  # groups whose id is a key must not be freed
        self._fitting: Dict[int, Tuple[str, ...]] = {}

    def name(self, group, label: str):
        if label not in _VARYING:
            raise ValueError("found the group label %r, expected one of %s" % (label, ", ".join(_VARYING)))
        self._named[id(group)] = label
        self._kept.append(group)

    def prefer(self, group, label: str):
        """Sets the label of a group that matches several, except for reductions, which stay data parallelism's."""
        self._preferred[id(group)] = label
        self._kept.append(group)

    def fitting(self, group) -> Tuple[str, ...]:
        """Every label that this group may have; a name that was given is the only one."""
        known = self._named.get(id(group))
        if known is not None:
            return (known,)
        if self.layout is None:
            return ("exp", "dp")
        fitting = self._fitting.get(id(group))
        if fitting is None:
            members = members_of(group, self.layout.world)
            fitting = self.layout.labels_of(members) if len(members) > 1 else ()
            self._fitting[id(group)] = fitting
            self._kept.append(group)
        return fitting

    def label(self, group, comm: str) -> str:
        fitting = self.fitting(group)
        preferred = self._preferred.get(id(group))
        if preferred in fitting and not ("dp" in fitting and comm in ("allreduce", "broadcast")):
            return preferred
        return next((label for label in self._PREFER.get(comm, _VARYING) if label in fitting), "None")


def members_of(group, world: int) -> List[int]:
    """Global ranks of a torch.distributed group, of any torch version; None is the world."""
    import torch.distributed as dist

    if hasattr(group, "ranks") and not callable(group.ranks):
        return list(group.ranks)
    if group is None or group is getattr(dist.group, "WORLD", None):
        return list(range(world))
    if hasattr(dist, "get_process_group_ranks"):
        return list(dist.get_process_group_ranks(group))
    return sorted(dist.distributed_c10d._pg_group_ranks[group])


@dataclass(frozen=True)
class Source:
    """The written form of a communication call: the traced function, and the group's label."""

    function: str
    group: str


_COUNTS = ("torch.int64", "torch.int32")


def is_counts(dims: int, dtype: str) -> bool:
    """Token counts are one-dimensional integers; what is dispatched has a row per token, or is no integer."""
    return dims == 1 and dtype in _COUNTS


_MOE = {"allgather": "_gather_along_first_dim_moe", "reduce_scatter": "_reduce_scatter_along_first_dim_moe",
        "allreduce": "_reduce_along_first_dim_moe", "all_to_all": "_profiled_all_to_all_single"}
_COUNTED = {**_MOE, "allgather": "_gather_along_first_dim_expert_parallel", "all_to_all": None}


def source_of(function: str, comm: str, label: str, dims: int, dtype: str) -> Source:
    """The names that the public recorder gives the calls of a MoE layer, so that its readers find them. Counts that are
    exchanged by an all-to-all keep the function's own name: the public recorder knows only their gather."""
    traced = (_COUNTED if is_counts(dims, dtype) else _MOE).get(comm)
    if label in ("exp", "tp_exp") and traced:
        return Source(traced, "exp")
    return Source("allreduce" if comm == "allreduce" else function, {"tp_exp": "exp"}.get(label, label))


def _named(words) -> str:
    """"pp2_tp1" of (("pp", 2), ("tp", 1), ("nl", None)): what is not known is not named."""
    return "_".join("%s%d" % word for word in words if word[1] is not None)


def folder_name(layout: Layout, experts: Optional[int] = None, layers: Optional[int] = None,
                hidden: Optional[int] = None, seq: Optional[int] = None) -> str:
    return _named((("pp", layout.pp), ("tp", layout.tp), ("exp", layout.ep), ("expn", experts), ("dp", layout.dp),
                   ("nl", layers), ("hs", hidden), ("sl", seq)))


def file_name(layout: Layout, experts: Optional[int], layers: Optional[int], micro_batch: Optional[int], rank: int,
              stamp: Optional[str] = None) -> str:
    """stamp: 14 digits, the same for all ranks of one pass; without one the folder holds one pass."""
    return _named((("wd", layout.world), ("tp", layout.tp), ("pp", layout.pp), ("exp", layout.ep), ("expNum", experts),
                   ("l", layers), ("bs", micro_batch), ("rank", rank))) + ("_" + stamp if stamp else "") + ".txt"

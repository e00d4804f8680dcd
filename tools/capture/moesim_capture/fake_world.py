"""torch.distributed for one process that plays a rank of a bigger world: groups have their sizes, collectives give
results of the right shape, and nothing is sent.

Results are the rank's own data again, once per member, so that later computing sees numbers of the usual size. What
others would have sent matters where sizes depend on it (token counts, chosen experts): `contributes` says so.
"""
import torch
import torch.distributed as dist

from .layout import Layout
from .patching import Patches


class FakeGroup:
    def __init__(self, ranks, rank: int):
        self.ranks = sorted(ranks)
        self._rank = rank

    def rank(self) -> int:
        return self.ranks.index(self._rank) if self._rank in self.ranks else -1

    def size(self) -> int:
        return len(self.ranks)


class FakeWork:
    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


class FakeWorld:
    """While its `with` block is open, torch.distributed believes in `layout.world` ranks and that this is `rank`."""

    def __init__(self, layout: Layout, rank: int):
        self.layout, self.rank = layout, rank
        self.world_group = FakeGroup(range(layout.world), rank)
        self._contributions = []
        self._patches = Patches()

    def contributes(self, matches, give):
        """For gathers whose input fits `matches(tensor, group)`: `give(tensor, group)` are all members' rows, stacked."""
        self._contributions.append((matches, give))

    def __enter__(self):
        for name in ("is_initialized", "is_available", "init_process_group", "destroy_process_group", "get_rank",
                     "get_world_size", "get_backend", "new_group", "get_process_group_ranks", "barrier", "all_gather",
                     "all_gather_into_tensor", "_all_gather_base", "reduce_scatter", "reduce_scatter_tensor",
                     "_reduce_scatter_base", "all_to_all", "all_to_all_single", "all_reduce", "all_reduce_coalesced",
                     "broadcast", "send", "recv", "isend", "irecv", "batch_isend_irecv"):
            self._patches.replace(dist, name, getattr(self, name))
        self._patches.replace(dist, "P2POp", FakeP2POp)
        self._patches.spread()
        return self

    def __exit__(self, *unused):
        self._patches.restore()
        return False

    # Who am I.

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def init_process_group(self, *args, **kwargs):
        return None

    def destroy_process_group(self, group=None):
        return None

    def get_rank(self, group=None):
        return self._group(group).rank()

    def get_world_size(self, group=None):
        return self._group(group).size()

    def get_backend(self, group=None):
        return "fake"

    def new_group(self, ranks=None, *args, **kwargs):
        return FakeGroup(range(self.layout.world) if ranks is None else ranks, self.rank)

    def get_process_group_ranks(self, group):
        return list(self._group(group).ranks)

    def _group(self, group) -> FakeGroup:
        return group if isinstance(group, FakeGroup) else self.world_group

    # What calls give.

    def _gathered(self, tensor, group):
        for matches, give in self._contributions:
            if matches(tensor, group):
                rows = give(tensor, group)
                expected = (tensor.shape[0] * group.size(),) + tuple(tensor.shape[1:])
                if tuple(rows.shape) != expected:
                    raise ValueError("found contributions of shape %s, expected %s" % (tuple(rows.shape), expected))
                return rows
        return None

    @staticmethod
    def _done(async_op):
        return FakeWork() if async_op else None

    def all_gather_into_tensor(self, output_tensor, input_tensor, group=None, async_op=False):
        group = self._group(group)
        rows = self._gathered(input_tensor, group)
        if rows is not None:
            output_tensor.copy_(rows)
        else:
            output_tensor.view((group.size(),) + tuple(input_tensor.shape)).copy_(input_tensor)
        return self._done(async_op)

    _all_gather_base = all_gather_into_tensor

    def all_gather(self, tensor_list, tensor, group=None, async_op=False):
        rows = self._gathered(tensor, self._group(group))
        parts = [tensor] * len(tensor_list) if rows is None else rows.chunk(len(tensor_list))
        for out, part in zip(tensor_list, parts):
            out.copy_(part)
        return self._done(async_op)

    def reduce_scatter_tensor(self, output, input, op=None, group=None, async_op=False):
        group = self._group(group)
        output.copy_(input.view((group.size(),) + tuple(output.shape))[max(0, group.rank())])
        return self._done(async_op)

    _reduce_scatter_base = reduce_scatter_tensor

    def reduce_scatter(self, output, input_list, op=None, group=None, async_op=False):
        output.copy_(input_list[max(0, self._group(group).rank())])
        return self._done(async_op)

    def all_to_all_single(self, output, input, output_split_sizes=None, input_split_sizes=None, group=None,
                          async_op=False):
        _repeat_into(output, input)
        return self._done(async_op)

    def all_to_all(self, output_tensor_list, input_tensor_list, group=None, async_op=False):
        for out, part in zip(output_tensor_list, input_tensor_list):
            _repeat_into(out, part)
        return self._done(async_op)

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        return self._done(async_op)

    all_reduce_coalesced = all_reduce

    def broadcast(self, tensor, src=None, group=None, async_op=False, group_src=None):
        return self._done(async_op)

    def barrier(self, group=None, async_op=False, device_ids=None):
        return self._done(async_op)

    def send(self, tensor, dst=None, group=None, tag=0, group_dst=None):
        return None

    def recv(self, tensor, src=None, group=None, tag=0, group_src=None):
        # What nobody sent would be whatever the memory held: numbers of the usual size instead.
        if tensor.is_floating_point():
            tensor.normal_()
        else:
            tensor.zero_()
        return src

    def isend(self, tensor, dst=None, group=None, tag=0, group_dst=None):
        return FakeWork()

    def irecv(self, tensor, src=None, group=None, tag=0, group_src=None):
        self.recv(tensor, src)
        return FakeWork()

    def batch_isend_irecv(self, p2p_op_list):
        for one in p2p_op_list:
            if getattr(one.op, "__name__", "") == "irecv":
                self.recv(one.tensor, one.peer)
        return [FakeWork() for _ in p2p_op_list]


class FakeP2POp:
    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group


def _repeat_into(output: torch.Tensor, rows: torch.Tensor):
    """Fills `output` with `rows`, again and again from the first one."""
    need, have = output.shape[0], rows.shape[0]
    if have == 0 or need == 0:
        output.zero_()
        return
    whole = need // have
    if whole:
        output[:whole * have].view((whole,) + tuple(rows.shape)).copy_(rows)
    if need % have:
        output[whole * have:].copy_(rows[:need % have])

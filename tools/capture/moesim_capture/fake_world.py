"""torch.distributed for one process that plays a rank of a bigger world: groups have their sizes, collectives give
results of the right shape, and nothing is sent.

Results are the rank's own data again, once per member, so that later computing sees numbers of the usual size. What
others would have sent matters where sizes depend on it (token counts, chosen experts): `contributes` says so.

As in torch.distributed, the functions call methods of their group, which hooks replace.
"""
import torch
import torch.distributed as dist

from .layout import Layout
from .patching import Patches


class FakeWork:
    """Where torch makes no Work of its own for a result that is there already."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


def _done_work():
    """A Work that is done: torch's own kind, which programs may ask for by isinstance, where torch can make one."""
    home = getattr(torch._C, "_distributed_c10d", None)
    if not hasattr(home, "_create_work_from_future"):
        return FakeWork()
    future = torch.futures.Future()
    future.set_result([])
    return home._create_work_from_future(future)


class FakeGroup:
    """A group of some ranks as `rank` sees it, with the methods of torch's process groups."""

    def __init__(self, ranks, rank: int, world=None):
        self.ranks = sorted(ranks)
        self._rank, self._world = rank, world

    def rank(self) -> int:
        return self.ranks.index(self._rank) if self._rank in self.ranks else -1

    def size(self) -> int:
        return len(self.ranks)

    def _given(self, tensor):
        return self._world.given(tensor, self) if self._world is not None else None

    def _stacked(self, tensor):
        """Returns the result of a gather: the inputs of all members, stacked."""
        rows = self._given(tensor)
        expected = (tensor.shape[0] * self.size(),) + tuple(tensor.shape[1:])
        if rows is not None and tuple(rows.shape) != expected:
            raise ValueError("found contributions of shape %s, expected %s" % (tuple(rows.shape), expected))
        return rows

    def _allgather_base(self, output, input, *unused):
        rows = self._stacked(input)
        if rows is not None:
            output.copy_(rows)
        else:
            output.view((self.size(),) + tuple(input.shape)).copy_(input)
        return _done_work()

    def allgather(self, output_tensors, input_tensors, *unused):
        for outputs, tensor in zip(output_tensors, input_tensors):
            rows = self._stacked(tensor)
            parts = [tensor] * len(outputs) if rows is None else rows.chunk(len(outputs))
            for out, part in zip(outputs, parts):
                out.copy_(part)
        return _done_work()

    all_gather_single = _allgather_base

    def _reduce_scatter_base(self, output, input, *unused):
        output.copy_(input.view((self.size(),) + tuple(output.shape))[max(0, self.rank())])
        return _done_work()

    def reduce_scatter(self, output_tensors, input_tensors, *unused):
        for output, inputs in zip(output_tensors, input_tensors):
            output.copy_(inputs[max(0, self.rank())])
        return _done_work()

    reduce_scatter_single = _reduce_scatter_base

    def alltoall_base(self, output, input, *unused):
        rows = self._given(input)
        if rows is None:
            _repeat_into(output, input)
        elif tuple(rows.shape) == tuple(output.shape):
            output.copy_(rows)
        else:
            expected = (input.shape[0] * self.size(),) + tuple(input.shape[1:])
            if tuple(rows.shape) != expected or input.shape[0] % self.size() or output.shape != input.shape:
                raise ValueError("found contributions of shape %s, expected %s, what this rank receives, or with equal "
                                 "shares %s, what all members send" % (tuple(rows.shape), tuple(output.shape), expected))
            shares = rows.view((self.size(), self.size(), -1) + tuple(input.shape[1:]))
            output.copy_(shares[:, max(0, self.rank())].reshape(output.shape))
        return _done_work()

    all_to_all_single = alltoall_base

    def alltoall(self, output_tensors, input_tensors, *unused):
        for out, part in zip(output_tensors, input_tensors):
            _repeat_into(out, part)
        return _done_work()

    def allreduce(self, tensors, *unused):
        return _done_work()

    allreduce_coalesced = broadcast = allreduce

    def barrier(self, *unused):
        return _done_work()

    def send(self, tensors, dst, tag=0):
        return _done_work()

    def recv(self, tensors, src, tag=0):
        # Data that was not sent would be arbitrary memory: uses numbers of the usual size instead.
        for tensor in tensors:
            if tensor.is_floating_point():
                tensor.normal_()
            else:
                tensor.zero_()
        return _done_work()


class FakeWorld:
    """While its `with` block is open, torch.distributed believes in `layout.world` ranks and that this is `rank`."""

    def __init__(self, layout: Layout, rank: int):
        self.layout, self.rank = layout, rank
        self.world_group = FakeGroup(range(layout.world), rank, self)
        self._contributions = []
        self._patches = Patches()

    def contributes(self, matches, give):
        """For gathers and all_to_all_single whose input fits `matches(tensor, group)`: `give(tensor, group)` are the inputs
        of all members, stacked; of an all-to-all with unequal shares the rows that this rank receives."""
        self._contributions.append((matches, give))

    def given(self, tensor, group):
        """Returns the contributions for this input; None where nothing matches."""
        for matches, give in self._contributions:
            if matches(tensor, group):
                return give(tensor, group)
        return None

    def __enter__(self):
        for name, function in self._functions().items():
            self._patches.replace(dist, name, function)
        self._patches.replace(dist, "P2POp", FakeP2POp)
        self._patches.spread()
        return self

    def __exit__(self, *unused):
        self._patches.restore()

    def _group(self, group) -> FakeGroup:
        return group if isinstance(group, FakeGroup) else self.world_group

    def _functions(self) -> dict:
        """torch.distributed's functions by their names, with its arguments."""
        of = self._group

        def peer(group, rank):
            """The place of a global rank in its group, as torch.distributed hands it on."""
            ranks = of(group).ranks
            return ranks.index(rank) if rank in ranks else rank

        def gather(output_tensor, input_tensor, group=None, async_op=False):
            return _end(of(group)._allgather_base(output_tensor, input_tensor), async_op)

        def scatter(output, input, op=None, group=None, async_op=False):
            return _end(of(group)._reduce_scatter_base(output, input), async_op)

        def exchange(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
            return _end(of(group).alltoall_base(output, input, output_split_sizes, input_split_sizes), async_op)

        def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
            return of(group).send([tensor], peer(group, dst), tag)

        def irecv(tensor, src=None, group=None, tag=0, group_src=None):
            return of(group).recv([tensor], peer(group, src), tag)

        def recv(tensor, src=None, *rest, **more):
            irecv(tensor, src, *rest, **more).wait()
            return src

        return {
            "is_initialized": lambda: True, "is_available": lambda: True, "get_backend": lambda group=None: "fake",
            "init_process_group": lambda *args, **kwargs: None, "destroy_process_group": lambda group=None: None,
            "get_rank": lambda group=None: of(group).rank(), "get_world_size": lambda group=None: of(group).size(),
            "get_process_group_ranks": lambda group: list(of(group).ranks),
            "new_group": lambda ranks=None, *args, **kwargs: FakeGroup(range(self.layout.world) if ranks is None else ranks, self.rank, self),
            "all_gather_into_tensor": gather, "_all_gather_base": gather, "all_gather_single": gather,
            "reduce_scatter_tensor": scatter, "_reduce_scatter_base": scatter, "reduce_scatter_single": scatter, "all_to_all_single": exchange,
            "all_gather": lambda tensor_list, tensor, group=None, async_op=False: _end(of(group).allgather([tensor_list], [tensor]), async_op),
            "reduce_scatter": lambda output, input_list, op=None, group=None, async_op=False: _end(
                of(group).reduce_scatter([output], [input_list]), async_op),
            "all_to_all": lambda output_tensor_list, input_tensor_list, group=None, async_op=False: _end(
                of(group).alltoall(output_tensor_list, input_tensor_list), async_op),
            "all_reduce": lambda tensor, op=None, group=None, async_op=False: _end(of(group).allreduce([tensor]), async_op),
            "all_reduce_coalesced": lambda tensors, op=None, group=None, async_op=False: _end(
                of(group).allreduce_coalesced(list(tensors)), async_op),
            "broadcast": lambda tensor, src=None, group=None, async_op=False, group_src=None: _end(of(group).broadcast([tensor]), async_op),
            "barrier": lambda group=None, async_op=False, device_ids=None: _end(of(group).barrier(), async_op),
            "isend": isend, "irecv": irecv, "recv": recv, "send": lambda *args, **kwargs: _end(isend(*args, **kwargs), False),
            "batch_isend_irecv": lambda p2p_op_list: [one.op(one.tensor, one.peer, one.group, one.tag) for one in p2p_op_list],
        }


class FakeP2POp:
    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


def _end(work, async_op):
    if async_op:
        return work
    work.wait()
    return None


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

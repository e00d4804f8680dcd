"""Records what a program does with torch.distributed, without a change to the program.

    with Recorder(path, rank) as recorder, CommunicationHooks(recorder, layout):
        train()

Collectives become sub-operations of the open operation. Sends and receives are operations of their own, named after the
stage of the peer. Asynchronous calls are timed from launch to the end of their wait() and written with a name ending in
_async, which readers take as computing that hides them.
"""
import contextlib
import functools
import inspect
import sys

import torch
import torch.distributed as dist

from .layout import GroupNames, Layout, source_of
from .patching import Patches

# Collectives by name: the word of the format, and the position of the input (a tensor or a list of them).
COLLECTIVES = {
    "all_gather": ("allgather", 1),
    "all_gather_into_tensor": ("allgather", 1),
    "_all_gather_base": ("allgather", 1),
    "all_gather_coalesced": ("allgather", 1),
    "reduce_scatter": ("reduce_scatter", 1),
    "reduce_scatter_tensor": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter", 1),
    "all_to_all": ("all_to_all", 1),
    "all_to_all_single": ("all_to_all", 1),
    "all_reduce": ("allreduce", 0),
    "all_reduce_coalesced": ("allreduce", 0),
    "broadcast": ("broadcast", 0),
}
# Calls that the format has no word for: written without comm_func, which readers take as time of the operation.
OTHERS = {"reduce": 0, "gather": 0, "scatter": 0, "barrier": None}
POINT_TO_POINT = ("send", "recv", "isend", "irecv")


def tensor_facts(value):
    """(shape, dtype) of a tensor, or of a list of them as one buffer: rows added up where the rest agrees, else flat."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)
    if not isinstance(value, (list, tuple)) or not value:
        return None
    parts = [tensor_facts(one) for one in value]
    if any(part is None for part in parts):
        return None
    dtype = parts[0][1]
    tails = {shape[1:] for shape, _ in parts}
    if len(tails) == 1 and parts[0][0]:
        return (sum(shape[0] for shape, _ in parts),) + parts[0][0][1:], dtype
    return (sum(torch.Size(shape).numel() for shape, _ in parts),), dtype


class _TimedWork:
    """A Work whose first wait() ends the recorded call."""

    def __init__(self, work, on_done):
        self._work, self._on_done = work, on_done

    def wait(self, *args, **kwargs):
        result = self._work.wait(*args, **kwargs)
        done, self._on_done = self._on_done, None
        if done is not None:
            done()
        return result

    def __getattr__(self, name):
        return getattr(self._work, name)


class CommunicationHooks:
    """Wraps torch.distributed while its `with` block is open. `names` tells groups apart, by default from `layout`."""

    def __init__(self, recorder, layout: Layout = None, names: GroupNames = None):
        self.recorder, self.layout = recorder, layout
        self.names = names or GroupNames(layout)
        self._patches = Patches()
        self._coalescing = None  # calls noted inside a coalescing manager

    def __enter__(self):
        for name, (comm, position) in COLLECTIVES.items():
            if hasattr(dist, name):
                self._patches.replace(dist, name, self._collective(name, getattr(dist, name), comm, position))
        for name, position in OTHERS.items():
            if hasattr(dist, name):
                self._patches.replace(dist, name, self._collective(name, getattr(dist, name), None, position))
        for name in POINT_TO_POINT:
            if hasattr(dist, name):
                self._patches.replace(dist, name, self._point_to_point(name, getattr(dist, name)))
        if hasattr(dist, "batch_isend_irecv"):
            self._patches.replace(dist, "batch_isend_irecv", self._batch(dist.batch_isend_irecv))
        home = getattr(dist, "distributed_c10d", None)
        if hasattr(home, "_coalescing_manager"):
            self._patches.replace(home, "_coalescing_manager", self._coalescing_manager(home._coalescing_manager))
        self._patches.spread()
        return self

    def __exit__(self, *unused):
        self._patches.restore()
        return False

    # Collectives.

    def _collective(self, name, original, comm, position):
        recorder = self.recorder
        order = list(inspect.signature(original).parameters)
        argument = _arguments(order)
        tensor_name = order[position] if position is not None and position < len(order) else None

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if recorder.inside.deep:
                return original(*args, **kwargs)
            facts = tensor_facts(argument(args, kwargs, tensor_name)) if tensor_name else None
            label, source = None, name
            if comm is not None:
                label = self.names.label(argument(args, kwargs, "group"), comm)
                traced = source_of(name, comm, label, len(facts[0]) if facts else 0, facts[1] if facts else "None")
                source, label = traced.function, traced.group
            if self._coalescing is not None:
                self._coalescing.append((source, facts, comm, label))
                with recorder.inside:
                    return original(*args, **kwargs)
            waits_later = bool(argument(args, kwargs, "async_op"))
            call = recorder.start_call(source, facts, comm, label, _caller(2), waits_later)
            with recorder.inside:
                result = original(*args, **kwargs)
            if call is None:
                return result
            if waits_later and result is not None:
                return _TimedWork(result, call.finish)
            call.finish()
            return result

        return wrapper

    def _coalescing_manager(self, original):
        """Calls inside are launched together when the manager ends: one sub-operation with all their elements."""
        recorder = self.recorder

        @functools.wraps(original)
        @contextlib.contextmanager
        def manager(*args, **kwargs):
            if recorder.inside.deep or self._coalescing is not None:
                with original(*args, **kwargs) as value:
                    yield value
                return
            waits_later = bool(kwargs.get("async_ops", False))
            begin = recorder.start_call("coalesced", None, None, None, _caller(3), waits_later)
            self._coalescing = []
            try:
                with original(*args, **kwargs) as value:
                    yield value
            finally:
                noted, self._coalescing = self._coalescing, None
                if begin is not None:
                    _describe_coalesced(begin.sub, noted)
                    if waits_later and value is not None and hasattr(value, "wait"):
                        wait = value.wait

                        def timed_wait(*a, **k):
                            result = wait(*a, **k)
                            begin.finish()
                            return result

                        value.wait = timed_wait
                    else:
                        begin.finish()

        return manager

    # Point to point.

    def _line_of(self, is_send: bool, peer: int):
        """The operation that a transfer with this rank is, by the stages of both."""
        if self.layout is None or peer is None:
            return "send_forward" if is_send else "recv_forward"
        mine, other = self.layout.of(self.recorder.rank).pp, self.layout.of(peer).pp
        forward = (other - mine) % self.layout.pp == 1 if self.layout.pp > 2 else other > mine
        if is_send:
            return "send_forward" if forward else "send_backward"
        return "recv_backward" if forward else "recv_forward"

    def _point_to_point(self, name, original):
        recorder = self.recorder
        order = list(inspect.signature(original).parameters)
        argument = _arguments(order)
        is_send, waits_later = name in ("send", "isend"), name.startswith("i")

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if recorder.inside.deep or recorder.paused:
                return original(*args, **kwargs)
            tensor = argument(args, kwargs, "tensor")
            peer = argument(args, kwargs, "dst" if is_send else "src")
            if recorder.open_operation is not None:
                call = recorder.start_call(name, tensor_facts(tensor), func_name=_caller(2), is_async=waits_later)
                with recorder.inside:
                    result = original(*args, **kwargs)
                if call is not None and waits_later and result is not None:
                    return _TimedWork(result, call.finish)
                if call is not None:
                    call.finish()
                return result
            rows = [(self._line_of(is_send, peer), "pp", tensor_facts(tensor))]
            begin = recorder.clock.begin()
            with recorder.inside:
                result = original(*args, **kwargs)
            if waits_later and result is not None:
                return _TimedWork(result, lambda: recorder.write_joined(rows, begin))
            recorder.write_joined(rows, begin)
            return result

        return wrapper

    def _batch(self, original):
        recorder = self.recorder

        @functools.wraps(original)
        def wrapper(p2p_op_list, *args, **kwargs):
            if recorder.inside.deep or recorder.paused:
                return original(p2p_op_list, *args, **kwargs)
            sends, receives = [], []
            for one in p2p_op_list:
                is_send = getattr(one.op, "__name__", "") == "isend"
                row = (self._line_of(is_send, one.peer), "pp", tensor_facts(one.tensor))
                (sends if is_send else receives).append(row)
            inside_operation = recorder.open_operation is not None
            facts = tensor_facts([one.tensor for one in p2p_op_list])
            call = recorder.start_call("batch_isend_irecv", facts, func_name=_caller(2),
                                       is_async=True) if inside_operation else None
            begin = None if inside_operation else recorder.clock.begin()
            with recorder.inside:
                works = original(p2p_op_list, *args, **kwargs)
            left = [len(works)]

            def one_done():
                left[0] -= 1
                if left[0] == 0 and call is not None:
                    call.finish()
                elif left[0] == 0 and not inside_operation:
                    recorder.write_joined(sends + receives, begin)

            if not works and not inside_operation:
                recorder.write_joined(sends + receives, begin)
            return [_TimedWork(work, one_done) for work in works]

        return wrapper


def _arguments(order):
    """A function that finds an argument by its parameter's name; None where it was not given."""
    places = {name: index for index, name in enumerate(order)}

    def argument(args, kwargs, name):
        if name in kwargs:
            return kwargs[name]
        place = places.get(name)
        return args[place] if place is not None and place < len(args) else None

    return argument


def _caller(depth: int):
    name = sys._getframe(depth).f_code.co_name
    return name if len(name) <= 255 else None


def _describe_coalesced(sub, noted):
    if not noted:
        return
    source, _, comm, label = noted[0]
    sub.source = source + "_coalesced" + ("_async" if sub.source.endswith("_async") else "")
    if all(one[2] == comm and one[3] == label for one in noted):
        sub.comm_func, sub.group = comm, label
    shapes = [one[1] for one in noted]
    if all(shape is not None for shape in shapes):
        sub.has_shape = True
        sub.shape, sub.dtype = (sum(torch.Size(shape).numel() for shape, _ in shapes),), shapes[0][1]

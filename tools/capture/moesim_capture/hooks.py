"""Records what a program does with torch.distributed, without a change to the program or to its results.

    with Recorder(path, rank) as recorder, CommunicationHooks(recorder, layout):
        train()

Hooked are the methods of process groups, which every collective of Python goes through, from any caller: the functions of
torch.distributed, FSDP, a communication hook of DistributedDataParallel, the program itself. What a call returns is what it
returned before: the end of a launched collective is noted where its Work's own wait() returns. Collectives become
sub-operations of the open operation; sends and receives outside one are operations of their own, named after the stage of
the peer.

Collectives that C++ launches (DistributedDataParallel without a hook, functional collectives, compiled functions) do not
come by here. They are counted by the sequence numbers of their groups and reported, by operation.
"""
import dis
import functools
import os
import sys
import weakref

import torch
import torch.distributed as dist

from .layout import GroupNames, Layout, is_counts, members_of, source_of
from .patching import Patches, kinds_of, named
from .recorder import joined_facts

# Methods of a process group: torch.distributed's name for it, the word of the format, the place of the input.
COLLECTIVES = {
    "allreduce": ("all_reduce", "allreduce", 0),
    "allreduce_coalesced": ("all_reduce_coalesced", "allreduce", 0),
    "broadcast": ("broadcast", "broadcast", 0),
    "allgather": ("all_gather", "allgather", 1),
    "_allgather_base": ("all_gather_into_tensor", "allgather", 1),
    "allgather_coalesced": ("all_gather_coalesced", "allgather", 1),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", "allgather", 1),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter_tensor", "reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", "reduce_scatter", 1),
    "alltoall": ("all_to_all", "all_to_all", 1),
    "alltoall_base": ("all_to_all_single", "all_to_all", 1),
    # The format has no word for these: written without comm_func, which readers take as time of the operation.
    "reduce": ("reduce", None, 0),
    "gather": ("gather", None, 1),
    "scatter": ("scatter", None, 1),
    "barrier": ("barrier", None, None),
    "monitored_barrier": ("monitored_barrier", None, None),
}
# Since torch 2.13 they have these names, too; recordings keep the old ones.
COLLECTIVES.update({new: COLLECTIVES[old] for new, old in (
    ("all_to_all_single", "alltoall_base"), ("all_gather_single", "_allgather_base"),
    ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"), ("reduce_scatter_single", "_reduce_scatter_base"),
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"))})
POINT_TO_POINT = {"send": "send", "recv": "recv", "recv_anysource": "recv"}
# Names of inputs as keywords, of all methods and torch versions.
_INPUTS = ("tensors", "tensor", "input", "input_tensor", "inputTensor", "input_tensors", "inputs", "input_lists")


def tensor_facts(value):
    """(shape, dtype) of a tensor, or of a list of them as one buffer: rows added up where the rest agrees, else flat."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)
    if not isinstance(value, (list, tuple)) or not value:
        return None
    parts = [tensor_facts(one) for one in value]
    if any(part is None for part in parts):
        return None
    if len(parts) == 1:
        return parts[0]
    tails = {(shape[1:], dtype) for shape, dtype in parts}
    if len(tails) == 1 and parts[0][0]:
        return (sum(shape[0] for shape, _ in parts),) + parts[0][0][1:], parts[0][1]
    return joined_facts(parts)


# Whether a wait follows its launch at once: nothing but moving names about lies between the two in one function.
_IDLE = ("STORE_", "LOAD_", "POP_TOP", "PUSH_NULL", "PRECALL", "CACHE", "RESUME", "NOP", "EXTENDED_ARG", "KW_NAMES", "COPY",
         "SWAP", "DUP_TOP", "ROT_TWO", "NOT_TAKEN")


@functools.lru_cache(maxsize=4096)
def _nothing_between(code, first: int, second: int) -> bool:
    if first == second:
        return True
    # Both places lie at or behind the call that runs there, by version of Python: the launch begins the list where it is in
    # it, and the wait ends it.
    names = [step.opname for step in dis.get_instructions(code) if first <= step.offset <= second]
    if names and names[0].startswith("CALL"):
        names = names[1:]
    return first < second and names[-1:] != [] and names[-1].startswith("CALL") and all(
        name.startswith(_IDLE) for name in names[:-1])


_LIBRARY = {os.path.abspath(__file__), os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_world.py")}
for _module in ("distributed_c10d", "c10d_logger"):
    if getattr(getattr(dist, _module, None), "__file__", None):
        _LIBRARY.add(getattr(dist, _module).__file__)


def _user_frame():
    """The frame that called torch.distributed, or the process group itself."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _LIBRARY:
        frame = frame.f_back
    return frame


def _place(frame):
    return id(frame), frame.f_code, frame.f_lasti


def _waited(call, launched, begin, place, failed):
    """A wait() at `place` for a call that was launched at another one is over."""
    if failed:
        call.drop()
    else:
        call.waited(begin, place[:2] == launched[:2] and _nothing_between(place[1], launched[2], place[2]))


class _Works:
    """Handles that were returned and not waited for yet: what to tell when their wait() returns."""

    def __init__(self, patches: Patches, recorder):
        self._patches, self._recorder = patches, recorder
        self._watched = {}  # id of a Work -> (weak reference, watcher)
        self._patched = set()

    def watch(self, work, watcher):
        """`watcher(begin, place, error)` is called when a wait() for `work` has returned or raised; it began at the mark
        `begin`, called at `place`."""
        self.prepare(type(work))
        key = id(work)
        self._watched[key] = (weakref.ref(work, lambda _: self._watched.pop(key, None)), watcher)

    def prepare(self, kind):
        for owner in kind.__mro__:
            if "wait" in vars(owner):
                if owner not in self._patched:
                    self._patched.add(owner)
                    self._patches.replace(owner, "wait", self._waiting(owner.wait))
                return

    def _waiting(self, original):
        @functools.wraps(original)
        def wait(work, *args, **kwargs):
            _, watcher = self._watched.pop(id(work), (None, None))
            if watcher is None:
                return original(work, *args, **kwargs)
            place, begin = _place(_user_frame()), self._recorder.clock.mark()
            failed = True
            try:
                result = original(work, *args, **kwargs)
                failed = False
            finally:
                try:
                    watcher(begin, place, failed)
                except Exception as error:  # ours
                    self._recorder.say("the end of a call was not recorded: %r" % error)
            return result

        return wait


class _Unseen:
    """Collectives of C++, told by sequence numbers that went on without a call of Python."""

    def __init__(self):
        self._known = {}  # id of a group -> [weak reference, its number when last looked at]
        self.missing = 0

    def number(self, group):
        """Returns how many collectives a group has launched, from an arbitrary start; None where the backend lacks it."""
        try:
            return group._get_sequence_number_for_group()
        except Exception:
            return None

    def look(self, group):
        """Counts what `group` launched since the last look."""
        now = self.number(group)
        known = self._known.get(id(group))
        if known is None or known[0]() is not group:
            known = self._known[id(group)] = [weakref.ref(group), now]
        if now is not None and known[1] is not None and now > known[1]:
            self.missing += now - known[1]
        known[1] = now

    def seen(self, group):
        """Marks the launches of `group` since the last check as recorded."""
        known = self._known.get(id(group))
        if known is not None:
            known[1] = self.number(group)

    def take(self) -> int:
        """Returns the unseen collectives of all groups since the last call."""
        for group in _all_groups():
            self.look(group)
        missing, self.missing = self.missing, 0
        return missing


def _all_groups():
    """Every process group that exists, where torch says so."""
    home = getattr(dist, "distributed_c10d", None)
    table = getattr(home, "_pg_map", None)
    if table is None:
        table = getattr(getattr(home, "_world", None), "pg_map", None)
    return list(table) if table else []


class CommunicationHooks:
    """Hooks process groups while its `with` block is open. `names` tells groups apart, by default from `layout`.

    Raises RuntimeError before anything is changed where this torch's process groups cannot be hooked.
    """

    def __init__(self, recorder, layout: Layout = None, names: GroupNames = None):
        self.recorder, self.layout = recorder, layout
        self.names = names or GroupNames(layout)
        self.unseen = _Unseen()
        self._patches = Patches()
        self._works = _Works(self._patches, recorder)
        self._batch = None  # transfers noted inside batch_isend_irecv
        self._combines = set()  # (group, shape) of reductions that combine what a MoE layer gathered
        self._members = {}  # id of a group -> its global ranks
        recorder.namers.append(self._ended)

    def __enter__(self):
        try:
            for owner in _group_classes():
                for name, (public, comm, position) in COLLECTIVES.items():
                    if name in vars(owner):
                        self._patches.replace(owner, name, named(self._collective(getattr(owner, name), public, comm,
                                                                                  position), name))
                for name, public in POINT_TO_POINT.items():
                    if name in vars(owner):
                        self._patches.replace(owner, name, named(self._transfer(getattr(owner, name), public), name))
            work = getattr(getattr(dist, "distributed_c10d", None), "Work", None) or getattr(dist, "Work", None)
            if work is not None:
                self._works.prepare(work)
            if hasattr(dist, "batch_isend_irecv"):
                self._patches.replace(dist, "batch_isend_irecv", self._batched(dist.batch_isend_irecv))
                self._patches.spread()
        except TypeError as error:
            self._patches.restore()
            raise RuntimeError("found process groups whose methods cannot be replaced (torch %s: %s), expected ones of "
                               "Python or pybind11; nothing is recorded" % (torch.__version__, error)) from None
        self.unseen.take()
        return self

    def __exit__(self, *unused):
        self._patches.restore()

    # Collectives.

    def _collective(self, original, public, comm, position):
        recorder, unseen = self.recorder, self.unseen

        @functools.wraps(original)
        def wrapper(group, *args, **kwargs):
            # A group of one moves nothing.
            if recorder.paused or recorder.inside.deep or _capturing() or group.size() == 1:
                with recorder.inside:  # one that others are made of must not be taken as launched by C++
                    unseen.look(group)
                    try:
                        return original(group, *args, **kwargs)
                    finally:
                        unseen.seen(group)
            call = launched = None
            try:
                unseen.look(group)
                frame = _user_frame()
                launched = _place(frame)
                facts = tensor_facts(_input(args, kwargs, position)) if position is not None else None
                call = recorder.start_call(public, facts, comm, None, _function(frame))
                if call is not None:
                    call.group, call.facts = group, facts
                del frame
            except Exception as error:  # ours; the program has done nothing wrong
                recorder.say("a call of %s was not recorded: %r" % (public, error))
            try:
                with recorder.inside:
                    work = original(group, *args, **kwargs)
            except BaseException:
                if call is not None:
                    call.drop()
                raise
            finally:
                unseen.seen(group)
            if call is None:
                return work
            if work is None or not hasattr(work, "wait"):
                call.finish()
                return work
            call.in_flight = True
            self._works.watch(work, functools.partial(_waited, call, launched))
            return work

        return wrapper

    def _ended(self, operation: str, calls):
        """Names the calls of an ending operation, and reports its unseen collectives."""
        self.name_calls(operation, calls)
        missing = self.unseen.take()
        if missing > 0:
            self.recorder.note("%d calls not seen" % missing)
            self.recorder.say("torch launches collectives in %s itself, which are not in the recording (DistributedDataParallel "
                              "without a hook, functional collectives, compiled functions); descriptions count them" %
                              operation)

    def name_calls(self, operation: str, calls):
        """Gives calls the names and the groups that the public recorder writes."""
        gathered = {}  # group -> rows that its gathers made here
        for call in calls:
            comm = call.sub.comm_func
            if call.group is None or comm is None or call.sub.group is not None:
                continue
            shape, dtype = call.facts or ((), "None")
            label = self.names.label(call.group, comm)
            fits = self.names.fitting(call.group)
            both = "dp" in fits and ("exp" in fits or "tp_exp" in fits)
            rows = len(shape) > 1 and not dtype.startswith("torch.int")
            if comm in ("allgather", "reduce_scatter") and both and len(shape) == 1 and not is_counts(len(shape), dtype):
                label = "dp"  # flat parameters and gradients; tokens have rows
            if comm == "allgather" and rows and label in ("exp", "tp_exp"):
                gathered.setdefault(id(call.group), set()).add(shape[0] * len(self._ranks(call.group)))
            if comm == "allreduce" and rows and ("exp" in fits or "tp_exp" in fits):
                key = (id(call.group), shape)
                if shape[0] in gathered.get(id(call.group), ()) or key in self._combines:
                    self._combines.add(key)
                    label = "exp"
            traced = source_of(call.sub.source, comm, label, len(shape), dtype)
            call.sub.source, call.sub.group = traced.function, traced.group
            if operation == "loss_func" and comm == "allreduce":
                call.sub.func_name = "loss_func"

    def _ranks(self, group):
        ranks = self._members.get(id(group))
        if ranks is None:
            world = self.layout.world if self.layout is not None else 1
            ranks = self._members[id(group)] = members_of(group, world)
        return ranks

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

    def _transfer(self, original, public):
        recorder = self.recorder
        is_send = public == "send"

        @functools.wraps(original)
        def wrapper(group, *args, **kwargs):
            if recorder.inside.deep or recorder.paused or _capturing():
                return original(group, *args, **kwargs)
            facts = tensor_facts(_input(args, kwargs, 0))
            peer = kwargs.get("dstRank", kwargs.get("srcRank", args[1] if len(args) > 1 else None))
            ranks = self._ranks(group)
            peer = ranks[peer] if isinstance(peer, int) and peer < len(ranks) else None
            row = (self._line_of(is_send, peer), "pp", facts)
            if self._batch is not None:
                self._batch.append((is_send, row))
                with recorder.inside:
                    return original(group, *args, **kwargs)
            frame = _user_frame()
            launched = _place(frame)
            inside_operation = recorder.open_operation is not None
            call = recorder.start_call(public, facts, func_name=_function(frame)) if inside_operation else None
            begin = None if inside_operation else recorder.clock.begin()
            del frame
            try:
                with recorder.inside:
                    work = original(group, *args, **kwargs)
            except BaseException:
                if call is not None:
                    call.drop()
                raise
            if call is not None:
                call.in_flight = True

            def line(unused_begin, unused_place, failed):
                if not inside_operation and not failed:
                    recorder.write_joined([row], begin)

            if work is not None and hasattr(work, "wait"):
                self._works.watch(work, line if call is None else functools.partial(_waited, call, launched))
            return work

        return wrapper

    def _batched(self, original):
        recorder = self.recorder

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if recorder.inside.deep or recorder.paused or self._batch is not None:
                return original(*args, **kwargs)
            inside_operation = recorder.open_operation is not None
            call = recorder.start_call("batch_isend_irecv", func_name=_function(sys._getframe(1)),
                                       is_async=True) if inside_operation else None
            begin = None if inside_operation else recorder.clock.begin()
            self._batch = []
            try:
                works = original(*args, **kwargs)
            except BaseException:
                if call is not None:
                    call.drop()
                raise
            finally:
                noted, self._batch = self._batch, None
            rows = [row for is_send, row in noted if is_send] + [row for is_send, row in noted if not is_send]
            facts = [row[2] for row in rows if row[2] is not None]
            if call is not None and facts:
                call.sub.has_shape = True
                call.sub.shape, call.sub.dtype = joined_facts(facts)
            left = [len(works)]

            def one_done(unused_begin, unused_place, failed):
                left[0] -= 1
                if failed and call is not None:
                    call.drop()
                elif left[0] == 0 and call is not None:
                    call.finish()
                elif left[0] == 0 and not inside_operation and not failed:
                    recorder.write_joined(rows, begin)

            for work in works:
                self._works.watch(work, one_done)
            if not works and not inside_operation:
                recorder.write_joined(rows, begin)
            return works

        return wrapper


def _group_classes():
    """Classes whose methods are collectives: torch's process group, those of Python that override it, the fake one."""
    home = getattr(dist, "distributed_c10d", None)
    base = getattr(dist, "ProcessGroup", None) or getattr(home, "ProcessGroup", None)
    if base is None and dist.is_available():
        raise RuntimeError("found a torch %s without torch.distributed.ProcessGroup, expected one with it; nothing is "
                           "recorded" % torch.__version__)
    fake = sys.modules.get(__package__ + ".fake_world")
    return (kinds_of(base) if base is not None else []) + ([fake.FakeGroup] if fake is not None else [])


def _capturing() -> bool:
    """Whether a CUDA graph is being captured, in which nothing may be timed."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _input(args, kwargs, position):
    if position < len(args):
        return args[position]
    return next((kwargs[name] for name in _INPUTS if name in kwargs), None)


def _function(frame):
    name = frame.f_code.co_name
    return name if len(name) <= 255 else None

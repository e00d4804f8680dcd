"""Writes one rank's operations to its file, a line when an operation ends, so that a crash keeps all finished ones.

    recorder = Recorder("run/rank0.txt", rank=0)
    with recorder.operation("forward_step"):
        loss = model(batch)                       # hooks and @communication add the calls inside

Everything that the recorder itself does is timed, and each line's description says how much of it was since the line
before.
"""
import contextlib
import functools
import json
import math
import os
import platform
import statistics
import sys
import threading
import time
import uuid
from typing import Optional

from .clocks import HostClock, clock_for
from .cmd_format import DTYPE_BYTES, Operation, SubOperation, format_line, ms

VERSION = "0.2.0"
# Operations that are one transfer, which has no line of its own inside them.
TRANSFERS = ("send_forward", "recv_forward", "send_backward", "recv_backward", "dp_allreduce", "exp_dp_allreduce",
             "ep_dp_allreduce", "ep_allreduce", "pep_allreduce")
_active: Optional["Recorder"] = None


def active() -> Optional["Recorder"]:
    """The recorder whose `with` block is open, or None."""
    return _active


class Call:
    """A call that is being timed inside an operation; `finish` ends it, `drop` forgets one that raised.

    A call that was launched and not yet waited for when its operation ends is written as asynchronous, as far as the
    operation goes; what is waited for it afterwards is a call of its own in the operation that waits.
    """

    __slots__ = ("recorder", "operation", "sub", "begin", "end", "is_async", "in_flight", "written", "wait_begin", "group",
                 "facts")

    def __init__(self, recorder, operation, sub, begin, is_async):
        self.recorder, self.operation, self.sub, self.begin = recorder, operation, sub, begin
        self.end, self.is_async, self.in_flight, self.written = None, is_async, False, False
        self.wait_begin = None  # the mark at which it was waited for
        self.group = self.facts = None  # of hooks, which name a call when its operation is known

    def finish(self, mark=None):
        if self.end is None:
            self.end = self.recorder.clock.mark() if mark is None else mark

    def drop(self):
        """Forgets a call that raised: it did not happen, however the program went on."""
        self.recorder._drop(self)

    def waited(self, begin, at_once: bool):
        """wait() for a launched call has returned; it began at the mark `begin`. `at_once`: nothing happened between
        launch and wait, so the call hid behind nothing."""
        self.in_flight = False
        if self.written:
            self.recorder._waited_late(self, begin)
        elif self.end is None:
            self.is_async, self.wait_begin = not at_once, begin
            self.finish()


class _OpenOperation:
    __slots__ = ("recorder", "name", "group", "tensor", "state", "description", "semantics", "begin", "calls", "parts",
                 "uid")

    def __init__(self, recorder, name, group, tensor, state, description, semantics):
        self.recorder, self.name, self.group, self.tensor = recorder, name, group, tensor
        self.state, self.description, self.semantics = state, description, semantics
        self.begin, self.calls, self.uid = None, [], new_uid()
        self.parts = []  # what the calls of an operation that is one transfer move, (shape, dtype) each

    def __enter__(self):
        started = time.perf_counter_ns()
        recorder = self.recorder
        if recorder._open is not None:
            recorder._nest(self.name)
            self.begin = None
            return self
        recorder._open = self
        self.begin = recorder.clock.begin()
        recorder._own_ns += time.perf_counter_ns() - started
        return self

    def __exit__(self, kind, value, trace):
        recorder = self.recorder
        if recorder._open is not self:  # part of the operation around it
            return
        mark, host_ms = recorder.clock.end(self.begin)
        started = time.perf_counter_ns()
        recorder._open = None
        if kind is None:  # what raised did not finish, and is not written
            recorder._write(self, mark, host_ms)
        recorder._own_ns += time.perf_counter_ns() - started


class _Depth(threading.local):
    """Counts `with` blocks inside each other, per thread: backward runs in a thread of its own on a GPU."""

    deep = 0

    def __enter__(self):
        self.deep += 1

    def __exit__(self, *unused):
        self.deep -= 1


class CallLog:
    """Timing of calls, independent of their output: the clock, and observations that do not fit into lines."""

    def __init__(self, rank: int, stage: int, mode: str, clock):
        self.rank, self.stage, self.mode, self.clock = rank, stage, mode, clock
        self.state = "None"  # mg_state of operations that name none
        self.warnings = []
        self.outside = 0  # calls outside any operation
        self.raised = 0  # calls that raised, and are not written
        self.nested = {}  # operation inside another one -> how often
        self.late = 0  # calls waited for after the operation that launched them
        self.inside = _Depth()  # a `with` block whose calls are part of another one
        self.paused = False
        self.namers = []  # called with an operation's name and its calls before these are written, to name them
        self._own_ns = 0

    def pause(self):
        """Records nothing until resume(): for warm-up iterations."""
        self.paused = True

    def resume(self):
        self.paused = False

    @contextlib.contextmanager
    def call(self, source: str, tensor=None, comm: Optional[str] = None, group: Optional[str] = None,
             func_name: Optional[str] = None):
        """A context manager around one call; calls inside it are part of it and not recorded themselves."""
        call = self.start_call(source, tensor, comm, group, func_name)
        try:
            with self.inside:
                yield call
        except BaseException:
            if call is not None:
                call.drop()
            raise
        if call is not None:
            call.finish()

    def say(self, text: str):
        """A warning, on the spot and once."""
        if text not in self.warnings:
            self.warnings.append(text)
            print("moesim-capture: " + text, file=sys.stderr, flush=True)

    def summary(self):
        """One line for each kind of thing that was seen and that no line holds."""
        out = []
        if self.outside:
            out.append("%d communication calls outside any operation were not recorded" % self.outside)
        if self.raised:
            out.append("%d calls raised and were not recorded" % self.raised)
        if self.late:
            out.append("%d calls were waited for in a later operation: written as asynchronous where they were launched, "
                       "and as a wait where they were waited for" % self.late)
        return out

    def _nest(self, name: str):
        self.nested[name] = self.nested.get(name, 0) + 1
        self.say("found operation %s inside %s; it is recorded as a part of that" % (name, self.open_operation))

    def _new_call(self, operation, source, tensor, comm, group, func_name, is_async) -> Call:
        sub = SubOperation(source, "0", "0", func_name=func_name, group=group, comm_func=comm)
        if tensor is not None:
            sub.has_shape = True
            sub.shape, sub.dtype = shape_of(tensor)
        return Call(self, operation, sub, None, is_async)

    def _begin_call(self, calls, *facts) -> Call:
        started = time.perf_counter_ns()
        call = self._new_call(*facts)
        calls.append(call)
        self._own_ns += time.perf_counter_ns() - started
        call.begin = self.clock.mark()
        return call

    def _waited_late(self, call: Call, begin):
        self.late += 1
        wait = self.start_call("wait", func_name=call.sub.source) if self.open_operation is not None else None
        if wait is not None:
            wait.begin = begin
            wait.finish()


def subs_of(calls, where, end_ms: float, version: int, digits: int, end=None):
    """The sub-operations of calls, in the order of their starts. `where`: host milliseconds of a mark; `end_ms`, `end`:
    of the operation, beyond which no call is written."""
    rows = []
    for call in calls:
        start_ms = where(call.begin)
        if start_ms > end_ms:
            continue
        done_ms = end_ms if call.end is None else where(call.end)
        if call.end is None:
            call.is_async = True
        elif done_ms > end_ms:
            done_ms, call.is_async = end_ms, True
        sub = call.sub
        if call.is_async and not sub.source.endswith("_async"):
            sub.source += "_async"
        by_end = version == 1 or call.is_async
        sub.duration = ms(done_ms - start_ms, digits)
        sub.timestamp = ms(done_ms if by_end else start_ms, digits)
        rows.append((start_ms, sub))
    return [sub for _, sub in sorted(rows, key=lambda row: row[0])]


def joined_facts(parts):
    """(shape, dtype) of several transfers as one: the only one's shape, else the elements of all; where data types differ,
    their bytes in elements of the type that has most of them."""
    parts = [shape_of(part) for part in parts if part is not None]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    sizes = {}
    for shape, dtype in parts:
        sizes[dtype] = sizes.get(dtype, 0) + math.prod(shape or ()) * DTYPE_BYTES.get(dtype, 4)
    dtype = max(sizes, key=sizes.get)
    return (-(-sum(sizes.values()) // DTYPE_BYTES.get(dtype, 4)),), dtype


class _LineWriter(CallLog):
    """A recorder after its file is open."""

    def __init__(self, file: int, rank: int, stage: int, mode: str, clock, version: int, digits: int):
        super().__init__(rank, stage, mode, clock)
        self.version = version
        self._file, self._digits = file, digits
        self._open: Optional[_OpenOperation] = None
        self._batches = {}
        self._own_written_ns = 0
        self._notes = []  # for the description of the line to come
        self.before_line = []  # called with the cmd_uid of an operation that has ended, before its line is written
        self.after_line = []  # called after each line, when the device is idle

    # Recorded operations.

    def operation(self, name: str, group: str = "None", tensor=None, state: Optional[str] = None,
                  description: Optional[str] = None, semantics: str = "None"):
        """A context manager around one top-level operation. `tensor` is what is sent or reduced: a tensor, several of
        them, or (shape, dtype). An operation inside another one is a part of it."""
        return contextlib.nullcontext() if self.paused else _OpenOperation(self, name, group, tensor, state, description, semantics)

    def start_call(self, source: str, tensor=None, comm: Optional[str] = None, group: Optional[str] = None,
                   func_name: Optional[str] = None, is_async: bool = False) -> Optional[Call]:
        """Starts timing a call inside the open operation; None when there is none, or inside another call."""
        if self.paused or self.inside.deep:
            return None
        operation = self._open
        if operation is None:
            self.outside += 1
            return None
        if operation.name in TRANSFERS:  # the operation is the transfer, of all that its calls move
            if tensor is not None and comm in (None, "allreduce", "reduce_scatter"):
                operation.parts.append(shape_of(tensor))
            return None
        return self._begin_call(operation.calls, operation, source, tensor, comm, group, func_name, is_async)

    def write_line(self, line):
        self._put(format_line(line) + "\n")

    def write_joined(self, rows, begin):
        """Operations that one call did together, (name, group, tensor) each: equal durations and time stamps."""
        mark, host_ms = self.clock.end(begin)
        started = time.perf_counter_ns()
        for name, group, tensor in rows:
            operation = _OpenOperation(self, name, group, tensor, None, None, "None")
            operation.begin = begin
            self._write(operation, mark, host_ms)
        self._own_ns += time.perf_counter_ns() - started

    def note(self, text: str):
        """Adds to the description of the operation that ends."""
        self._notes.append(text)

    @property
    def open_operation(self) -> Optional[str]:
        return self._open.name if self._open else None

    def trigger(self) -> dict:
        """The open operation, as a line of what it triggered names it."""
        op = self._open
        return {"trigger_op": op.name, "trigger_cmd_uid": op.uid, "trigger_batch_id": self._batches.get(op.name, 0),
                "mg_state": op.state or self.state, "stage_id": self.stage}

    # Inside.

    def _drop(self, call: Call):
        self.raised += 1
        if call in call.operation.calls:
            call.operation.calls.remove(call)

    def _write(self, op: _OpenOperation, mark, host_ms: float):
        duration = self.clock.between(op.begin, mark)
        for hook in self.namers:
            hook(op.name, op.calls)
        # The device was idle when the operation began, so its events count from there on the host's clock.
        subs = subs_of(op.calls, lambda at: host_ms - duration + self.clock.between(op.begin, at), host_ms, self.version,
                       self._digits)
        flying = 0
        for call in op.calls:
            call.written = True
            flying += call.in_flight
        if flying:
            self.note("%d calls still in flight" % flying)
        for hook in self.before_line:
            hook(op.uid)
        own_ns, self._own_written_ns = self._own_ns - self._own_written_ns, self._own_ns
        notes, self._notes = self._notes, []
        text = "; ".join([op.description or ("simulation" if self.mode == "scaling" else "run")] + notes)
        batch = self._batches.get(op.name, 0)
        self._batches[op.name] = batch + 1
        shape, dtype = shape_of(op.tensor if op.tensor is not None else joined_facts(op.parts))
        line = Operation(self.rank, op.name, self.stage, batch, op.state or self.state, ms(duration, self._digits),
                         described(text, own_ns / 1e6), op.group, shape, dtype, ms(host_ms, self._digits), subs=subs)
        if self.version == 2:
            line.cmd_uid, line.op_semantics = op.uid, op.semantics
        self.write_line(line)
        for hook in self.after_line:
            hook()

    def _put(self, text: str):
        write_all(self._file, text)


def write_all(file: int, text: str):
    """One write per line: what is in the file is whole lines, whenever the process dies."""
    data = text.encode()
    while data:
        data = data[os.write(file, data):]


def described(text: str, own_ms: float) -> str:
    """The description of a line; `moesim-capture overhead` reads the end of it."""
    return "%s; recording took %.3f ms" % (_one_line(text), own_ms)


def new_uid() -> str:
    return "cmd-" + uuid.uuid4().hex[:12]


class Recorder(_LineWriter):
    """One file of one rank; as a `with` block it is also the active recorder, which hooks and decorators write to.

    path: the file; its name should end in rank<N>.txt or rank<N>_<14 digits>.txt (layout.file_name makes one).
    mode: "realistic" for a real run, "scaling" where one process plays every rank and communication is not executed.
    device: a CUDA device is timed by events, anything else by the host's clock.
    version: 2 writes cmd_uid and stamps calls by their start, 1 stamps them by their end.
    digits: decimals of times; the public recorder has 2, moesim reads up to 15.
    about: extra comment lines, such as the command and the model's sizes.
    """

    def __init__(self, path, rank: int, stage: int = 0, mode: str = "realistic", device=None, version: int = 2,
                 digits: int = 2, about=()):
        if mode not in ("realistic", "scaling"):
            raise ValueError('found mode %r, expected "realistic" or "scaling"' % mode)
        if version not in (1, 2):
            raise ValueError("found version %r, expected 1 or 2" % version)
        self.path = os.fspath(path)
        clock = clock_for(device)
        header = header_of(mode, rank, clock, device, digits, about)
        if os.path.dirname(self.path):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        # A file of this name is replaced: appending a second run to it would make one broken recording.
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        super().__init__(file, rank, stage, mode, clock, version, digits)
        self._put(comment_lines(header))

    def __enter__(self):
        global _active
        if _active is not None:
            raise RuntimeError("found a second active recorder, expected one at a time")
        _active = self
        return self

    def __exit__(self, *unused):
        global _active
        _active = None
        self.close()

    def close(self):
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        for line in self.summary():
            self.say("%s: %s" % (self.path, line))


def operation(name: str, **options):
    """Recorder.operation of the active recorder; does nothing without one."""
    return _active.operation(name, **options) if _active is not None else contextlib.nullcontext()


def communication(comm: str, group: str, source: Optional[str] = None):
    """A decorator for a function that communicates: each call becomes one sub-operation of the open operation.

    comm is a word of the format (allgather, reduce_scatter, all_to_all, allreduce, broadcast), group a label ("tp", "dp",
    "exp"), source the name to write (default: the function's own). The first tensor argument gives shape and data type.
    """

    def decorate(function):
        name = source or function.__name__

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            recorder = _active
            if recorder is None:
                return function(*args, **kwargs)
            tensor = next((a for a in (*args, *kwargs.values()) if hasattr(a, "dtype") and hasattr(a, "shape")), None)
            with recorder.call(name, tensor, comm, group):
                return function(*args, **kwargs)

        return wrapper

    return decorate


def shape_of(tensor):
    """(shape, dtype) as the format writes them, of a tensor, several, a (shape, dtype) pair, or None."""
    if tensor is None:
        return None, "None"
    if isinstance(tensor, tuple) and len(tensor) == 2 and not hasattr(tensor[1], "shape"):
        return None if tensor[0] is None else tuple(int(n) for n in tensor[0]), str(tensor[1])
    if isinstance(tensor, (list, tuple)):
        return shape_of(joined_facts(tensor))
    return tuple(tensor.shape), str(tensor.dtype)


def header_of(mode: str, rank: int, clock, device, digits: int, about=()):
    """The comment lines of a rank file: who recorded what, on which device, with which software, at which cost."""
    header = ["moesim-capture %s, %s recording of rank %d, %s" % (VERSION, mode, rank, clock.kind)]
    header += machine_facts(device) + list(about)
    header.append("recording costs %.1f us per operation and %.1f us per call inside it (medians of empty ones on the "
                  "host's clock, measured before the first operation); descriptions say what it took" %
                  _measure_costs(digits))
    return header


def comment_lines(header) -> str:
    return "".join("# %s\n" % _one_line(row) for row in header)


def processor_name() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            model = next((row.split(":", 1)[1].strip() for row in file if row.startswith("model name")), model)
    except OSError:
        pass
    return model


def machine_facts(device=None):
    """Comment lines about this machine and its software. The first names the device that computed, in the form that
    moesim reads (docs/formats.md)."""
    torch = sys.modules.get("torch")
    model = processor_name()
    computed = "cpu, " + model
    if device is not None and str(device).startswith("cuda") and torch is not None and torch.cuda.is_available():
        computed = "cuda, " + torch.cuda.get_device_name(device)
    load = " (load %.1f)" % os.getloadavg()[0] if hasattr(os, "getloadavg") else ""
    facts = ["device: " + computed, "host: %s, %d cores%s, %s %s" % (model, os.cpu_count() or 1, load, platform.system(),
                                                                    platform.release())]
    if torch is not None:
        text = "python %s, torch %s, %d threads" % (platform.python_version(), torch.__version__, torch.get_num_threads())
        if torch.cuda.is_available():
            text += ", %s, CUDA %s" % (torch.cuda.get_device_name(), torch.version.cuda)
        facts.append(text)
    facts.append("recorded at %s UTC" % time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()))
    return facts


def write_whole(path: str, text: str):
    """Writes a whole file or none."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def write_json(path: str, value, indent=1):
    write_whole(path, json.dumps(value, indent=indent) + "\n")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).replace(",group_kind=", ", group_kind=")


def _measure_costs(digits: int, repeats: int = 100):
    """Microseconds that an empty operation, and a call inside one, take on the host's clock."""
    file = os.open(os.devnull, os.O_WRONLY)
    scratch = _LineWriter(file, 0, 0, "scaling", HostClock(), 2, digits)
    tensor = ((1024, 4096), "torch.float32")
    times = {0: [], 8: []}
    try:
        for _ in range(repeats):
            for calls, list_ in times.items():
                start = time.perf_counter_ns()
                with scratch.operation("forward_step"):
                    for _ in range(calls):
                        with scratch.call("all_gather", tensor, "allgather", "exp"):
                            pass
                list_.append(time.perf_counter_ns() - start)
    finally:
        os.close(file)
    empty, full = (statistics.median_high(times[calls]) for calls in times)
    return empty / 1e3, max(0.0, (full - empty) / 8e3)

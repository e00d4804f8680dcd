"""Records a training loop that is not ours, in two lines:

    import moesim_capture

    with moesim_capture.record(model, group=expert_group):
        for batch in loader:
            ...

Calls of the model, of backward and of optimizers cut an iteration into operations (iteration.py). Nothing is written before
an iteration is whole; after the last one that is wanted everything is put back and the training goes on unrecorded.
"""
import atexit
import contextlib
import functools
import gc
import glob
import os
import sys
import time

import torch
import torch.distributed as dist

from .clocks import clock_for
from .gradient_buckets import ReducerWatch
from .hooks import CommunicationHooks
from .iteration import (BACKWARD, FORWARD, OPERATIONS, STEP, Cutter, Iteration, Reduced, Span, elements_of, lines_of,
                        text_of)
from .layout import GroupNames, Layout, file_name, folder_name, is_counts, members_of
from .patching import Patches, kinds_of
from .recorder import Call, CallLog, header_of, write_whole

# Names of sizes that a folder of a recording may carry.
SIZES = ("experts", "layers", "hidden", "seq", "micro_batch")


class Recording(CallLog):
    """The result of record(). It ends by itself after the requested iterations, at the end of its `with` block, or by
    close(); `folders` are then the written folders, one per iteration."""

    MODE = "realistic"

    def __init__(self, model, group, out, iterations, warmup, tp, sizes, device, digits):
        self.world, rank = _world_and_rank()
        device = _device_of(model) if device is None else device
        super().__init__(rank, 0, self.MODE, clock_for(device))
        self.model, self.group, self.out = model, group, os.fspath(out)
        self.wanted, self.warmup, self.sizes = iterations, warmup, sizes
        self.folders = []
        self._tp, self._device, self._digits = tp, device, digits
        self._layout = _layout_of_members(self.world, rank, tp, sorted(members_of(group, self.world))) if group is not None else None
        self._reducers = ReducerWatch(model)
        self._iteration, self._spare, self._kept, self._seen = None, None, [], 0
        self._depth, self._kind, self._begun, self._unseen = 0, None, None, 0
        self._undo = contextlib.ExitStack()
        self._closed = False
        self._start()

    # State that hooks write.

    @property
    def open_operation(self):
        return OPERATIONS.get(self._kind, "the loop") if self._iteration is not None else None

    def start_call(self, source, tensor=None, comm=None, group=None, func_name=None, is_async=False):
        if self._iteration is None or self.inside.deep:
            return None
        return self._begin_call(self._iteration.calls, None, source, tensor, comm, group, func_name, is_async)

    def _drop(self, call: Call):
        self.raised += 1
        if self._iteration is not None and call in self._iteration.calls:
            self._iteration.calls.remove(call)

    def say(self, text: str):
        if self.rank == 0:
            super().say(text)
        elif text not in self.warnings:
            self.warnings.append(text)

    # The loop.

    def _start(self):
        self._patches = Patches()
        self._hooks = CommunicationHooks(self, Layout(self.world))
        self.namers.clear()  # an operation is known when its iteration is
        try:
            self._undo.enter_context(self._hooks)
            self._undo.callback(self._patches.restore)
            kind = type(self.model)
            self._patches.replace(kind, "__call__", self._around_model(kind.__call__))
            self._patches.replace(torch.autograd, "backward", self._around(BACKWARD, torch.autograd.backward))
            for owner in _optimizer_classes():
                self._patches.replace(owner, "step", self._around(STEP, owner.step))
            self._patches.spread()
            for one in _optimizers_with_a_step_of_their_own():
                self._patches.replace(one, "step", self._around(STEP, one.step))
            self._reducers.start()
            self._undo.callback(self._reducers.stop)
        except BaseException:
            self._undo.close()
            raise
        self._begin_iteration()
        atexit.register(self.close)

    def _around_model(self, original):
        @functools.wraps(original)
        def call(module, *args, **kwargs):
            if _tracing() or not self._is_trained(module) or not torch.is_grad_enabled():
                return original(module, *args, **kwargs)
            with self._entered(FORWARD):
                return original(module, *args, **kwargs)

        return call

    def _is_trained(self, module) -> bool:
        return module is self.model

    def _around(self, kind: str, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if _tracing():
                return original(*args, **kwargs)
            with self._entered(kind):
                return original(*args, **kwargs)

        return call

    def optimizer_step(self):
        """A `with` block around the step of an optimizer that is not of torch.optim."""
        return self._entered(STEP)

    @contextlib.contextmanager
    def _entered(self, kind: str):
        """A call of the model, of backward or of an optimizer, whatever becomes of it."""
        self._careful(self._enter, kind)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._careful(self._leave, kind, failed)

    def _careful(self, act, *arguments):
        """A mistake of ours ends the recording and not the training."""
        try:
            act(*arguments)
        except Exception as error:
            self._closed, self._iteration = True, None
            self._undo.close()
            self.say("nothing is recorded: %r" % error)

    def _enter(self, kind: str):
        self._depth += 1
        if self._depth > 1 or self._iteration is None:
            return
        started = time.perf_counter_ns()
        if kind != STEP and self._iteration.spans and self._iteration.spans[-1].kind == STEP and self._iteration.whole():
            self._end_iteration()
        if self._iteration is not None:
            self._unseen = self._hooks.unseen.take()
            self._kind, self._begun = kind, self.clock.mark()
        self._own_ns += time.perf_counter_ns() - started

    def _leave(self, kind: str, failed: bool):
        self._depth -= 1
        if self._depth > 0 or self._iteration is None or self._kind is None:
            return
        end, started = self.clock.mark(), time.perf_counter_ns()
        self._kind, iteration = None, self._iteration
        unseen = self._hooks.unseen.take()
        if not failed:
            if kind == BACKWARD:
                unseen -= self._note_reductions(unseen, end)
            iteration.spans.append(Span(kind, self._begun, end, self._own_ns + time.perf_counter_ns() - started, unseen,
                                        self._unseen))
        self._own_ns += time.perf_counter_ns() - started

    def _note_reductions(self, unseen: int, end) -> int:
        """Notes the reductions of DistributedDataParallel in the ending backward; returns how many collectives they explain.
        Reductions of its communication hook are known as calls, for which Python does not wait."""
        iteration = self._iteration
        number = len(iteration.spans)
        if unseen and self._reducers.any() and not self.clock.on_host:
            iteration.reduced.append(Reduced(number, None, None, None, 0, "", 0, "ddp_log"))  # read when the device is idle
            return unseen
        logged = self._reducers.take() if self.clock.on_host else []
        if unseen and logged:
            iteration.reduced += [Reduced(number, one.launch, one.end, one.computed, one.elements, one.dtype, one.parameters,
                                          "ddp_log") for one in logged]
            return unseen
        hooked = [call for call in iteration.calls if call.in_flight and call.sub.comm_func == "allreduce" and call.facts]
        for call in hooked if self._reducers.any() else ():
            iteration.calls.remove(call)
            call.in_flight = False
            # Backward has waited for it at the latest.
            iteration.reduced.append(Reduced(number, call.begin, call.end or end, None, elements_of(call.facts[0]),
                                             call.facts[1], 1, "backward_end"))
        return 0

    def _read_reductions(self, iteration: Iteration):
        """The times of reductions on a device: as long as the last one, up to the end of its backward."""
        open_ = [one for one in iteration.reduced if one.launch is None]
        if not open_:
            return
        iteration.reduced = [one for one in iteration.reduced if one.launch is not None]
        for logged in self._reducers.take():
            iteration.reduced += [Reduced(one.span, iteration.spans[one.span].end - logged.comm_ms,
                                          iteration.spans[one.span].end, None, logged.elements, logged.dtype,
                                          logged.parameters, "ddp_log") for one in open_]

    def _begin_iteration(self):
        self._iteration = Iteration(self.clock.begin(), self._own_ns)
        self._hooks.unseen.take()

    def _end_iteration(self):
        """Keeps the iteration that is over, and ends the recording with the last one that is wanted."""
        iteration, self._iteration = self._iteration, None
        mark, host_ms = self.clock.end(iteration.begin)
        where = functools.partial(self._host_ms, mark, host_ms)
        for call in iteration.calls:
            call.written = True
            if call.in_flight and call.end is None:
                call.is_async = True
        iteration.resolve(where)
        self._read_reductions(iteration)
        self._seen += 1
        if self._seen > self.warmup:
            self._kept.append(iteration)
        else:
            self._spare = iteration  # all there is, should the loop end before the next one
        if len(self._kept) >= self.wanted:
            self.close()
        elif not self._closed:
            self._begin_iteration()

    def _host_ms(self, mark, host_ms: float, at) -> float:
        return host_ms - self.clock.between(at, mark)

    def close(self):
        """Writes the iterations that are whole and puts everything back as it was."""
        if self._closed:
            return
        self._closed = True
        current = self._iteration
        if current is not None and current.whole() and current.spans[-1].kind == STEP and self._depth == 0:
            self._end_iteration()
        self._iteration = None
        self._undo.close()
        atexit.unregister(self.close)
        if not self._kept and self._spare is not None:
            self.say("found %d iterations, expected more than the %d of warm-up (warmup=%d): the last one is recorded" % (
                self._seen, self.warmup, self.warmup))
            self._kept = [self._spare]
        if not self._kept:
            kinds = [span.kind for span in current.spans] if current is not None else []
            self.say("nothing is recorded: found %d calls of the model, %d of backward and %d of an optimizer's step in the "
                     "last iteration, expected each (for a step that is not torch.optim's: with "
                     "recording.optimizer_step())" % tuple(kinds.count(kind) for kind in (FORWARD, BACKWARD, STEP)))
            return
        try:  # the training goes on: what failed is its recording
            self._write()
        except (OSError, ValueError) as error:
            self.say("nothing is recorded: %s" % error)
        self._kept, self._spare = [], None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    # Output.

    def _write(self):
        layout = self._layout = self._layout or _found_layout(self.world, self.rank, self._tp, self._kept)
        names = GroupNames(layout)
        if self.group is not None and layout.ep > 1:
            names.prefer(self.group, "exp")
        self._hooks.names, self._hooks.layout = names, layout
        sizes = dict(self.sizes)
        if sizes.get("hidden") is None:
            sizes["hidden"] = _hidden_of(self._kept, names)
        folder = os.path.join(self.out, folder_name(layout, *(sizes.get(name) for name in SIZES[:4])))
        name = file_name(layout, sizes.get("experts"), sizes.get("layers"), sizes.get("micro_batch"), self.rank)
        header = header_of(self.mode, self.rank, self.clock, self._device, self._digits, self._about())
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        places = [os.path.join(folder, self.mode + (str(number) if number else "")) for number in range(len(self._kept))]
        for old in glob.glob(os.path.join(glob.escape(folder), self.mode + "*", glob.escape(name))):
            os.remove(old)  # of an earlier run of the same rank of the same job
            if os.path.dirname(old) not in places:
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(old))  # by the last of the ranks
        for number, (iteration, place) in enumerate(zip(self._kept, places)):
            cutter = Cutter(iteration, lambda call: names.label(call.group, "allreduce"), trained,
                            layout.ep > 1 and layout.edp == 1)
            ops = self._operations(cutter)
            self.late += cutter.late
            for op in ops:
                self._hooks.name_calls(op.name, op.calls)
            os.makedirs(place, exist_ok=True)
            lines = lines_of(ops, self.rank, self._digits, layout.dp, iteration.own_ns, number, self._stage())
            write_whole(os.path.join(place, name), text_of(header, lines))
            self.folders.append(place)
            for op in ops:
                if op.unseen:
                    self.say("torch launches collectives in %s itself, which are not in the recording (functional "
                             "collectives, compiled functions, broadcasts of a module's buffers); descriptions count "
                             "them" % op.name)
        for line in self.summary():
            self.say(line)
        self._written()

    def _about(self):
        return ["recorded: a real run"]

    def _operations(self, cutter):
        return cutter.cut()

    def _stage(self):
        return None

    def _written(self):
        if self.rank == 0:
            print("moesim-capture: recorded %d iterations of %d ranks; next: moesim replay %s --cluster NAME" % (
                len(self._kept), self.world, self.folders[0]), file=sys.stderr, flush=True)


def record(model, group=None, out="moesim-recording", iterations: int = 3, warmup: int = 2, tp: int = 1, device=None,
           digits: int = 3, **sizes) -> Recording:
    """Records the training loop that follows: as a `with` block around it, or as a call before it. Call it on every rank.

    model: the module that the loop calls (the outermost one: DistributedDataParallel's, not what it wraps).
    group: the process group of expert parallelism; without one, the group on which tokens were exchanged.
    out: the folder for the recording; an earlier one of the same job there is replaced.
    iterations, warmup: how many are recorded, one folder each, and how many before them are not.
    tp: tensor-parallel size. Pipeline stages are not for this function: use Recorder and operation().
    device: whose clock counts; default: that of the model's parameters.
    sizes: experts, layers, hidden, seq, micro_batch, as far as names of folders shall carry them.
    Raises ValueError, with one line and before anything is changed, for what cannot be recorded.
    """
    unknown = sorted(set(sizes) - set(SIZES))
    if unknown:
        raise ValueError("found the size %s, expected %s" % (unknown[0], ", ".join(SIZES)))
    for name, value, least in [("iterations", iterations, 1), ("warmup", warmup, 0), ("tp", tp, 1)] + [
            (name, value, 1) for name, value in sizes.items() if value is not None]:
        if not isinstance(value, int) or value < least:
            raise ValueError("found %s %r, expected a number of at least %d" % (name, value, least))
    if not isinstance(model, torch.nn.Module):
        raise ValueError("found a model of type %s, expected the torch.nn.Module that the loop calls" % type(
            model).__name__)
    return Recording(model, group, out, iterations, warmup, tp, sizes, device, digits)


def _world_and_rank():
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    world = os.environ.get("WORLD_SIZE", "1")
    if world != "1":
        raise ValueError("found WORLD_SIZE %s and no process group, expected torch.distributed.init_process_group before "
                         "record()" % world)
    return 1, 0


def _device_of(model):
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _layout_of_members(world: int, rank: int, tp: int, members) -> Layout:
    """The layout in which these are the expert-parallel group of this rank."""
    layout = Layout(world, tp, len(members))
    expected = layout.group("exp", rank)
    if members != expected:
        raise ValueError("found expert-parallel ranks %s beside rank %d, expected %s: ranks count tensor-parallel first, then "
                         "expert-parallel, then data-parallel (tp=%d)" % (members, rank, expected, tp))
    return layout


def _found_layout(world: int, rank: int, tp: int, iterations) -> Layout:
    """The layout whose expert-parallel group is the one on which tokens were exchanged."""
    found = {}
    for iteration in iterations:
        gathered = set()
        for call in iteration.calls:
            if call.group is None or call.facts is None:
                continue
            shape, dtype = call.facts
            tokens = len(shape) > 1 and not is_counts(len(shape), dtype)
            members = tuple(sorted(members_of(call.group, world)))
            if call.sub.comm_func == "all_to_all" and tokens:
                found[members] = True
            # Gathered rows that come back reduced are a MoE layer's, too.
            if call.sub.comm_func == "allgather" and tokens:
                gathered.add((members, shape[0] * len(members)))
            if call.sub.comm_func in ("allreduce", "reduce_scatter") and tokens and (members, shape[0]) in gathered:
                found[members] = True
    if len(found) > 1:
        raise ValueError("found tokens exchanged on %d groups, expected record(group=...) to say which is the experts'" % len(
            found))
    return _layout_of_members(world, rank, tp, list(next(iter(found)))) if found else Layout(world, tp)


def _hidden_of(iterations, names: GroupNames):
    """The row length of what is exchanged between the experts' ranks: scores have shorter rows than tokens."""
    return max((call.facts[0][1] for iteration in iterations for call in iteration.calls
                if call.facts and call.sub.comm_func in ("all_to_all", "allgather") and len(call.facts[0]) == 2 and
                "float" in call.facts[1] and "exp" in names.fitting(call.group)), default=None)


def _tracing() -> bool:
    """Whether torch.compile or torch.jit traces this, where torch has them: nothing of ours may be traced."""
    compiler = getattr(torch, "compiler", None)
    if compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling():
        return True
    return torch._C._get_tracing_state() is not None


def _optimizer_classes():
    """Every optimizer class that has a step() of its own."""
    return [one for one in kinds_of(torch.optim.Optimizer)[1:] if "step" in vars(one)]


def _optimizers_with_a_step_of_their_own():
    """Optimizers whose step a learning rate scheduler has wrapped, which holds the method of before."""
    # By type(): isinstance asks objects for their __class__, which some proxies answer with a warning.
    return [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer) and "step" in vars(one)]

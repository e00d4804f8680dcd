"""From what was noted of one training iteration to the operations of a recording. Needs no torch.

Spans are calls of the model, of backward and of optimizers. They and what lies between them become operations without gaps:

    what comes before a forward       get_batch
    forward, again without backward   forward_step
    what comes before a backward      loss_func
    backward, one after the other     backward_step
    reductions of gradients           dp_allreduce, exp_dp_allreduce
    the rest up to the last step      optimizer_step
"""
import math
from typing import List, NamedTuple, Optional

from .cmd_format import Operation, format_line, ms, reduction
from .recorder import Call, comment_lines, described, joined_facts, new_uid, subs_of

FORWARD, BACKWARD, STEP = "forward", "backward", "step"
OPERATIONS = {FORWARD: "forward_step", BACKWARD: "backward_step", STEP: "optimizer_step"}
# Least size of the reductions between backward and the optimizer, as a share of the trained parameters, to count as those
# of the gradients; smaller ones are a norm or a flag.
GRADIENTS = 0.01
REDUCTIONS = ("allreduce", "reduce_scatter")
TRANSFERRED = ("send", "recv", "batch_isend_irecv")  # calls between stages


class Span(NamedTuple):
    kind: str
    begin: float  # host milliseconds, as all times here; marks of the clock before `resolved`
    end: float
    own_ns: int = 0  # that recording had taken at its end
    unseen: int = 0  # collectives that C++ launched in it
    unseen_before: int = 0  # and between the span before and this one


class Reduced(NamedTuple):
    """Gradients that torch itself reduced beside a backward, as one transfer."""

    span: int  # which span it ran in
    launch: Optional[float]  # None until the device was asked
    end: Optional[float]
    computed: Optional[float]  # when backward itself was done, where torch says so
    elements: int
    dtype: str
    parameters: int
    source: str


class Iteration:
    def __init__(self, begin, own_ns: int = 0):
        self.begin, self.own_ns = begin, own_ns
        self.spans: List[Span] = []
        self.calls: List[Call] = []
        self.reduced: List[Reduced] = []

    def whole(self) -> bool:
        return {span.kind for span in self.spans} == {FORWARD, BACKWARD, STEP}

    def resolve(self, where):
        """Turns marks into host milliseconds."""
        self.spans = [span._replace(begin=where(span.begin), end=where(span.end)) for span in self.spans]
        for call in self.calls:
            call.begin, call.end = where(call.begin), None if call.end is None else where(call.end)
            call.wait_begin = None if call.wait_begin is None else where(call.wait_begin)
        # Times logged by torch are host milliseconds already, or are read later.
        self.reduced = [one if one.source == "ddp_log" else one._replace(launch=where(one.launch), end=where(one.end))
                        for one in self.reduced]
        self.begin = where(self.begin)


class Op:
    """An operation in the making."""

    def __init__(self, name: str, begin: float, end: float, group: str = "None"):
        self.name, self.begin, self.end, self.group = name, begin, end, group
        self.calls, self.tensor, self.buckets, self.notes = [], None, [], []
        self.semantics, self.own_ns, self.unseen = "None", 0, 0
        self.uid = new_uid()


def elements_of(shape) -> int:
    return math.prod(shape or ())


class Cutter:
    """Cuts one iteration. `label_of(call)` is the label of a reduction's group; `trained` counts the model's trained
    parameters, of which `experts_alone` says that the unreduced ones are the experts'."""

    def __init__(self, iteration: Iteration, label_of, trained: int, experts_alone: bool):
        self.iteration, self.label_of = iteration, label_of
        self.trained, self.experts_alone = trained, experts_alone
        self.ops: List[Op] = []

    def cut(self) -> List[Op]:
        reached, before = self.iteration.begin, None
        for span, reductions in self._runs():
            if (before, span.kind) == (BACKWARD, STEP):
                self.ops += self._gradient_reductions(reached, span.begin)
                op = Op(OPERATIONS[STEP], self.ops[-1].end, span.end)  # with norms, clipping and the like
            else:
                self.ops.append(Op("loss_func" if before == FORWARD else "get_batch", reached, span.begin))
                op = Op(OPERATIONS[span.kind], span.begin, span.end)
            self.ops[-1].unseen += span.unseen_before
            op.own_ns, op.unseen = span.own_ns, span.unseen
            self.ops.append(op)
            for one in reductions:
                self._reduced_beside(op, one)
            reached, before = span.end, span.kind
        self._share_calls()
        self._add_experts()
        return self.ops

    def one_microbatch(self, last_stage: bool) -> List[Op]:
        """The operations of one microbatch, of those that took the median time, without what waits for other stages. All
        gradients that are reduced follow it, as transfers."""
        spans, calls = self.iteration.spans, self.iteration.calls
        pairs = list(zip(*([i for i, span in enumerate(spans) if span.kind == kind] for kind in (FORWARD, BACKWARD))))

        def took(pair):
            return sum(spans[i].end - spans[i].begin for i in pair)

        forward, backward = sorted(pairs, key=took)[len(pairs) // 2]
        moved = [call for call in calls if call.sub.source in TRANSFERRED]
        at, last = spans[forward], max(i for i, span in enumerate(spans) if span.kind == BACKWARD)
        reached = max([self.iteration.begin] + [one.end for one in spans + moved if one.end and one.end <= at.begin])
        ops = [Op("get_batch", reached, at.begin), Op(OPERATIONS[FORWARD], at.begin, at.end)]
        if last_stage:
            ops.append(Op("loss_func", at.end, min(one.begin for one in spans + moved if one.begin >= at.end)))
        ops.append(Op(OPERATIONS[BACKWARD], spans[backward].begin, spans[backward].end))
        own = self.iteration.own_ns
        for op, index in ((ops[1], forward), (ops[-1], backward)):
            own += spans[index].own_ns - (spans[index - 1].own_ns if index else self.iteration.own_ns)
            op.own_ns = own
        # Flat gradients, also those that are reduced while backward goes on.
        flat = [call for call in calls if spans[last].begin <= call.begin < spans[last].end and call.facts is not None and
                len(call.facts[0]) == 1 and call.sub.comm_func in REDUCTIONS and self.label_of(call) in ("dp", "exp_dp")]
        calls[:] = [call for call in calls if call not in flat]
        self.ops = ops
        self._share_calls()
        reached = spans[last].end
        own_reduced = joined_facts([((one.elements,), one.dtype) for one in self.iteration.reduced if one.span == last])
        if own_reduced is not None:
            ops.append(Op("dp_allreduce", reached, reached, "dp"))
            ops[-1].tensor = own_reduced
        steps = [span for span in spans if span.kind == STEP]
        for op in self._gradient_reductions(reached, steps[0].begin, flat):
            ops.append(op)
            reached = op.end
        ops.append(Op(OPERATIONS[STEP], reached, steps[-1].end))
        ops[-1].calls = [call for call in calls if reached <= call.begin < ops[-1].end]
        self._add_experts()
        return ops

    def _runs(self):
        """Spans of one kind that follow each other are one: several losses, several optimizers."""
        runs = []
        for number, span in enumerate(self.iteration.spans):
            reductions = [one for one in self.iteration.reduced if one.span == number]
            if runs and runs[-1][0].kind == span.kind:
                last, others = runs[-1]
                span = span._replace(begin=last.begin, unseen=last.unseen + span.unseen_before + span.unseen,
                                     unseen_before=last.unseen_before)
                runs[-1] = (span, others + reductions)
            else:
                runs.append((span, reductions))
        return runs

    def _gradient_reductions(self, begin: float, end: float, before=()):
        """Reductions between `begin` and `end`, and those of `before`."""
        calls = list(before)
        calls += [call for call in self.iteration.calls if begin <= call.begin < end and call.facts is not None
                 and call.sub.comm_func in REDUCTIONS and call.end is not None]
        while calls and elements_of(calls[-1].facts[0]) == 1:
            calls.pop()  # a norm
        moved = sum(elements_of(call.facts[0]) for call in calls)
        if moved < GRADIENTS * max(1, self.trained):
            return []
        runs = []
        for call in calls:
            name = "exp_dp" if self.label_of(call) == "exp_dp" else "dp"
            if not runs or runs[-1][0] != name:
                runs.append((name, []))
            runs[-1][1].append(call)
        ops = []
        for name, some in runs:
            op = Op(name + "_allreduce", begin, max([begin] + [call.end or begin for call in some]), name)
            op.tensor = joined_facts([call.facts for call in some])
            ops.append(op)
            begin = op.end
        return ops

    def _reduced_beside(self, op: Op, one: Reduced):
        """A reduction that ran beside backward: a bucket of it, and the wait for it after it."""
        wait = self.ops[-1] if self.ops[-1].semantics == "wait_flush_only" else None
        end = op.end if wait is None else wait.end
        launch = max(op.begin, min(one.launch, end))
        op.buckets.append((launch, max(launch, min(one.end, end)), one))
        if wait is None:
            computed = one.computed if one.computed is not None and launch <= one.computed <= end else end
            wait = Op("dp_allreduce", computed, end, "dp")
            wait.semantics, wait.tensor = "wait_flush_only", ((0,), one.dtype)
            op.end = computed
            self.ops.append(wait)
        wait.tensor = joined_facts([wait.tensor, ((one.elements,), one.dtype)])

    def _share_calls(self):
        late = []
        for op in self.ops:
            op.calls = [call for call in self.iteration.calls if op.begin <= call.begin < op.end]
            for call in op.calls:
                if call.wait_begin is not None and call.wait_begin >= op.end:
                    late.append(call)
        for call in late:
            op = next((op for op in self.ops if op.begin <= call.wait_begin < op.end), None)
            if op is not None:
                op.calls.append(wait_for(call))
        for op in self.ops:
            if op.name.endswith("allreduce"):  # the operation is the transfer
                op.calls = [call for call in op.calls if call.sub.comm_func is None]
        self.late = len(late)

    def _add_experts(self):
        """Adds a line with the number of experts' gradients, which are not reduced in a model with expert parallelism."""
        last = next((op for op in reversed(self.ops) if op.name == "dp_allreduce"), None)
        if last is None or not self.experts_alone or any(op.name == "exp_dp_allreduce" for op in self.ops):
            return
        left = self.trained - elements_of(last.tensor[0])
        if left > 0:
            op = Op("exp_dp_allreduce", last.end, last.end, "exp_dp")
            op.tensor = ((left,), last.tensor[1])
            op.notes.append("a group of one")
            self.ops.insert(self.ops.index(last) + 1, op)


def wait_for(call: Call) -> Call:
    """The wait for a call that another operation launched, as a call of its own."""
    wait = call.recorder._new_call(None, "wait", None, None, None, call.sub.source, False)
    wait.begin, wait.end = call.wait_begin, call.end
    return wait


def lines_of(ops: List[Op], rank: int, digits: int, members: int, own_ns: int, number: int = 0, stage: Optional[int] = None):
    """The lines of an iteration, in order. `members`: ranks of data parallelism; `own_ns`: that recording had taken when
    the iteration began; `stage`: of one microbatch that a rank played alone."""
    lines, batches = [], {}
    for op in ops:
        batch = batches.get(op.name, 0)
        batches[op.name] = batch + 1
        for index, (launch, done, one) in enumerate(op.buckets):
            lines.append(reduction(
                rank, launch, done, one.source, digits, iter=number, stage_id=0, mg_state="steady", bucket_id=index, bucket_offset=0,
                bucket_numel=one.elements, bucket_numel_unpadded=one.elements, param_count=one.parameters, trigger_cmd_uid=op.uid,
                trigger_op=op.name, trigger_batch_id=batch, grad_dtype=one.dtype, data_parallel_world_size=members))
        taken, own_ns = max(0, op.own_ns - own_ns), max(own_ns, op.own_ns)
        if op.unseen:
            op.notes.append("%d calls not seen" % op.unseen)
        last = op.name.endswith("allreduce") or op.name == OPERATIONS[STEP]
        state = "finalize" if last else "steady" if stage is None else "None"
        shape, dtype = (None, "None") if op.tensor is None else op.tensor
        line = Operation(rank, op.name, stage or 0, batch, state, ms(op.end - op.begin, digits),
                         described("; ".join(["run" if stage is None else "simulation"] + op.notes), taken / 1e6), op.group, shape, dtype,
                         ms(op.end, digits), subs=subs_of(op.calls, lambda at: at, op.end, 2, digits))
        line.cmd_uid, line.op_semantics = op.uid, op.semantics
        lines.append(line)
    return lines


def text_of(header, lines) -> str:
    return comment_lines(header) + "".join(format_line(line) + "\n" for line in lines)

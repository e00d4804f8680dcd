"""Conversion of one iteration to operations; needs no torch."""
import unittest

from moesim_capture.clocks import HostClock
from moesim_capture.iteration import BACKWARD, FORWARD, STEP, Cutter, Iteration, Reduced, Span, lines_of
from moesim_capture.recorder import Call, CallLog
from moesim_capture.cmd_format import GradientBucket, SubOperation

LOG = CallLog(0, 0, "realistic", HostClock())


def call(begin, end, comm="all_to_all", shape=(4, 8), wait_begin=None, is_async=False):
    made = Call(LOG, None, SubOperation("f", "0", "0", group="exp", comm_func=comm), begin, is_async)
    made.end, made.wait_begin, made.facts = end, wait_begin, (shape, "torch.float32")
    return made


def cut(spans, calls=(), reduced=(), label="dp", trained=100, experts_alone=False):
    iteration = Iteration(0.0)
    iteration.spans, iteration.calls, iteration.reduced = list(spans), list(calls), list(reduced)
    cutter = Cutter(iteration, lambda one: label if isinstance(label, str) else label[one.begin], trained, experts_alone)
    return cutter.cut(), cutter


def shown(ops):
    return [(op.name, op.begin, op.end) for op in ops]


PLAIN = [Span(FORWARD, 1, 4), Span(BACKWARD, 5, 9), Span(STEP, 10, 12)]


class Cutting(unittest.TestCase):
    def test_one_microbatch(self):
        ops, _ = cut(PLAIN)
        self.assertEqual(shown(ops), [("get_batch", 0, 1), ("forward_step", 1, 4), ("loss_func", 4, 5), ("backward_step", 5, 9),
                                      ("optimizer_step", 9, 12)])

    def test_spans_of_a_kind_that_follow_each_other_are_one(self):
        ops, _ = cut([Span(FORWARD, 1, 2), Span(FORWARD, 3, 4, 0, 1, 2), Span(BACKWARD, 5, 6), Span(BACKWARD, 7, 8),
                      Span(STEP, 9, 10), Span(STEP, 11, 12)])
        self.assertEqual(shown(ops), [("get_batch", 0, 1), ("forward_step", 1, 4), ("loss_func", 4, 5), ("backward_step", 5, 8),
                                      ("optimizer_step", 8, 12)])
        self.assertEqual(ops[1].unseen, 3)  # of both, and between them

    def test_microbatches_count_up(self):
        ops, _ = cut([Span(FORWARD, 1, 2), Span(BACKWARD, 2, 3), Span(FORWARD, 4, 5), Span(BACKWARD, 5, 6), Span(STEP, 7, 8)])
        lines = lines_of(ops, 0, 2, 1, 0)
        self.assertEqual([(line.name, line.batch_id) for line in lines if line.name == "forward_step"],
                         [("forward_step", 0), ("forward_step", 1)])
        self.assertEqual([line.name for line in lines][4], "get_batch")  # between the microbatches

    def test_every_call_stands_where_it_began(self):
        ops, _ = cut(PLAIN, [call(0.5, 0.6), call(1, 2), call(4.5, 4.7, "allreduce", (1,)), call(9.5, 9.9, "allreduce", (1,))])
        self.assertEqual([(op.name, len(op.calls)) for op in ops], [("get_batch", 1), ("forward_step", 1), ("loss_func", 1),
                                                                   ("backward_step", 0), ("optimizer_step", 1)])

    def test_reductions_of_gradients_by_group(self):
        labels = {9.1: "dp", 9.2: "dp", 9.3: "exp_dp", 9.8: "dp"}
        calls = [call(9.1, 9.15, "allreduce", (50,)), call(9.2, 9.25, "allreduce", (5, 4)),
                 call(9.3, 9.5, "allreduce", (30,)), call(9.8, 9.9, "allreduce", (1,))]
        ops, _ = cut(PLAIN, calls, label=labels)
        self.assertEqual(shown(ops)[4:], [("dp_allreduce", 9, 9.25), ("exp_dp_allreduce", 9.25, 9.5),
                                          ("optimizer_step", 9.5, 12)])
        self.assertEqual([op.tensor for op in ops[4:]], [((70,), "torch.float32"), ((30,), "torch.float32"), None])
        self.assertEqual([len(op.calls) for op in ops[4:]], [0, 0, 1])  # the norm is the optimizer's
        # Next to nothing of the parameters is no gradient.
        ops, _ = cut(PLAIN, calls, label=labels, trained=100000)
        self.assertEqual([op.name for op in ops[4:]], ["optimizer_step"])

    def test_what_nobody_reduces_are_the_experts(self):
        calls = [call(9.1, 9.2, "allreduce", (60,))]
        for alone, expected in ((True, [("dp_allreduce", (60,)), ("exp_dp_allreduce", (40,))]), (False, [("dp_allreduce", (60,))])):
            ops, _ = cut(PLAIN, calls, experts_alone=alone)
            self.assertEqual([(op.name, op.tensor[0]) for op in ops[4:-1]], expected)

    def test_reductions_beside_backward(self):
        reduced = [Reduced(1, 6.0, 8.5, 8.0, 60, "torch.float32", 3, "ddp_log"),
                   Reduced(1, 6.5, 20.0, None, 20, "torch.float32", 1, "ddp_log")]
        ops, _ = cut(PLAIN, [call(6, 7)], reduced)
        self.assertEqual(shown(ops)[3:], [("backward_step", 5, 8.0), ("dp_allreduce", 8.0, 9), ("optimizer_step", 9, 12)])
        self.assertEqual((ops[4].semantics, ops[4].tensor), ("wait_flush_only", ((80,), "torch.float32")))
        lines = lines_of(ops, 3, 2, 8, 0)
        buckets = [line for line in lines if isinstance(line, GradientBucket)]
        backward = next(line for line in lines if line.name == "backward_step")
        self.assertEqual([(b.values["bucket_numel"], b.values["duration"]) for b in buckets], [(60, "2.5"), (20, "2.5")])
        self.assertEqual({b.values["trigger_cmd_uid"] for b in buckets}, {backward.cmd_uid})
        self.assertLess(lines.index(buckets[0]), lines.index(backward))
        self.assertEqual({b.values["data_parallel_world_size"] for b in buckets}, {8})

    def test_waited_for_in_a_later_operation(self):
        ops, cutter = cut(PLAIN, [call(2, 6, wait_begin=5.5, is_async=True)])
        self.assertEqual(cutter.late, 1)
        lines = lines_of(ops, 0, 2, 1, 0)
        self.assertEqual([(sub.source, sub.comm_func, sub.duration) for sub in lines[1].subs], [("f_async", "all_to_all", "2.0")])
        self.assertEqual([(sub.source, sub.comm_func, sub.duration) for sub in lines[3].subs], [("wait", None, "0.5")])

    def test_a_launched_call_that_nobody_waits_for_ends_with_its_operation(self):
        ops, _ = cut(PLAIN, [call(2, None)])
        sub, = lines_of(ops, 0, 2, 1, 0)[1].subs
        self.assertEqual((sub.source, sub.duration), ("f_async", "2.0"))

    def test_descriptions_say_what_was_not_seen(self):
        ops, _ = cut([Span(FORWARD, 1, 4, 2000000, 2, 1), Span(BACKWARD, 5, 9), Span(STEP, 10, 12)])
        lines = lines_of(ops, 0, 2, 1, 0)
        self.assertEqual([line.description.rpartition(";")[0] for line in lines[:3]],
                         ["run; 1 calls not seen", "run; 2 calls not seen", "run"])
        self.assertTrue(lines[1].description.endswith("recording took 2.000 ms"))

    def test_only_whole_iterations_count(self):
        iteration = Iteration(0)
        for span in PLAIN:
            self.assertFalse(iteration.whole())
            iteration.spans.append(span)
        self.assertTrue(iteration.whole())

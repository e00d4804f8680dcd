"""Constants out of scaling recordings, on files whose answer is known. Needs no torch."""
import json
import pathlib

from moesim_capture.__main__ import main
from support import ScratchTest


def line(rank, name, start, duration, subs="", shape="None", dtype="None"):
    return ("rank:%d:%s(stage_id=0,batch_id=0,mg_state=None,duration=%.2f,description=simulation,group_kind=None,"
            "cmd_uid=cmd-0,op_semantics=None,finalize_base_duration_ms=None,input__shape=%s,input__dtype=%s,timestamp=%.2f,"
            "sub_operations=[%s])\n" % (rank, name, duration, shape, dtype, start + duration, subs))


def exchange(start, duration):
    return ("'trace_src_func=_profiled_all_to_all_single,duration=%.2f,timestamp=%.2f,input__shape=[8, 4],"
            "input__dtype=torch.float32,group=exp,comm_func=all_to_all'" % (duration, start))


def counts(start):
    return ("'trace_src_func=all_to_all_single,duration=0.0,timestamp=%.2f,input__shape=[8],input__dtype=torch.int64,group=exp,"
            "comm_func=all_to_all'" % start)


def recording(rank, slower=1.0, experts=4.0, counted=False):
    """1 ms, exchange, `experts` ms, exchange, 2 ms; everything but the experts `slower`; perhaps with counts exchanged after
    half a ms."""
    a, b = 1.0 * slower, 2.0 * slower
    forward = 100.0
    first = forward + a
    second = first + 0.5 + experts
    end = second + 0.25 + b
    text = line(rank, "get_batch", 99.0, 0.3)
    before = counts(forward + a / 2) + ", " if counted else ""
    text += line(rank, "forward_step", forward, end - forward, before + exchange(first, 0.5) + ", " + exchange(second, 0.25))
    text += line(rank, "loss_func", end + 0.2, 0.1)
    text += line(rank, "backward_step", end + 0.7, 6.0)
    text += line(rank, "dp_allreduce", end + 7.0, 4.0, shape="[10000000]", dtype="torch.float32")
    text += line(rank, "optimizer_step", end + 11.1, 3.0)
    return text.encode()


class Constants(ScratchTest):
    def read(self, *folders):
        out = self.path("constants.json")
        self.assertEqual(main(["constants", *folders, "--out", out]), 0)
        return {name: one["value"] for name, one in json.loads(pathlib.Path(out).read_text())["profiles"]["host"].items()}

    def test_gaps_gradients_and_batches(self):
        self.write("rank0.txt", recording(0))
        values = self.read(self.path("rank0.txt"))
        self.assertAlmostEqual(values["gap_after_forward"], 200, delta=11)
        self.assertAlmostEqual(values["gap_before_backward"], 400, delta=11)
        self.assertAlmostEqual(values["gap_after_backward"], 300, delta=11)
        self.assertAlmostEqual(values["gap_other"], (200 + 300) / 2, delta=60)
        self.assertAlmostEqual(values["gradient_prescale"], 100, delta=0.1)  # 4 ms for 40 MB
        self.assertAlmostEqual(values["batch_loading"], 300, delta=1)
        self.assertEqual(values["forward_jitter"], 0)
        self.assertEqual(values["sustained_forward"], 0)

    def test_jitter_is_what_equal_segments_take_beyond_the_low_twentieth(self):
        # Two samples of each class, s and 3 s: the low twentieth is 1.1 s, the mean 2 s.
        self.write("rank0.txt", recording(0))
        self.write("rank1.txt", recording(1, slower=3.0, experts=9.0))
        values = self.read(self.scratch)
        self.assertAlmostEqual(values["forward_jitter"], 2 / 1.1 - 1, delta=0.02)
        self.assertEqual(values["sustained_forward"], 0)  # ranks have experts of their own

    def test_counts_are_no_exchange(self):
        # Taken for one, what lies between the counts and the dispatch would be the experts', and what those do would not.
        for rank, slower in ((0, 1.0), (1, 3.0)):
            self.write("rank%d.txt" % rank, recording(rank, slower, 4.0, counted=True))
        values = self.read(self.scratch)
        self.assertAlmostEqual(values["forward_jitter"], 2 / 1.1 - 1, delta=0.02)  # of all but the experts, as without counts
        self.assertEqual(values["sustained_forward"], 0)

    def test_bad_folders(self):
        self.write("rank0.txt", recording(0).replace(b"forward_step", b"forward_stop"))
        self.assertEqual(main(["constants", self.scratch, "--out", self.path("x.json")]), 2)
        self.write("rank0.txt", line(0, "optimizer_step", 1, 1).encode())
        self.assertEqual(main(["constants", self.scratch, "--out", self.path("x.json")]), 2)

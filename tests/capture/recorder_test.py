"""The recorder alone: needs no torch."""
import os
import subprocess
import sys
import textwrap
import time
import types
import unittest.mock

from moesim_capture import Recorder, communication, operation
from moesim_capture.__main__ import main
from moesim_capture.clocks import CpuTimeClock
from moesim_capture.cmd_format import read_rank_file
from moesim_capture.layout import Layout, file_name
from support import ScratchTest

TENSOR = ((4, 8), "torch.float32")


class Tensor:
    shape, dtype = (3, 5), "torch.bfloat16"


class Recording(ScratchTest):
    def record(self, name="rank0.txt", **options):
        return Recorder(self.path(name), 0, **options)

    def test_operations_and_calls(self):
        with self.record(mode="scaling") as recorder:
            for _ in range(2):
                with recorder.operation("forward_step", state="steady"):
                    time.sleep(0.002)
                    with recorder.call("gather", TENSOR, "allgather", "exp"):
                        time.sleep(0.003)
                        with recorder.call("inner", TENSOR, "allgather", "exp"):
                            pass
            with recorder.operation("dp_allreduce", group="dp", tensor=((100,), "torch.float32")):
                with recorder.call("all_reduce", TENSOR, "allreduce", "dp"):
                    pass
        lines = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual([(line.name, line.batch_id) for line in lines], [("forward_step", 0), ("forward_step", 1),
                                                                          ("dp_allreduce", 0)])
        self.assertEqual([len(line.subs) for line in lines], [1, 1, 0])  # inner calls are part of outer ones
        forward, sub = lines[0], lines[0].subs[0]
        self.assertEqual((sub.shape, sub.dtype, sub.comm_func, sub.group), ((4, 8), "torch.float32", "allgather", "exp"))
        start = float(forward.timestamp) - float(forward.duration)
        self.assertGreaterEqual(float(sub.timestamp), start + 1.9)  # v2: the start of the call
        self.assertGreaterEqual(float(sub.duration), 2.9)
        self.assertLessEqual(float(sub.timestamp) + float(sub.duration), float(forward.timestamp) + 0.02)
        self.assertTrue(forward.description.startswith("simulation; recording took "))
        self.assertEqual(lines[2].shape, (100,))

    def test_version_1_stamps_the_end(self):
        with self.record(version=1) as recorder:
            with recorder.operation("forward_step"):
                with recorder.call("gather", TENSOR, "allgather", "exp"):
                    time.sleep(0.003)
        line = read_rank_file(self.path("rank0.txt")).lines[0]
        self.assertIsNone(line.cmd_uid)
        self.assertAlmostEqual(float(line.subs[0].timestamp), float(line.timestamp), delta=1.0)
        self.assertGreater(float(line.subs[0].timestamp), float(line.timestamp) - float(line.duration) + 2.9)

    def test_decorator_and_module_functions(self):
        @communication("reduce_scatter", group="exp")
        def my_scatter(tensor):
            return 7

        self.assertEqual(my_scatter(Tensor()), 7)  # without a recorder nothing happens
        with operation("forward_step"):
            pass
        with self.record() as recorder:
            with operation("forward_step"):
                self.assertEqual(my_scatter(tensor=Tensor()), 7)
            my_scatter(Tensor())
            self.assertEqual(recorder.outside, 1)
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual(line.subs[0].source, "my_scatter")
        self.assertEqual(line.subs[0].shape, (3, 5))

    def test_pause_and_failure(self):
        with self.record() as recorder:
            recorder.pause()
            with operation("forward_step"):
                pass
            recorder.resume()
            with self.assertRaises(KeyError):
                with operation("forward_step"):
                    raise KeyError("x")
            with operation("forward_step"):
                pass
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual((line.name, line.batch_id), ("forward_step", 0))

    def test_an_operation_inside_another_is_a_part_of_it_and_said_to_be(self):
        with self.record() as recorder:
            with operation("forward_step"):
                with operation("backward_step"):
                    with recorder.call("gather", TENSOR, "allgather", "exp"):
                        pass
                with recorder.call("gather", TENSOR, "allgather", "exp"):
                    pass
            with operation("backward_step"):
                pass
        lines = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual([(line.name, len(line.subs)) for line in lines], [("forward_step", 2), ("backward_step", 0)])
        self.assertEqual(recorder.nested, {"backward_step": 1})
        self.assertIn("found operation backward_step inside forward_step", recorder.warnings[0])

    def test_a_call_that_raises_did_not_happen(self):
        with self.record() as recorder:
            with operation("forward_step"):
                with self.assertRaises(KeyError):
                    with recorder.call("scatter", TENSOR, "reduce_scatter", "exp"):
                        raise KeyError("x")
                with recorder.call("gather", TENSOR, "allgather", "exp"):
                    time.sleep(0.002)
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual([sub.source for sub in line.subs], ["gather"])
        self.assertIn("1 calls raised", recorder.warnings[0])

    def test_a_reduction_has_the_size_of_all_its_tensors(self):
        cases = [([((100,), "torch.float32")], (100,), "torch.float32"),
                 ([((3, 5), "torch.float32"), ((7,), "torch.float32")], (22,), "torch.float32"),
                 # Bytes in elements of the type that has most of them, rounded up.
                 ([((100,), "torch.float32"), ((51,), "torch.bfloat16")], (126,), "torch.float32")]
        with self.record() as recorder:
            for parts, _, _ in cases:
                with operation("dp_allreduce", group="dp"):
                    for part in parts:
                        with recorder.call("all_reduce", part, "allreduce", "dp"):
                            pass
                with operation("dp_allreduce", group="dp", tensor=parts):
                    pass
        lines = read_rank_file(self.path("rank0.txt")).lines
        expected = [(shape, dtype) for _, shape, dtype in cases for _ in range(2)]
        self.assertEqual([(line.shape, line.dtype) for line in lines], expected)

    def test_header_says_what_recording_costs(self):
        with self.record(about=["command: python3 train.py\nnot a second line"]) as recorder:
            with recorder.operation("forward_step"):
                pass
        header = read_rank_file(self.path("rank0.txt")).header
        self.assertTrue(any("us per operation and" in row for row in header), header)
        self.assertRegex(header[1], "^ device: cpu, .")
        self.assertIn(" command: python3 train.py not a second line", header)
        self.assertEqual(main(["overhead", self.path("rank0.txt")]), 0)

    def test_bad_arguments(self):
        for options in ({"mode": "real"}, {"version": 3}):
            with self.assertRaises(ValueError):
                self.record(**options)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_a_crash_leaves_every_finished_line(self):
        script = textwrap.dedent("""
            import os, signal, sys
            from moesim_capture import Recorder
            with Recorder(sys.argv[1], 0) as recorder:
                for i in range(5):
                    with recorder.operation("forward_step"):
                        if i == 3:
                            os.kill(os.getpid(), signal.SIGKILL)
            """)
        path = self.path("rank0.txt")
        done = subprocess.run([sys.executable, "-c", script, path])
        self.assertEqual(done.returncode, -9)
        self.assertEqual(len(read_rank_file(path).lines), 3)
        self.assertEqual(self.moesim("trace", "info", path).returncode, 0)

    def test_moments_of_a_device_are_put_on_the_hosts_clock(self):
        class DeviceClock:
            """Marks are the device's own milliseconds; the host's clock is 5000 ahead."""
            kind = "scripted"
            moments = iter([10.0, 13.0, 14.5, 20.0])

            def begin(self):
                return next(self.moments)

            mark = begin

            def end(self, begin):
                now = next(self.moments)
                return now, now + 5000

            def between(self, first, second):
                return second - first

        with self.record() as recorder:
            recorder.clock = DeviceClock()
            with recorder.operation("forward_step"):
                with recorder.call("gather", TENSOR, "allgather", "exp"):
                    pass
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual((line.duration, line.timestamp), ("10.0", "5020.0"))
        self.assertEqual((line.subs[0].duration, line.subs[0].timestamp), ("1.5", "5013.0"))

    def test_time_on_a_core_leaves_waiting_out(self):
        with self.record(device=CpuTimeClock()) as recorder:
            for busy in (False, True):
                with recorder.operation("forward_step"):
                    until = time.process_time() + 0.02
                    time.sleep(0.05)
                    while busy and time.process_time() < until:
                        pass
        content = read_rank_file(self.path("rank0.txt"))
        self.assertIn("CPU time of the process", content.header[0])
        slept, worked = (float(line.duration) for line in content.lines)
        self.assertLess(slept, 15)
        self.assertGreaterEqual(worked, 19.9)

    def test_a_device_is_waited_for_at_both_ends_of_an_operation_only(self):
        log = []

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self, stream):
                self.at = len(log)
                log.append("record " + stream)

            def elapsed_time(self, other):
                return float(other.at - self.at)

        cuda = types.SimpleNamespace(Event=Event, synchronize=lambda device: log.append("synchronize"),
                                     current_stream=lambda device: "on " + device)
        torch = types.SimpleNamespace(cuda=cuda, __version__="2.0", get_num_threads=lambda: 1)
        cuda.is_available = lambda: False
        with unittest.mock.patch.dict(sys.modules, torch=torch):
            with self.record(device="cuda:1") as recorder:
                with recorder.operation("forward_step"):
                    with recorder.call("gather", TENSOR, "allgather", "exp"):
                        pass
        record = "record on cuda:1"
        self.assertEqual(log, ["synchronize", record, record, record, record, "synchronize"])
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual((line.duration, line.subs[0].duration), ("3.0", "1.0"))
        self.assertAlmostEqual(float(line.timestamp) - float(line.subs[0].timestamp), 2.0, delta=0.011)

    def test_moesim_gives_the_same_bytes(self):
        for version in (1, 2):
            folder = "v%d" % version
            path = os.path.join(folder, file_name(Layout(1), 4, 2, 1, 0, "20260101000000"))
            with self.record(path, mode="scaling", version=version, about=["Umlaut: \u00e4\u00f6"]) as recorder:
                with recorder.operation("forward_step"):
                    with recorder.call("gather", TENSOR, "allgather", "exp", func_name="<lambda>"):
                        pass
                with recorder.operation("backward_step"):
                    pass
                with recorder.operation("optimizer_step", state="finalize"):
                    pass
            self.assert_round_trip(self.path(folder))

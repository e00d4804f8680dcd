"""Ranks played by a command on torch's fake process group: the same calls and bytes as on real processes and in a FakeWorld,
and what is said where the command does not do its part."""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import unittest

from moesim_capture.__main__ import main
from moesim_capture.cmd_format import read_rank_file
from moesim_capture.fake import needed
from moesim_capture.layout import Layout
from support import ScratchTest

try:
    from torch.testing._internal.distributed.fake_pg import FakeStore
except ImportError:
    FakeStore = None

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {"ep": 2, "hidden": 32, "ffn": 48, "heads": 4, "layers": 4, "vocab": 64, "seq": 16,
         "experts": 4, "microbatches": 3, "routing": "zipf:1.2"}
# The reference job as a training script that knows no recorder.
JOB = """
import json, sys
import torch, torch.distributed as dist
from moesim_capture.reference.config import JobConfig
from moesim_capture.reference.job import Groups, RankJob
from moesim_capture.reference.planned_routing import plan_routing
torch.set_num_threads(1)
config = JobConfig(**json.loads(sys.argv[1]))
dist.init_process_group("gloo")
job = RankJob(config, dist.get_rank(), plan_routing(config), Groups(config.layout, dist.get_rank()))
for step in range(1000):
    job.iteration()
"""


def microbatch(path):
    """What a rank does: calls of one microbatch's operations, and the gradients that it reduces."""
    lines = {}
    for line in read_rank_file(path).lines:
        if line.name in ("forward_step", "backward_step", "loss_func"):
            lines[line.name] = [(sub.source, sub.comm_func, sub.group, sub.shape, sub.dtype) for sub in line.subs
                                if sub.comm_func is not None]
        elif line.name.endswith("_allreduce"):
            lines[line.name] = (line.shape, line.dtype)
    return lines


@unittest.skipIf(FakeStore is None, "this torch has no fake process group")
class Fake(ScratchTest):
    def fake(self, *options, command, code=0):
        """The standard output and error of the verb."""
        done = subprocess.run([sys.executable, "-m", "moesim_capture", "fake", "--out", self.path("fake"), *options, "--",
                               *command], capture_output=True, text=True, cwd=self.scratch)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout + done.stderr

    def script(self, text):
        return [sys.executable, self.write("job.py", text.encode())]

    def reference(self, mode, sizes, passes=1):
        """The folders of a recording of the reference job by its own verb."""
        words = [word for name, value in sizes.items() for word in ("--" + name, str(value))]
        self.assertEqual(main(["run", "--mode", mode, "--out", self.path(mode), "--passes", str(passes), *words]), 0)
        return sorted(path for path in glob.glob(self.path(mode, "pp*", mode + "*")) if os.path.isdir(path))

    def files(self, folder):
        return sorted(glob.glob(os.path.join(folder, "*rank*.txt")), key=lambda path: read_rank_file(path).lines[0].rank)

    def played(self, sizes, *options):
        routing = glob.glob(self.path("scaling", "pp*", "dispatching.json"))
        out = self.fake("--routing", routing[0], "--world", str(sizes["world"]), "--ep", str(sizes["ep"]), "--pp",
                        str(sizes.get("pp", 1)), *options, command=self.script(JOB) + [json.dumps(sizes)])
        return out, sorted(glob.glob(self.path("fake", "pp*", "scaling*")))

    def test_calls_and_bytes_are_those_of_real_processes_and_of_a_fake_world(self):
        top = self.scratch
        for dispatcher, more in (("alltoall", {"world": 4, "pp": 2}), ("allgather", {"world": 2})):
            with self.subTest(dispatcher):
                self.scratch = os.path.join(top, dispatcher)
                os.mkdir(self.scratch)
                sizes = dict(SIZES, dispatcher=dispatcher, **more)
                scaling, = self.reference("scaling", sizes)
                real, = self.reference("realistic", sizes)
                out, folders = self.played(sizes, "--iterations", "1")
                self.assertIn("one for each of %d pipeline stages and 2 expert ranks" % sizes.get("pp", 1), out)
                for rank, (a, b, c) in enumerate(zip(*map(self.files, (scaling, real, folders[0])))):
                    self.assertEqual(microbatch(c), microbatch(a), rank)
                    self.assertEqual(microbatch(c), microbatch(b), rank)
                self.answered("trace", "check", folders[0])
                self.assert_round_trip(folders[0])

    def test_replays_agree(self):
        """Computing of the same job by the time on a core, as FakeWorld and the fake group give it; how far passes of one
        kind differ on this machine is the measure beside the 3 %. Another load beside one of both is no error of theirs."""
        sizes = dict(SIZES, world=2, hidden=128, ffn=256, seq=128, layers=2, dispatcher="alltoall")
        top = self.scratch
        for attempt in range(3):
            self.scratch = os.path.join(top, str(attempt))
            os.mkdir(self.scratch)
            passes = self.reference("scaling", sizes, 5)
            _, folders = self.played(sizes, "--iterations", "5")
            times = [[self.replayed(sizes, one) for one in some] for some in (passes, folders)]
            spread = max(max(some) / min(some) - 1 for some in times)
            middle = [sorted(some)[2] for some in times]
            print("replays: FakeWorld %.2f ms, fake group %.2f ms, passes differ by %.1f %%" % (*middle, 100 * spread))
            if abs(middle[1] / middle[0] - 1) < max(0.03, spread):
                return
        self.fail("they differ by more than passes of one kind, three times")

    def test_one_expert_rank_stands_for_all(self):
        """A command that says neither layers nor tokens: these are read off the input, the model is given."""
        sizes = dict(SIZES, world=2, layers=2, dispatcher="alltoall", routing="balanced")
        out = self.fake("--world", "2", "--ep", "2", "--iterations", "1", command=self.script(JOB) + [json.dumps(sizes)])
        self.assertIn("one of 2 expert ranks stands for all", out)
        folder, = glob.glob(self.path("fake", "pp*_sl16", "scaling"))
        replay = ["replay", folder, "--cluster", "dgx-h100x1", "--microbatches", "4", "--draws", "0"]
        self.assertIn("found no number of layers in the names of the recording, expected nl<N> in the folder's name, or --model",
                      self.moesim(*replay).stderr)
        model = {"name": "own", "hidden": 32, "layers": 2, "experts": 4, "topk": 2, "expert_ffn": 48, "vocabulary": 64,
                 "attention": {"heads": 4, "kv_heads": 4, "head_dim": 8}}
        done = self.answered(*replay, "--model", json.dumps(model))
        self.assertIn("expert ranks 1 were not recorded", done.stderr + done.stdout)

    def replayed(self, sizes, folder):
        done = self.answered("replay", folder, "--cluster", "dgx-h100x1", "--microbatches", "4", "--draws", "0", "--format",
                             "json")
        answer = json.loads(done.stdout)
        self.assertEqual(answer["recorded_on"]["mode"],
                         "fake process group" if os.sep + "fake" + os.sep in folder else "scaling")
        return answer["iteration_us"]["value"] / 1e3

    def test_what_there_is_is_said(self):
        """A command that fails on one rank, that moves what was written, that makes no group, and one that is bad usage."""
        script = """
            import os, sys
            import torch, torch.distributed as dist
            dist.init_process_group("gloo")
            rank, kind = dist.get_rank(), sys.argv[1]
            if kind == "fails" and rank == 1:
                raise SystemExit("no room for rank 1")
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3 if kind == "stops" else 1000):
                if kind == "crashes" and step == 2:
                    raise RuntimeError("no more data\\nsecond line")
                if kind == "exits" and step == 2:
                    sys.exit(5)
                model(torch.ones(2, 4)).sum().backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                optimizer.step()
                if kind == "moves" and rank == 1 and step == 0:
                    os.rename(*sys.argv[2:])
            """
        command = self.script(textwrap.dedent(script))
        out = self.fake("--world", "2", "--ranks", "0,1", command=command + ["fails"], code=1)
        self.assertRegex(out, "rank 1: the command ended with exit code 1 .*: no room for rank 1; what there is: ranks 0")
        file, = glob.glob(self.path("fake", "pp*", "scaling", "*"))
        self.assertEqual([line.name for line in read_rank_file(file).lines],
                         ["get_batch", "forward_step", "loss_func", "backward_step", "dp_allreduce", "optimizer_step"])
        out = self.fake("--world", "2", "--ranks", "1", command=command + ["stops"])
        self.assertIn("rank 1: 1 iterations", out)
        for kind, said in (("crashes", "RuntimeError: no more data"), ("exits", "5")):
            shutil.rmtree(self.path("fake"))
            out = self.fake("--world", "2", "--ranks", "1", command=command + [kind], code=1)
            self.assertIn("rank 1: the command failed after 1 recorded iterations (%s); what there is: ranks 1" % said, out)
            kept, = glob.glob(self.path("fake", "pp*", "scaling", "*"))
            self.assertEqual(len(read_rank_file(kept).lines), 6)
        out = self.fake("--world", "2", "--ranks", "0,1", command=command + [
            "moves", os.path.dirname(os.path.dirname(file)), self.path("elsewhere")], code=1)
        self.assertRegex(out, "rank 0: its recording .* is gone, did the command move it.*what there is: ranks 1")
        out = self.fake(command=command + ["stops"], code=1)
        self.assertIn("found no number of ranks, expected --world N", out)
        plain = self.script(pathlib.Path(HERE, "plain_moe.py").read_text()) + ["--hidden", "16", "--steps", "1000000"]
        out = self.fake("--world", "4", "--ep", "2", "--ranks", "0", command=plain, code=1)
        self.assertIn("found tokens exchanged between 4 ranks, expected the 2 of --ep", out)
        done = self.fake("--world", "4", "--ranks", "x", command=command, code=2)
        self.assertIn("found --ranks x, expected pipeline or ranks like 0,8", done)


class Needed(unittest.TestCase):
    def test_ranks_whose_work_differs(self):
        layout = Layout(world=16, tp=2, ep=2, pp=2)
        self.assertEqual(needed(layout, False, "")[0], [0, 2, 8, 10])
        self.assertEqual(needed(layout, True, "")[0], [0, 8])
        self.assertEqual(needed(layout, False, "pipeline")[0], [0, 8])

"""The recordings in traces/samples/host: moesim reads, checks, replays them, and puts the other dispatcher into them."""
import glob
import json
import os
import random
import shutil

from moesim_capture.cmd_format import format_text, read_rank_file
from support import SOURCE, ScratchTest

HOST = os.path.join(SOURCE, "traces", "samples", "host")


BENDS = ("drop a call", "longer call", "other rows", "other group", "drop a line", "drop a rank", "move a call", "other type",
         "swap calls", "other collective", "drop a step", "long operation", "other stage")


def bend(draw, name, folder):
    """Changes one thing of one rank's file."""
    path = os.path.join(folder, draw.choice(sorted(os.listdir(folder))))
    content = read_rank_file(path)
    lines = content.lines
    line = draw.choice([one for one in lines if len(one.subs) > 1])
    sub = draw.choice(line.subs)
    if name == "drop a call":
        line.subs.remove(sub)
    elif name == "longer call":
        sub.duration = line.duration
    elif name == "other rows":
        sub.shape = (sub.shape[0] + 1,) + tuple(sub.shape[1:])
    elif name == "other group":
        sub.group = "dp"
    elif name == "drop a line":
        lines.remove(draw.choice(lines))
    elif name == "move a call":
        sub.timestamp = "%.2f" % (float(line.timestamp) - float(line.duration) - draw.choice((0.05, 5.0)))
    elif name == "other type":
        sub.dtype = "torch.float64"
    elif name == "swap calls":
        line.subs.reverse()
    elif name == "other collective":
        sub.comm_func = "allreduce"
    elif name == "drop a step":
        content.lines = [one for one in lines if one.name != draw.choice(("dp_allreduce", "optimizer_step", "loss_func"))]
    elif name == "long operation":
        line.duration = "9000000000.0"
    elif name == "other stage":
        for one in lines:
            one.stage_id = 1
    if name == "drop a rank":
        os.remove(path)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(format_text(content))


class Samples(ScratchTest):
    def job(self, name):
        folder, = glob.glob(os.path.join(HOST, name, "pp*"))
        return folder

    def replay(self, name, *options):
        job = self.job(name)
        return self.moesim("replay", os.path.join(job, "scaling"), "--cluster", "dgx-h100x1", "--microbatches", "4",
                           "--model", os.path.join(HOST, "model.json"), "--draws", "0", "--format", "json", *options)

    def iteration_us(self, name, *options):
        done = self.replay(name, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["iteration_us"]["value"]

    def test_moesim_reads_checks_and_replays_all(self):
        folders = sorted(glob.glob(os.path.join(HOST, "*", "*", "*", "")))
        self.assertEqual(len(folders), 10)  # two dispatchers: two routings, real and scaling; under TP, scaling alone
        for folder in folders:
            with self.subTest(folder):
                self.assert_round_trip(folder)
                done = self.answered("trace", "check", folder)
                self.assertNotIn("no backward collectives", done.stderr)
                done = self.answered("replay", folder, "--cluster", "dgx-h100x1")

    def test_another_dispatcher_in_either_direction(self):
        for routing in ("balanced", "zipf1.2"):
            iterations = {d: self.iteration_us(d + "-" + routing) for d in ("allgather", "alltoall")}
            for recorded, wanted in (("allgather", "alltoall"), ("alltoall", "allgather")):
                name = recorded + "-" + routing
                table = ("--routing", os.path.join(self.job(name), "dispatching.json"))
                same = self.iteration_us(name, "--dispatcher", recorded + "-legacy", *table)
                self.assertAlmostEqual(same / iterations[recorded], 1, delta=0.02)
                # Computing is nearly all of these jobs and is the recorded one; what was recorded of the other
                # dispatcher differs by the machine's noise.
                other = self.iteration_us(name, "--dispatcher", wanted + "-legacy", *table)
                self.assertAlmostEqual(other / iterations[recorded], 1, delta=0.05)
                self.assertAlmostEqual(other / iterations[wanted], 1, delta=0.15)

    def test_the_first_line_says_that_a_cpu_is_no_gpu(self):
        folder = os.path.join(self.job("alltoall-balanced"), "realistic")
        done = self.moesim("replay", folder, "--cluster", "dgx-h100x1")
        self.assertRegex(done.stdout.splitlines()[0], r"^warning: recorded on a CPU \(AMD EPYC\): .* H100-SXM5-80GB$")
        self.assertNotIn("CPU", done.stderr)
        done = self.moesim("replay", folder, "--cluster", "dgx-h100x1", "--format", "json")
        self.assertIn("recorded on a CPU", json.loads(done.stdout)["warnings"][0])
        done = self.moesim("replay", folder, "--cluster", "dgx-h100x1", "--format", "csv")
        self.assertIn("recorded on a CPU", done.stderr)
        # Public recordings do not say what computed.
        synthetic = glob.glob(os.path.join(SOURCE, "traces", "samples", "synthetic", "*", "realistic"))[0]
        other = self.moesim("replay", synthetic, "--cluster", "dgx-h100x2").stdout
        self.assertTrue(other.startswith("warning: SYNTHETIC"), other[:80])
        self.assertIn("recorded on H800-SXM5-80GB", other.splitlines()[1])

    def test_check_finds_what_replay_refuses(self):
        """Recordings with one thing bent: check says no to each that replay says no to."""
        draw = random.Random(20261122)
        refused = {}
        for kind in ("realistic", "scaling"):
            source = os.path.join(self.job("alltoall-zipf1.2"), kind)
            for number in range(60):
                name = draw.choice(BENDS)
                place = self.path("%s%d" % (kind, number), os.path.basename(self.job("alltoall-zipf1.2")), kind)
                shutil.copytree(source, place)
                bend(draw, name, place)
                replay = self.moesim("replay", place, "--cluster", "dgx-h100x1", "--draws", "0")
                check = self.moesim("trace", "check", place)
                if replay.returncode != 0:
                    refused.setdefault(name, 0)
                    refused[name] += 1
                    self.assertNotEqual(check.returncode, 0, "%s of %s: %s" % (name, kind, replay.stderr))
        self.assertGreaterEqual(len(refused), 6, refused)  # the bends do bend

    def test_an_allgather_recording_does_not_say_who_routed_what(self):
        beside = self.replay("allgather-balanced", "--dispatcher", "alltoall")
        self.assertEqual(beside.returncode, 0, beside.stderr)
        self.assertIn("dispatching.json", beside.stdout)  # the file that lies beside it does
        done = self.replay("allgather-balanced", "--dispatcher", "alltoall", "--routing", "as-recorded")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected --routing", done.stderr)
        skewed = os.path.join(self.job("alltoall-zipf1.2"), "dispatching.json")
        done = self.replay("allgather-balanced", "--dispatcher", "alltoall", "--routing", skewed, "--seq", "128")
        self.assertEqual(done.returncode, 2)  # the file is of the recorded job's sizes
        self.assertIn("dispatching.json", done.stderr)

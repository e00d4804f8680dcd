"""The recordings in traces/samples/host: moesim reads and checks them (tests/cases/tools/samples.json replays them)."""
import glob
import os
import pathlib
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
    pathlib.Path(path).write_text(format_text(content))


class Samples(ScratchTest):
    def test_moesim_reads_and_checks_all(self):
        folders = sorted(glob.glob(os.path.join(HOST, "*", "*", "*", "")))
        self.assertEqual(len(folders), 10)  # two dispatchers: two routings, real and scaling; under TP, scaling alone
        for folder in folders:
            with self.subTest(folder):
                self.assert_round_trip(folder)
                done = self.answered("trace", "check", folder)
                self.assertNotIn("no backward collectives", done.stderr)

    def test_check_finds_what_replay_refuses(self):
        """Recordings with one thing bent: check says no to each that replay says no to."""
        draw = random.Random(20261122)
        job, = glob.glob(os.path.join(HOST, "alltoall-zipf1.2", "pp*"))
        refused = set()
        for kind in ("realistic", "scaling"):
            for number in range(60):
                name = draw.choice(BENDS)
                place = self.path("%s%d" % (kind, number), os.path.basename(job), kind)
                shutil.copytree(os.path.join(job, kind), place)
                bend(draw, name, place)
                replay = self.moesim("replay", place, "--cluster", "dgx-h100x1", "--draws", "0")
                check = self.moesim("trace", "check", place)
                if replay.returncode != 0:
                    refused.add(name)
                    self.assertNotEqual(check.returncode, 0, "%s of %s: %s" % (name, kind, replay.stderr))
        self.assertGreaterEqual(len(refused), 6, refused)  # the bends do bend

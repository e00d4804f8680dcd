"""record(): a training script that knows nothing of a recorder, with two lines put into it, on gloo processes."""
import glob
import json
import os
import pathlib

import torch

import moesim_capture
from moesim_capture.cmd_format import GradientBucket, read_rank_file
from support import ScratchTest

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = """
import atexit, os, sys
import torch.distributed as dist
rank, script, world, rendezvous = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
options = dict(init_method="file://" + rendezvous, rank=rank, world_size=world)
start, dist.init_process_group = dist.init_process_group, lambda backend: start(backend, **options)
sys.argv = [script] + sys.argv[5:]
exec(compile(open(script).read(), script, "exec"), {"__name__": "__main__"})
atexit._run_exitfuncs()  # os._exit() does not
"""


class PlainScript(ScratchTest):
    """plain_moe.py as it is, and with two lines more."""

    WORLD = 4

    def run_script(self, name, *lines, arguments=()):
        text = pathlib.Path(HERE, "plain_moe.py").read_text()
        if lines:
            loop = "    for step in range(options.steps):\n"
            self.assertEqual(text.count(loop), 1)
            text = text.replace(loop, "".join("    %s\n" % line for line in lines) + loop)
        path = self.write(name, text.encode())
        self.runs = getattr(self, "runs", 0) + 1
        return self.run_ranks(RUN, self.WORLD, path, str(self.WORLD), self.path("rendezvous%d" % self.runs), "--hidden", "32",
                              *arguments)

    def recorded(self, name, *more, arguments=()):
        out = self.path("rec-" + name)
        printed = self.run_script(name + ".py", "import moesim_capture", "moesim_capture.record(model, out=%r%s)" % (
            out, "".join(", " + one for one in more)), arguments=arguments)
        return printed, sorted(glob.glob(os.path.join(out, "*", "*")))

    def test_two_lines(self):
        plain = self.run_script("plain.py")
        printed, folders = self.recorded("two")
        self.assertEqual(printed, plain)  # every loss to the last digit
        self.assertIn("step 7 loss", plain[0])
        self.assertEqual([os.path.relpath(folder, self.path("rec-two")) for folder in folders],
                         ["pp1_tp1_exp4_dp4_hs32/" + name for name in ("realistic", "realistic1", "realistic2")])
        for folder in folders:
            for rank in range(self.WORLD):
                self.check_lines(os.path.join(folder, "wd4_tp1_pp1_exp4_rank%d.txt" % rank))
            self.check_with_moesim(folder)

    def check_lines(self, path):
        content = read_rank_file(path)
        self.assertIn(" recorded: a real run", content.header)
        lines = content.lines
        self.assertEqual([line.name for line in lines],
                         ["get_batch", "forward_step", "loss_func", "ddp_grad_comm", "backward_step", "dp_allreduce",
                          "exp_dp_allreduce", "optimizer_step"])
        by_name = {line.name: line for line in lines}
        # Counts, dispatch and combine of two layers; in backward the last two of each, the other way round.
        forward, backward = by_name["forward_step"].subs, by_name["backward_step"].subs
        self.assertEqual([(sub.source, len(sub.shape)) for sub in forward],
                         [("all_to_all_single", 1)] + [("_profiled_all_to_all_single", 2)] * 2 +
                         [("all_to_all_single", 1)] + [("_profiled_all_to_all_single", 2)] * 2)
        self.assertEqual({sub.group for sub in forward + backward}, {"exp"})
        self.assertEqual([sub.shape for sub in backward], [forward[i].shape for i in (4, 5, 1, 2)])
        # Gradients that DistributedDataParallel reduces, and the experts' gradients, which are not reduced.
        bucket = next(line for line in lines if isinstance(line, GradientBucket))
        experts = 2 * 2 * (2 * 32 * 64 + 64 + 32)
        rest = 512 * 32 + 2 * (8 * 32 + 2 * 32) + 512 * 32 + 512
        self.assertEqual((int(bucket.values["bucket_numel"]), bucket.values["trigger_cmd_uid"]),
                         (rest, by_name["backward_step"].cmd_uid))
        self.assertEqual((by_name["dp_allreduce"].shape, by_name["dp_allreduce"].op_semantics), ((rest,), "wait_flush_only"))
        self.assertEqual(by_name["exp_dp_allreduce"].shape, (experts,))
        # Operations follow each other without gaps.
        reached = None
        for line in lines:
            if isinstance(line, GradientBucket):
                continue
            begin = float(line.timestamp) - float(line.duration)
            if reached is not None:
                self.assertAlmostEqual(begin, reached, delta=0.01)
            reached = float(line.timestamp)

    def check_with_moesim(self, folder):
        self.answered("trace", "check", folder)
        facts = json.loads(self.moesim("trace", "info", folder, "--format", "json").stdout)
        self.assertEqual((facts["side"], facts["dispatcher"], facts["moe_layers"], facts["microbatches"]),
                         ("realistic", "alltoall", 2, 1))
        self.assertTrue(facts["device"]["cpu"])
        done = self.answered("replay", folder, "--cluster", "dgx-h100x1", "--format", "json")
        self.assertGreater(json.loads(done.stdout)["iteration_us"]["value"], 0)
        done = self.moesim("replay", folder, "--cluster", "dgx-h100x1")
        self.assertRegex(done.stdout.splitlines()[0], r"^warning: recorded on a CPU \(.+\): .* nothing about H100")
        self.assert_round_trip(folder)

    def test_the_group_may_be_given_and_sizes_named(self):
        printed, folders = self.recorded("given", "group=dist.group.WORLD", "iterations=1", "experts=8", "layers=2",
                                         "micro_batch=4", "seq=64")
        self.assertEqual([os.path.relpath(one, self.path("rec-given")) for one in folders],
                         ["pp1_tp1_exp4_expn8_dp4_nl2_hs32_sl64/realistic"])
        self.check_lines(os.path.join(folders[0], "wd4_tp1_pp1_exp4_expNum8_l2_bs4_rank3.txt"))
        self.answered("trace", "check", folders[0])

    def test_a_loop_that_ends_too_soon_records_what_there_was(self):
        printed, folders = self.recorded("short", "warmup=5", arguments=("--steps", "3"))
        self.assertEqual([os.path.basename(one) for one in folders], ["realistic"])
        self.check_lines(os.path.join(folders[0], "wd4_tp1_pp1_exp4_rank0.txt"))

    def test_a_second_run_replaces_the_first(self):
        self.recorded("again")
        _, folders = self.recorded("again", "iterations=1")
        self.assertEqual([os.path.basename(one) for one in folders], ["realistic"])
        self.assertEqual(len(os.listdir(folders[0])), self.WORLD)


BY_HAND = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
import moesim_capture
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=2)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient.chunk(2)[rank]


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return Reduce.apply(gradient)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.expert, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + Reduce.apply(self.expert(Gather.apply(x))).chunk(2)[rank])


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)  # wraps the optimizer's step before it is recorded
with moesim_capture.record(model, out=folder + "/rec", iterations=1) as recording:
    for step in range(4):
        for part in range(2):
            loss = model(torch.randn(8, 16)).pow(2).mean()
            dist.all_reduce(loss.detach())
            loss.backward()
        for name, p in model.named_parameters():
            if not name.startswith("expert"):
                dist.all_reduce(p.grad)
        norm = sum(p.grad.norm() for p in model.parameters())
        dist.all_reduce(norm)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        with torch.no_grad():
            model(torch.randn(8, 16))  # an evaluation is no forward of the training
"""


class Loops(ScratchTest):
    def test_gradients_reduced_by_hand_and_an_all_reduce_as_combine(self):
        self.run_ranks(BY_HAND, 2, self.scratch)
        folder, = glob.glob(self.path("rec", "*", "realistic"))
        lines = read_rank_file(os.path.join(folder, "wd2_tp1_pp1_exp2_rank1.txt")).lines
        self.assertEqual([line.name for line in lines],
                         ["get_batch", "forward_step", "loss_func", "backward_step"] * 2 +
                         ["dp_allreduce", "exp_dp_allreduce", "optimizer_step"])
        forward, loss, backward = lines[1:4]
        self.assertEqual([sub.source for sub in forward.subs], ["_gather_along_first_dim_moe", "_reduce_along_first_dim_moe"])
        self.assertEqual([sub.source for sub in backward.subs], ["_reduce_along_first_dim_moe"] * 2)
        self.assertEqual([(sub.source, sub.func_name, sub.group) for sub in loss.subs], [("allreduce", "loss_func", "dp")])
        # All tensors together; the norm of all is no gradient.
        self.assertEqual(lines[-3].shape, (16 * 16 + 16 + 16 * 4 + 4,))
        self.assertEqual(lines[-2].shape, (16 * 16 + 16,))
        self.answered("trace", "check", folder)
        done = self.answered("trace", "info", folder, "--format", "json")
        self.assertEqual(json.loads(done.stdout)["dispatcher"], "allgather")
        self.answered("replay", folder, "--cluster", "dgx-h100x1")


class Refusals(ScratchTest):
    """One line before anything is changed."""

    def test_bad_arguments(self):
        model = torch.nn.Linear(2, 2)
        before = type(model).__call__, torch.autograd.backward, torch.optim.SGD.step
        for arguments, words in ((("no model",), "torch.nn.Module"), ((model, None, "out", 0), "iterations"),
                                 ((model, None, "out", 1, -1), "warmup")):
            with self.assertRaisesRegex(ValueError, words):
                moesim_capture.record(*arguments)
        with self.assertRaisesRegex(ValueError, "found the size width, expected experts, layers"):
            moesim_capture.record(model, width=3)
        os.environ["WORLD_SIZE"] = "4"
        self.addCleanup(os.environ.pop, "WORLD_SIZE")
        with self.assertRaisesRegex(ValueError, "init_process_group before record"):
            moesim_capture.record(model)
        self.assertEqual((type(model).__call__, torch.autograd.backward, torch.optim.SGD.step), before)

    def test_expert_groups_that_no_layout_has(self):
        from moesim_capture.training import _layout_of_members

        self.assertEqual(_layout_of_members(8, 5, 1, [4, 5, 6, 7]).ep, 4)
        self.assertEqual(_layout_of_members(8, 5, 2, [5, 7]).ep, 2)
        with self.assertRaisesRegex(ValueError, r"found expert-parallel ranks \[1, 5\] beside rank 5, expected \[4, 5\]"):
            _layout_of_members(8, 5, 1, [1, 5])


class OneProcess(ScratchTest):
    """Loops without a process group."""

    def loop(self, model, steps, **options):
        optimizer = torch.optim.AdamW(model.parameters())
        recording = moesim_capture.record(model, out=self.path("rec"), **options)
        with recording:
            for _ in range(steps):
                model(torch.randn(4, 2)).sum().backward()
                optimizer.step()
        return recording

    def test_everything_is_put_back_when_enough_is_recorded(self):
        model = torch.nn.Linear(2, 2)
        before = torch.nn.Module.__call__, torch.autograd.backward, torch.optim.AdamW.step
        recording = self.loop(model, 9, iterations=2, warmup=1)
        self.assertEqual([os.path.basename(one) for one in recording.folders], ["realistic", "realistic1"])
        self.assertEqual((torch.nn.Module.__call__, torch.autograd.backward, torch.optim.AdamW.step), before)
        self.assertNotIn("__call__", vars(torch.nn.Linear))

    def test_what_others_replace_meanwhile_is_left_to_them(self):
        class Mine(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        model = torch.nn.Linear(2, 2)
        with moesim_capture.record(model, out=self.path("rec"), iterations=1, warmup=0):
            # The first optimizer of a class wraps the step of its class, for its hooks and for profilers.
            optimizer = Mine(model.parameters(), lr=0.1)
            wrapped = Mine.step
            for _ in range(2):
                model(torch.randn(4, 2)).sum().backward()
                optimizer.step()
        self.assertIs(Mine.step, wrapped)
        optimizer.step()

    def test_several_losses_and_a_forward_that_raises(self):
        class Model(torch.nn.Linear):
            def forward(self, x):
                if x is None:
                    raise KeyError("x")
                return super().forward(x)

        model = Model(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with moesim_capture.record(model, out=self.path("rec"), iterations=1, warmup=0) as recording:
            for _ in range(2):
                one, other = model(torch.randn(4, 2)), model(torch.randn(4, 2))
                with self.assertRaises(KeyError):
                    model(None)
                one.sum().backward()
                other.sum().backward()
                optimizer.step()
        file, = glob.glob(os.path.join(recording.folders[0], "*.txt"))
        self.assertEqual([line.name for line in read_rank_file(file).lines],
                         ["get_batch", "forward_step", "loss_func", "backward_step", "optimizer_step"])

    def test_a_loop_without_an_optimizer_of_torch_is_told_what_to_do(self):
        model = torch.nn.Linear(2, 2)
        with moesim_capture.record(model, out=self.path("rec")) as recording:
            for _ in range(3):
                model(torch.randn(4, 2)).sum().backward()
        self.assertIn("0 of an optimizer's step", recording.warnings[0])
        self.assertFalse(os.path.exists(self.path("rec")))
        with moesim_capture.record(model, out=self.path("rec"), warmup=0, iterations=2) as recording:
            for _ in range(3):
                model(torch.randn(4, 2)).sum().backward()
                with recording.optimizer_step():
                    pass
        self.assertEqual(len(recording.folders), 2)

    def test_a_mistake_of_ours_ends_the_recording_and_not_the_training(self):
        model, before = torch.nn.Linear(2, 2), torch.autograd.backward
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with moesim_capture.record(model, out=self.path("rec")) as recording:
            for step in range(4):
                if step == 2:
                    recording.clock = None
                model(torch.randn(4, 2)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            self.assertIs(torch.autograd.backward, before)
        self.assertIn("nothing is recorded: AttributeError", recording.warnings[0])
        self.assertEqual(len(recording.warnings), 1)

    def test_a_folder_that_cannot_be_written_does_not_end_the_training(self):
        self.write("rec", b"a file")
        recording = self.loop(torch.nn.Linear(2, 2), 4, iterations=1)
        self.assertIn("nothing is recorded", recording.warnings[-1])

"""Operations from wrapped functions, and gradient buckets of DistributedDataParallel."""
import sys
import types

from moesim_capture import Recorder
from moesim_capture.cmd_format import GradientBucket, read_rank_file
from moesim_capture.instrument import Operations
from support import ScratchTest


class Trainer:
    def step(self, inner=None):
        return inner.step() + 1 if inner is not None else 1


class WrappedFunctions(ScratchTest):
    def setUp(self):
        super().setUp()
        self.module = types.ModuleType("a_training_program")
        self.module.forward = lambda x: x + 1
        self.module.Trainer = Trainer
        self.user = types.ModuleType("its_user")
        self.user.forward = self.module.forward
        for module in (self.module, self.user):
            sys.modules[module.__name__] = module
            self.addCleanup(sys.modules.pop, module.__name__)

    def test_functions_and_methods(self):
        functions = {"a_training_program:forward": ("forward_step", "None"),
                     "a_training_program:Trainer.step": ("optimizer_step", "None"),
                     "a_training_program:gone": ("backward_step", "None"),
                     "no_such_module:gone": ("backward_step", "None")}
        before = Trainer.step
        with Recorder(self.path("rank0.txt"), 0) as recorder, Operations(recorder, functions) as operations:
            self.assertEqual(self.module.forward(1), 2)
            self.assertEqual(self.user.forward(1), 2)  # imported by name before
            self.assertEqual(Trainer().step(Trainer()), 2)  # the inner one is part of the outer one
        self.assertEqual(operations.missing, ["a_training_program:gone", "no_such_module:gone"])
        self.assertIs(Trainer.step, before)
        lines = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual([line.name for line in lines], ["forward_step", "forward_step", "optimizer_step"])

    def test_nothing_found_is_an_error(self):
        with Recorder(self.path("rank0.txt"), 0) as recorder:
            with self.assertRaises(LookupError):
                Operations(recorder, {"a_training_program:gone": ("x", "None")}).__enter__()


class Buckets(ScratchTest):
    def test_distributed_data_parallel(self):
        script = """
            import os, sys
            import torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            from moesim_capture import Recorder
            from moesim_capture.gradient_buckets import BucketRecorder, reduce_bucket
            from moesim_capture.hooks import CommunicationHooks
            from moesim_capture.layout import Layout
            rank, folder = int(sys.argv[1]), sys.argv[2]
            dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=2)
            torch.manual_seed(0)
            model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
            plain = DistributedDataParallel(model)
            x = torch.randn(4, 300)
            plain(x + rank).sum().backward()
            expected = [p.grad.clone() for p in model.parameters()]
            model.zero_grad(set_to_none=True)
            model = DistributedDataParallel(model, bucket_cap_mb=0.5)
            with Recorder(folder + "/rank%d.txt" % rank, rank) as recorder, CommunicationHooks(recorder, Layout(2)):
                model.register_comm_hook(BucketRecorder(recorder), reduce_bucket)
                for _ in range(2):
                    model.zero_grad(set_to_none=True)
                    with recorder.operation("forward_step"):
                        loss = model(x + rank).sum()
                    with recorder.operation("backward_step"):
                        loss.backward()
                    for p, e in zip(model.parameters(), expected):
                        torch.testing.assert_close(p.grad, e)
                with recorder.operation("optimizer_step"):
                    pass
            """
        self.run_ranks(script, 2, self.scratch)
        lines = read_rank_file(self.path("rank1.txt")).lines
        names = [line.name for line in lines]
        buckets = [line for line in lines if isinstance(line, GradientBucket)]
        self.assertGreaterEqual(len(buckets), 3)
        self.assertLess(names.index("ddp_grad_comm"), names.index("backward_step"))
        backward = next(line for line in lines if line.name == "backward_step")
        self.assertEqual(backward.subs, [])
        self.assertEqual(buckets[0].values["trigger_cmd_uid"], backward.cmd_uid)
        self.assertEqual(buckets[0].values["status"], "completed")
        per_pass = [b for b in buckets if b.values["iter"] == buckets[0].values["iter"]]
        self.assertEqual(sum(int(b.values["bucket_numel"]) for b in per_pass), 4 * (300 * 300 + 300))
        self.answered("trace", "info", self.path("rank1.txt"))

"""Hooks on torch.distributed: what is recorded of calls, on a fake world and on two real processes."""
import contextlib
import sys
import unittest

import torch
import torch.distributed as dist

from moesim_capture import Recorder
from moesim_capture.cmd_format import read_rank_file
from moesim_capture.fake_world import FakeWorld
from moesim_capture.hooks import CommunicationHooks, tensor_facts
from moesim_capture.layout import Layout
from support import ScratchTest


class Facts(unittest.TestCase):
    def test_lists_are_one_buffer(self):
        a, b = torch.zeros(2, 3), torch.zeros(5, 3)
        self.assertEqual(tensor_facts([a, b]), ((7, 3), "torch.float32"))
        self.assertEqual(tensor_facts([a, torch.zeros(4)]), ((10,), "torch.float32"))
        self.assertEqual(tensor_facts(torch.zeros((), dtype=torch.bool)), ((), "torch.bool"))
        self.assertIsNone(tensor_facts([]))
        self.assertIsNone(tensor_facts(["x"]))


class OnAFakeWorld(ScratchTest):
    def record(self, layout, rank, act):
        with FakeWorld(layout, rank) as world:
            path = self.path("rank%d.txt" % rank)
            with Recorder(path, rank, layout.of(rank).pp) as recorder, CommunicationHooks(recorder, layout):
                act(recorder, world)
        return read_rank_file(path).lines

    def test_every_collective(self):
        layout = Layout(world=8, ep=4)

        def act(recorder, world):
            exp, dp = dist.new_group([0, 1, 2, 3]), dist.new_group(range(8))
            x = torch.ones(8, 4)
            with recorder.operation("forward_step"):
                out = torch.empty(32, 4)
                dist.all_gather_into_tensor(out, x, group=exp)
                self.assertTrue(bool((out == 1).all()))
                dist.all_gather([torch.empty(8, 4) for _ in range(4)], x, exp)
                dist.all_gather([torch.empty(8, dtype=torch.int64) for _ in range(4)],
                                torch.zeros(8, dtype=torch.int64), group=exp)
                dist.reduce_scatter_tensor(torch.empty(2, 4), x, group=exp)
                dist.reduce_scatter(torch.empty(2, 4), list(x.chunk(4)), group=exp)
                out = torch.empty(11, 4)
                dist.all_to_all_single(out, x, [5, 1, 2, 3], [2, 2, 2, 2], group=exp)
                self.assertTrue(bool((out == 1).all()))
                dist.all_to_all([torch.empty(2, 4) for _ in range(4)], list(x.chunk(4)), group=exp)
                dist.all_reduce(x, group=dp)
                dist.all_reduce_coalesced([x, torch.zeros(3)], group=dp)
                dist.broadcast(x, 0, group=dp)
                dist.barrier()

        line, = self.record(layout, 0, act)
        self.assertEqual([(s.source, s.comm_func, s.group, s.shape) for s in line.subs], [
            ("_gather_along_first_dim_moe", "allgather", "exp", (8, 4)),
            ("_gather_along_first_dim_moe", "allgather", "exp", (8, 4)),
            ("_gather_along_first_dim_expert_parallel", "allgather", "exp", (8,)),
            ("_reduce_scatter_along_first_dim_moe", "reduce_scatter", "exp", (8, 4)),
            ("_reduce_scatter_along_first_dim_moe", "reduce_scatter", "exp", (8, 4)),
            ("_profiled_all_to_all_single", "all_to_all", "exp", (8, 4)),
            ("_profiled_all_to_all_single", "all_to_all", "exp", (8, 4)),
            ("all_reduce", "allreduce", "dp", (8, 4)),
            ("all_reduce_coalesced", "allreduce", "dp", (35,)),
            ("broadcast", "broadcast", "dp", (8, 4)),
            ("barrier", None, None, None),
        ])
        self.assertEqual({sub.func_name for sub in line.subs}, {"act"})

    def test_asynchronous_calls_last_until_they_are_waited_for(self):
        import time

        def act(recorder, world):
            with recorder.operation("backward_step"):
                work = dist.all_reduce(torch.ones(4), async_op=True)
                lost = dist.all_reduce(torch.ones(5), async_op=True)
                time.sleep(0.005)
                work.wait()
                self.assertTrue(work.is_completed())
                work.wait()
                time.sleep(0.005)
                del lost

        line, = self.record(Layout(4), 0, act)
        first, second = line.subs
        self.assertEqual((first.source, first.comm_func), ("all_reduce_async", "allreduce"))
        self.assertGreater(float(first.duration), 4.9)
        self.assertGreater(float(second.duration), float(first.duration) + 4.0)  # until the end of the operation

    def test_names_that_were_imported_before(self):
        import types
        user = types.ModuleType("a_users_module")
        user.all_reduce = dist.all_reduce
        sys.modules[user.__name__] = user
        self.addCleanup(sys.modules.pop, user.__name__)
        original = dist.all_reduce

        def act(recorder, world):
            with recorder.operation("forward_step"):
                user.all_reduce(torch.ones(4))

        line, = self.record(Layout(4), 0, act)
        self.assertEqual(len(line.subs), 1)
        self.assertIs(user.all_reduce, original)  # everything is put back
        self.assertIs(dist.all_reduce, original)
        self.assertIs(dist.distributed_c10d.all_reduce, original)

    def test_transfers_between_stages(self):
        layout = Layout(world=8, pp=4)  # ranks 2 and 3 are stage 1

        def act(recorder, world):
            x = torch.ones(2, 3)
            dist.recv(x, 0)
            dist.send(x, 4)
            for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 4), dist.P2POp(dist.isend, x, 0)]):
                work.wait()
            dist.isend(x, 4).wait()
            with recorder.operation("forward_step"):
                dist.send(x, 4)
            with recorder.operation("recv_backward", group="pp"):
                dist.recv(x, 4)

        lines = self.record(layout, 2, act)
        self.assertEqual([line.name for line in lines],
                         ["recv_forward", "send_forward", "send_backward", "recv_backward", "send_forward", "forward_step",
                          "recv_backward"])
        self.assertEqual({line.shape for line in lines if line.name != "forward_step"}, {(2, 3)})
        self.assertEqual((lines[2].duration, lines[2].timestamp), (lines[3].duration, lines[3].timestamp))
        self.assertEqual([(sub.source, sub.comm_func) for sub in lines[5].subs], [("send", None)])
        self.assertEqual(lines[6].subs, [])  # the operation is the transfer
        self.assertEqual([line.stage_id for line in lines], [1] * 7)

    def test_received_numbers_are_ordinary(self):
        with FakeWorld(Layout(2, pp=2), 1):
            x = torch.full((50,), float("nan"))
            dist.recv(x, 0)
            self.assertTrue(bool(torch.isfinite(x).all()))
            self.assertEqual((dist.get_rank(), dist.get_world_size(), dist.is_initialized()), (1, 2, True))
        self.assertFalse(dist.is_initialized())

    def test_contributions_are_checked(self):
        with FakeWorld(Layout(4), 0) as world:
            world.contributes(lambda t, g: t.dtype == torch.int64, lambda t, g: torch.zeros(3, dtype=torch.int64))
            with self.assertRaises(ValueError):
                dist.all_gather_into_tensor(torch.empty(8, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))


class Coalescing(ScratchTest):
    def test_calls_inside_a_coalescing_manager_are_one(self):
        launched = []

        @contextlib.contextmanager
        def manager(group=None, device=None, async_ops=False):
            yield None
            launched.append(True)

        home = dist.distributed_c10d
        had = getattr(home, "_coalescing_manager", None)
        home._coalescing_manager = manager
        self.addCleanup(lambda: setattr(home, "_coalescing_manager", had) if had else delattr(
            home, "_coalescing_manager"))
        with FakeWorld(Layout(4), 0):
            with Recorder(self.path("rank0.txt"), 0) as recorder, CommunicationHooks(recorder, Layout(4)):
                with recorder.operation("backward_step"):
                    with home._coalescing_manager():
                        dist.all_reduce(torch.ones(4))
                        dist.all_reduce(torch.ones(2, 3))
        line, = read_rank_file(self.path("rank0.txt")).lines
        self.assertEqual([(s.source, s.comm_func, s.shape) for s in line.subs], [("all_reduce_coalesced", "allreduce",
                                                                                  (10,))])
        self.assertEqual(launched, [True])


class OnTwoProcesses(ScratchTest):
    def test_gloo(self):
        script = """
            import os, sys, time
            import torch, torch.distributed as dist
            from torch.distributed import all_reduce
            from moesim_capture import Recorder
            from moesim_capture.hooks import CommunicationHooks
            from moesim_capture.layout import Layout
            rank, folder = int(sys.argv[1]), sys.argv[2]
            dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=2)
            path = folder + "/rank%d.txt" % rank
            with Recorder(path, rank) as recorder, CommunicationHooks(recorder, Layout(2, ep=2)):
                with recorder.operation("forward_step"):
                    if rank == 0:
                        time.sleep(0.3)
                    x = torch.full((3,), float(rank))
                    all_reduce(x)
                    assert x.tolist() == [1.0] * 3, x
                    out = [torch.empty(2) for _ in range(2)]
                    dist.all_gather(out, torch.full((2,), float(rank)))
                    assert [o[0].item() for o in out] == [0.0, 1.0]
                    work = dist.all_reduce(x, async_op=True)
                    work.wait()
                with recorder.operation("backward_step"):
                    pass
            """
        self.run_ranks(script, 2, self.scratch)
        lines = [read_rank_file(self.path("rank%d.txt" % rank)).lines[0] for rank in range(2)]
        for line in lines:
            self.assertEqual([(s.source, s.shape) for s in line.subs],
                             [("all_reduce", (3,)), ("_gather_along_first_dim_moe", (2,)), ("all_reduce_async", (3,))])
        # Rank 1 waited in its all-reduce for rank 0, which slept: waiting is recorded as the call's time.
        self.assertGreater(float(lines[1].subs[0].duration), 100)


if __name__ == "__main__":
    unittest.main()

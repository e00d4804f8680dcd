"""Hooks on torch.distributed: what is recorded of calls, on a fake world and on two real processes."""
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


class HookTest(ScratchTest):
    def record(self, act, layout=Layout(4), rank=0):
        """The lines of what act(recorder) does on one process that believes in others; `recorder` stays."""
        path = self.path("rank%d.txt" % rank)
        with FakeWorld(layout, rank), Recorder(path, rank, layout.of(rank).pp) as self.recorder, CommunicationHooks(
                self.recorder, layout):
            act(self.recorder)
        return read_rank_file(path).lines


class OnAFakeWorld(HookTest):
    def test_every_collective(self):
        layout = Layout(world=8, ep=4)

        def act(recorder):
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

        line, = self.record(act, layout)
        self.assertEqual([(s.source, s.comm_func, s.group, s.shape) for s in line.subs], [
            ("_gather_along_first_dim_moe", "allgather", "exp", (8, 4)),
            ("_gather_along_first_dim_moe", "allgather", "exp", (8, 4)),
            ("_gather_along_first_dim_expert_parallel", "allgather", "exp", (8,)),
            ("_reduce_scatter_along_first_dim_moe", "reduce_scatter", "exp", (8, 4)),
            ("_reduce_scatter_along_first_dim_moe", "reduce_scatter", "exp", (8, 4)),
            ("_profiled_all_to_all_single", "all_to_all", "exp", (8, 4)),
            ("_profiled_all_to_all_single", "all_to_all", "exp", (8, 4)),
            ("allreduce", "allreduce", "dp", (8, 4)),
            ("allreduce", "allreduce", "dp", (35,)),
            ("broadcast", "broadcast", "dp", (8, 4)),
            ("barrier", None, None, None),
        ])
        self.assertEqual({sub.func_name for sub in line.subs}, {"act"})

    def test_asynchronous_calls_last_until_they_are_waited_for(self):
        import time

        def act(recorder):
            with recorder.operation("backward_step"):
                work = dist.all_reduce(torch.ones(4), async_op=True)
                lost = dist.all_reduce(torch.ones(5), async_op=True)
                time.sleep(0.005)
                work.wait()
                self.assertTrue(work.is_completed())
                work.wait()
                time.sleep(0.005)
                del lost

        line, = self.record(act)
        first, second = line.subs
        self.assertEqual((first.source, first.comm_func), ("allreduce_async", "allreduce"))
        self.assertGreater(float(first.duration), 4.9)
        self.assertGreater(float(second.duration), float(first.duration) + 4.0)  # until the end of the operation

    def test_names_that_were_imported_before(self):
        import types
        user = types.ModuleType("a_users_module")
        user.all_reduce = dist.all_reduce
        sys.modules[user.__name__] = user
        self.addCleanup(sys.modules.pop, user.__name__)
        original = dist.all_reduce

        def act(recorder):
            with recorder.operation("forward_step"):
                user.all_reduce(torch.ones(4))

        line, = self.record(act)
        self.assertEqual(len(line.subs), 1)
        self.assertIs(user.all_reduce, original)  # everything is put back
        self.assertIs(dist.all_reduce, original)
        self.assertIs(dist.distributed_c10d.all_reduce, original)

    def test_transfers_between_stages(self):
        layout = Layout(world=8, pp=4)  # ranks 2 and 3 are stage 1

        def act(recorder):
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

        lines = self.record(act, layout, 2)
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


class Names(HookTest):
    """Which call is what."""

    def calls(self, act, operations=("forward_step",)):
        def all_of_them(recorder):
            for name in operations:
                with recorder.operation(name):
                    act(name)

        lines = self.record(all_of_them, Layout(4, ep=4))
        return [[(s.source, s.comm_func, s.group, s.shape) for s in line.subs] for line in lines]

    def test_an_all_reduce_of_what_was_gathered_is_a_combine(self):
        def act(name):
            x, all_x = torch.zeros(5, 3), torch.zeros(20, 3)
            if name == "forward_step":
                dist.all_reduce(torch.zeros(20, 3))  # before the gather it is any reduction
                dist.all_gather_into_tensor(all_x, x)
            dist.all_reduce(all_x)
            dist.all_reduce(torch.zeros(1))

        forward, backward = self.calls(act, operations=("forward_step", "backward_step"))
        self.assertEqual([call[::2] for call in forward],
                         [("allreduce", "dp"), ("_gather_along_first_dim_moe", "exp"), ("_reduce_along_first_dim_moe", "exp"),
                          ("allreduce", "dp")])
        self.assertEqual([call[::2] for call in backward], [("_reduce_along_first_dim_moe", "exp"), ("allreduce", "dp")])

    def test_flat_parameters_are_no_tokens(self):
        def act(name):
            dist.all_gather_into_tensor(torch.zeros(40), torch.zeros(10))
            dist.reduce_scatter_tensor(torch.zeros(10), torch.zeros(40))

        calls, = self.calls(act)
        self.assertEqual([call[::2] for call in calls], [("all_gather_into_tensor", "dp"), ("reduce_scatter_tensor", "dp")])

    def test_the_loss_is_reduced_under_the_public_recorders_name(self):
        def act(recorder):
            with recorder.operation("loss_func"):
                dist.all_reduce(torch.zeros(1))

        sub = self.record(act)[0].subs[0]
        self.assertEqual((sub.source, sub.func_name, sub.group, sub.comm_func, sub.shape),
                         ("allreduce", "loss_func", "dp", "allreduce", (1,)))


class Methods(ScratchTest):
    def test_hooked_methods_keep_their_names(self):
        """pybind11 would call a method of another name again and again, as an override of itself."""
        kind = dist.distributed_c10d.ProcessGroup
        before = dict(vars(kind))
        with Recorder(self.path("rank0.txt"), 0) as recorder, CommunicationHooks(recorder, Layout(1)):
            hooked = [name for name in vars(kind) if vars(kind)[name] is not before[name]]
            self.assertGreaterEqual(set(hooked), {"allreduce", "alltoall_base", "allgather", "send", "recv", "barrier"})
            for name in hooked:
                self.assertEqual(vars(kind)[name].__code__.co_name, name)
            self.assertEqual(dist.distributed_c10d.Work.wait.__code__.co_name, "wait")
        self.assertEqual({name: vars(kind)[name] for name in hooked}, {name: before[name] for name in hooked})


class Waits(HookTest):
    def test_what_is_waited_for_at_once_hides_behind_nothing(self):
        def act(recorder):
            with recorder.operation("forward_step"):
                work = dist.all_reduce(torch.ones(4), async_op=True)
                work.wait()
                dist.all_reduce(torch.ones(4), async_op=True).wait()
                later = dist.all_reduce(torch.ones(4), async_op=True)
                torch.ones(3).sum()
                later.wait()

        line, = self.record(act)
        self.assertEqual([sub.source for sub in line.subs], ["allreduce", "allreduce", "allreduce_async"])

    def test_waited_for_in_a_later_operation(self):
        def act(recorder):
            with recorder.operation("forward_step"):
                work = dist.all_reduce(torch.ones(4), async_op=True)
            with recorder.operation("backward_step"):
                work.wait()

        forward, backward = self.record(act)
        self.assertEqual([(sub.source, sub.comm_func) for sub in forward.subs], [("allreduce_async", "allreduce")])
        self.assertIn("1 calls still in flight", forward.description)
        self.assertEqual([(sub.source, sub.comm_func, sub.func_name) for sub in backward.subs],
                         [("wait", None, "allreduce_async")])
        self.assertIn("1 calls were waited for in a later operation", self.recorder.warnings[0])

    def test_a_collective_that_raises_and_is_caught_is_no_call(self):
        def act(recorder):
            with recorder.operation("forward_step"):
                with self.assertRaises(RuntimeError):
                    dist.all_gather_into_tensor(torch.empty(3, 3), torch.empty(2, 2))
                dist.all_reduce(torch.ones(4))

        line, = self.record(act)
        self.assertEqual([sub.source for sub in line.subs], ["allreduce"])
        self.assertEqual(self.recorder.raised, 1)

    def test_a_mistake_of_ours_loses_a_call_and_not_the_program(self):
        def act(recorder):
            with recorder.operation("forward_step"):
                start = recorder.start_call
                recorder.start_call = lambda *arguments: 1 / 0
                out = torch.empty(8)
                dist.all_gather_into_tensor(out, torch.ones(2))
                recorder.start_call = start
                self.assertEqual(out.sum().item(), 8.0)
                dist.all_reduce(out)

        line, = self.record(act)
        self.assertEqual(len(line.subs), 1)
        self.assertIn("a call of all_gather_into_tensor was not recorded: ZeroDivisionError", self.recorder.warnings[0])


class Contributions(ScratchTest):
    def test_all_to_alls_take_them(self):
        """Rank 1 of two with the counts that rank 0 sends it: equal shares are cut out of what all send."""
        with FakeWorld(Layout(2, ep=2), 1) as world:
            world.contributes(lambda t, g: t.dtype == torch.int64, lambda t, g: torch.tensor([1, 2, 3, 4, 5, 6, 7, 8]))
            world.contributes(lambda t, g: t.dtype == torch.float32, lambda t, g: torch.full((5, 2), 7.0))
            out = torch.empty(4, dtype=torch.int64)
            dist.all_to_all_single(out, torch.tensor([5, 6, 7, 8]))
            self.assertEqual(out.tolist(), [3, 4, 7, 8])
            rows = torch.empty(5, 2)
            dist.all_to_all_single(rows, torch.ones(3, 2), [2, 3], [1, 2])
            self.assertEqual(rows.tolist(), [[7.0, 7.0]] * 5)
            with self.assertRaises(ValueError):
                dist.all_to_all_single(torch.empty(4, 2), torch.ones(3, 2), [2, 2], [1, 2])

    def test_handles_are_works(self):
        with FakeWorld(Layout(2), 0):
            work = dist.all_reduce(torch.ones(2), async_op=True)
        self.assertIsInstance(work, dist.distributed_c10d.Work)


class OnTwoProcesses(ScratchTest):
    def test_calls_of_gloo_and_what_c_plus_plus_launches(self):
        script = """
            import os, sys, time
            import torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            from moesim_capture import Recorder
            from moesim_capture.hooks import CommunicationHooks
            from moesim_capture.layout import Layout
            rank, folder = int(sys.argv[1]), sys.argv[2]
            dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=2)
            model = DistributedDataParallel(torch.nn.Linear(4, 4))
            model(torch.ones(2, 4)).sum().backward()
            os.makedirs(folder + "/wd2_dp2", exist_ok=True)
            with Recorder(folder + "/wd2_dp2/rank%d.txt" % rank, rank) as recorder, CommunicationHooks(recorder,
                                                                                                       Layout(2)) as hooks:
                assert hooks.unseen.number(dist.group.WORLD) is not None
                with recorder.operation("forward_step"):
                    loss = model(torch.ones(2, 4)).sum()
                    if rank == 0:
                        time.sleep(0.3)
                    dist.all_reduce(loss.detach())
                    work = dist.all_reduce(torch.ones(3), async_op=True)
                    time.sleep(0.001)
                    work.wait()
                with recorder.operation("loss_func"):
                    pass
                with recorder.operation("backward_step"):
                    loss.backward()
                with recorder.operation("optimizer_step"):
                    pass
                print(len(recorder.warnings))
            """
        outs = self.run_ranks(script, 2, self.scratch)
        lines = read_rank_file(self.path("wd2_dp2", "rank1.txt")).lines
        backward = next(line for line in lines if line.name == "backward_step")
        self.assertIn("; 1 calls not seen;", backward.description)
        # The recording has the calls that Python launched. Rank 1 waits while rank 0 sleeps, so its call takes as long.
        self.assertEqual([(sub.source, sub.shape) for sub in lines[0].subs], [("allreduce", ()), ("allreduce_async", (3,))])
        self.assertGreater(float(lines[0].subs[0].duration), 100)
        self.assertGreaterEqual(int(outs[1]), 1)
        done = self.moesim("trace", "check", self.path("wd2_dp2"))
        self.assertIn("did not see all transfers", done.stdout)

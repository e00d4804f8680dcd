"""The reference job: both dispatchers compute the same, scaling recordings show what real runs do, moesim reads and replays
them."""
import json
import os
import pathlib
import time
import unittest

import torch

from moesim_capture.__main__ import main
from moesim_capture.cmd_format import read_rank_file
from moesim_capture.fake_world import FakeWorld
from moesim_capture.reference import cores, runner
from moesim_capture.reference.config import JobConfig
from moesim_capture.reference.job import Groups, RankJob
from moesim_capture.reference.layers import GroupedExperts, LoopedExperts
from moesim_capture.reference.planned_routing import plan_routing
from support import ScratchTest

SMALL = dict(hidden=32, ffn=48, heads=4, layers=2, vocab=64, seq=16, experts=4, microbatches=2)
SIZES = [word for name, value in SMALL.items() for word in ("--" + name, str(value))]


class Cores(unittest.TestCase):
    def test_where_the_time_of_a_process_went(self):
        before = cores.times()
        if before is None:
            self.skipTest("this kernel does not count by thread")
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        time.sleep(0.05)
        spent = cores.between(before, cores.times())
        self.assertGreaterEqual(spent["on_core"], 25)
        self.assertLess(spent["on_core"], 60)  # sleeping is neither work nor waiting
        self.assertGreaterEqual(min(spent.values()), 0)
        self.assertIsNone(cores.between(None, before))


class Routing(unittest.TestCase):
    def test_balanced_and_drawn(self):
        balanced = plan_routing(JobConfig(routing="balanced", **SMALL))
        self.assertEqual(balanced.received, [32, 32, 32, 32])
        skewed = plan_routing(JobConfig(routing="zipf:1.5", **SMALL))
        self.assertEqual(sum(skewed.received), 4 * 16 * 2)
        self.assertGreater(skewed.received[0], skewed.received[3])
        again = plan_routing(JobConfig(routing="zipf:1.5", **SMALL))
        self.assertTrue(torch.equal(skewed.counts, again.counts))
        for rank in skewed.indices:
            self.assertTrue(bool((rank[:, 0] != rank[:, 1]).all()))  # no expert twice

    def test_bad_names_and_sizes(self):
        for options in ({"routing": "zipf:x"}, {"routing": "nowhere.json"}, {"routing": "balanced:1"}):
            with self.assertRaises(ValueError):
                plan_routing(JobConfig(**{**SMALL, **options}))
        for options in ({"experts": 6}, {"topk": 9}, {"heads": 5}, {"dispatcher": "x"}, {"layers": 3, "pp": 2},
                        {"world": 6}, {"seq": 0}, {"dtype": "int8"}, {"ep": 1, "tp": 4, "heads": 2},
                        {"ep": 1, "tp": 4, "ffn": 50}, {"ep": 1, "tp": 4, "seq": 18}):
            with self.assertRaises(ValueError):
                JobConfig(**{**SMALL, **options})


class Layers(unittest.TestCase):
    def test_grouped_and_looped_experts_agree(self):
        torch.manual_seed(3)
        looped, grouped = LoopedExperts(3, 8, 12), GroupedExperts(3, 8, 12)
        with torch.no_grad():
            for e in range(3):
                grouped.up[e].copy_(looped.up[e].weight.t())
                grouped.down[e].copy_(looped.down[e].weight.t())
        for counts in ([4, 0, 3], [0, 0, 0], [1, 1, 1], [0, 7, 0]):
            rows = torch.randn(sum(counts), 8)
            torch.testing.assert_close(looped(rows, counts), grouped(rows, counts))

    def test_dispatchers_agree_on_one_rank(self):
        results = {}
        for dispatcher in ("allgather", "alltoall"):
            config = JobConfig(world=1, ep=1, dispatcher=dispatcher, routing="zipf:1.0", **SMALL)
            with FakeWorld(config.layout, 0) as world:
                routing = plan_routing(config)
                runner.contribute_routing(world, routing)
                job = RankJob(config, 0, routing, Groups(config.layout, 0))
                job.iteration()
            results[dispatcher] = (job.loss, job.dense.buffer.clone(), job.expert.buffer.clone())
        for one, other in zip(results["allgather"], results["alltoall"]):
            torch.testing.assert_close(one, other)
        self.assertGreater(float(results["alltoall"][2].abs().max()), 0)


WORKER = """
import json, os, sys
import torch, torch.distributed as dist
from moesim_capture.reference.config import JobConfig
from moesim_capture.reference.job import Groups, RankJob
from moesim_capture.reference.planned_routing import plan_routing
rank, rendezvous, config = int(sys.argv[1]), sys.argv[2], JobConfig(**json.loads(sys.argv[3]))
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=config.world)
job = RankJob(config, rank, plan_routing(config), Groups(config.layout, rank))
job.iteration()
loss = job.loss.item() if job.stage.last else None
whole = {id(p) for p in job.stage.whole_parameters()}
norms = [sum(p.grad.double().pow(2).sum().item() for p in job.stage.parameters() if (id(p) in whole) == side)**0.5
         for side in (True, False)]
print(json.dumps([loss, job.dense.buffer.double().norm().item(), job.expert.buffer.double().norm().item(), *norms]),
      flush=True)
"""


class RealRuns(ScratchTest):
    def run_processes(self, **options):
        config = {**SMALL, **options}
        rendezvous = self.path("rendezvous-%d" % len(os.listdir(self.scratch)))
        return [json.loads(out) for out in self.run_ranks(WORKER, config["world"], rendezvous, json.dumps(config))]

    def test_dispatchers_agree_across_ranks(self):
        gathered, exchanged = (self.run_processes(world=2, ep=2, routing="zipf:1.0", dispatcher=dispatcher)
                               for dispatcher in ("allgather", "alltoall"))
        for one, other in zip(gathered, exchanged):
            for a, b in zip(one, other):
                self.assertAlmostEqual(a, b, delta=1e-4 * abs(b))
        self.assertEqual(gathered[0][0], gathered[1][0])  # the loss is the mean of all ranks

    def test_pipeline_computes_what_one_stage_does(self):
        one, = self.run_processes(world=1, ep=1)
        first, last = self.run_processes(world=2, ep=1, pp=2)
        self.assertAlmostEqual(last[0], one[0], delta=1e-4 * one[0])
        for i in (1, 2):  # norms of the gradients
            self.assertAlmostEqual((first[i]**2 + last[i]**2)**0.5, one[i], delta=1e-4 * one[i])

    def test_tensor_parallelism_computes_what_one_rank_does(self):
        for dispatcher in ("allgather", "alltoall"):
            with self.subTest(dispatcher):
                job = dict(ep=1, micro_batch=2, dispatcher=dispatcher, routing="zipf:1.0")
                one, = self.run_processes(world=1, **job)
                shares = self.run_processes(world=2, tp=2, grouped=True, **job)
                # Weights that every rank has have the whole gradient; those of heads and experts are parts of it.
                looped = self.run_processes(world=2, tp=2, **job)
                for share in looped:
                    self.assertAlmostEqual(share[0], one[0], delta=1e-5 * one[0])
                    self.assertAlmostEqual(share[3], one[3], delta=1e-4 * one[3])
                self.assertAlmostEqual(sum(share[4]**2 for share in looped)**0.5, one[4], delta=1e-4 * one[4])
                whole, = self.run_processes(world=1, grouped=True, **job)
                self.assertAlmostEqual(shares[0][0], whole[0], delta=1e-5 * whole[0])
                self.assertAlmostEqual(sum(share[4]**2 for share in shares)**0.5, whole[4], delta=1e-4 * whole[4])


def rows_of(folder, operation):
    """Calls by rank: [(source, shape), ...] of the first line of this operation."""
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".txt"):
            content = read_rank_file(os.path.join(folder, name))
            line = next(line for line in content.lines if line.name == operation)
            # gloo before torch 2 gathers into a list.
            out[line.rank] = [(sub.source.replace("all_gather_into_tensor", "all_gather"), sub.shape, sub.dtype)
                              for sub in line.subs]
    return out


class Recordings(ScratchTest):
    def run_main(self, *arguments):
        self.assertEqual(main(list(arguments)), 0)

    def record(self, mode, dispatcher, *extra):
        arguments = ["run", "--mode", mode, "--out", self.path(dispatcher), "--passes", "1", "--warmup", "1", "--world",
                     "2", "--ep", "2", *SIZES, "--dispatcher", dispatcher, *extra]
        self.run_main(*arguments)
        self.assertEqual(main(arguments), 2)  # never over a recording that is there
        folder, = os.listdir(self.path(dispatcher))
        return self.path(dispatcher, folder, mode)

    def record_both(self, dispatcher, *extra):
        """A real and a scaling recording that show the same calls, as moesim reads them; and the routing, recorded as planned."""
        real, scaling = (self.record(mode, dispatcher, "--routing", "zipf:1.2", *extra) for mode in ("realistic", "scaling"))
        for operation in ("forward_step", "backward_step", "loss_func", "optimizer_step"):
            self.assertEqual(rows_of(real, operation), rows_of(scaling, operation))
        for folder in (real, scaling):
            self.assertNotIn("no backward collectives", self.answered("trace", "check", folder).stderr)
            self.assert_round_trip(folder)
        merged = self.path("merged-%s.json" % dispatcher)
        self.run_main("merge-routing", real, *(extra or ("--world", "2")), "--ep", "2", "--out", merged)
        planned = os.path.join(os.path.dirname(real), "dispatching.json")
        rows, wanted = (json.loads(pathlib.Path(path).read_text())["num_global_tokens_per_expert"] for path in (merged, planned))
        self.assertEqual(rows, wanted)
        return real, scaling, rows, planned

    def test_scaling_shows_what_a_real_run_does(self):
        for dispatcher in ("allgather", "alltoall"):
            with self.subTest(dispatcher):
                real, scaling, _, _ = self.record_both(dispatcher)
                with open(self.path("cluster.json"), "w") as file:
                    json.dump({"profile": "h100-sxm", "nodes": 1, "gpus_per_node": 2}, file)
                done = self.answered("validate", "--forecast", scaling, "--measured", real, "--cluster",
                                     self.path("cluster.json"), "--format", "json")
                components = json.loads(done.stdout)["components"]
                self.assertGreaterEqual(set(components), {"forward", "backward", "loss", "optimizer", "dp_allreduce"})

    def test_one_process_plays_tensor_parallel_ranks(self):
        # 16 tokens of hidden 32 over 2 ranks: each has 8 of them; the 4 ranks of the dispatch group have 32. Where columns
        # are shared instead, each has 16 tokens of 16 columns.
        shapes = {"allgather": {("_gather_along_first_dim_moe", (8, 32)), ("_gather_along_first_dim_moe", (8, 2)),
                                ("_reduce_scatter_along_first_dim_moe", (32, 32))},
                  "alltoall": {("all_to_all_single", (16, 16)), ("_profiled_all_to_all_single", (32, 16)),
                               ("_gather_along_first_dim_expert_parallel", (4,))}}
        for dispatcher in ("allgather", "alltoall"):
            with self.subTest(dispatcher):
                real, scaling, routed, planned = self.record_both(dispatcher, "--world", "4", "--tp", "2")
                made = {(source, tuple(shape)) for source, shape, _ in rows_of(real, "forward_step")[0]}
                self.assertLessEqual(shapes[dispatcher] | {("_reduce_scatter_along_first_dim", (16, 1, 32))}, made)
                done = self.answered("replay", scaling, "--microbatches", "2", "--cluster", "dgx-h100x1", "--draws", "0",
                                     "--format", "json")
                self.assertEqual(len(json.loads(done.stdout)["ranks"]), 4)
                model = self.write("model.json", json.dumps({
                    "hidden_size": 32, "moe_intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "vocab_size": 64}).encode())
                # The recorded dispatcher's calls are told from attention's, so that another one can take their place.
                recorded, other = (self.moesim("replay", scaling, "--microbatches", "2", "--dispatcher", name, "--model", model,
                                               "--cluster", "dgx-h100x1", "--draws", "0", "--format", "json")
                                   for name in ("as-recorded", {"allgather": "alltoall-legacy",
                                                                "alltoall": "allgather-legacy"}[dispatcher]))
                self.assertEqual(other.returncode, 0, other.stderr)
                first, second = (json.loads(done.stdout)["iteration_us"]["value"] for done in (recorded, other))
                self.assertNotEqual(first, second)
                self.assertLess(max(first, second), 2 * min(first, second))
                self.assertEqual([sum(row) for row in routed], [16] * 4)  # 8 of top-2
                # The file that was written is a routing to run under.
                config = dict(SMALL, world=4, tp=2, ep=2)
                again = plan_routing(JobConfig(**config, routing=planned))
                self.assertTrue(torch.equal(again.counts, plan_routing(JobConfig(**config, routing="zipf:1.2")).counts))

    def test_pipeline(self):
        self.run_main("run", "--mode", "realistic", "--out", self.scratch, "--passes", "1", "--warmup", "1", "--world", "2",
                      "--ep", "1", "--pp", "2", *SIZES)
        folder = self.path(next(name for name in os.listdir(self.scratch) if name.startswith("pp")), "realistic")
        done = self.answered("trace", "check", folder)
        done = self.moesim("trace", "info", folder, "--format", "json")
        self.assertIn("realistic", done.stdout)

    def test_constants_come_from_scaling_recordings_only(self):
        scaling = self.record("scaling", "alltoall")
        out = self.path("constants.json")
        self.run_main("constants", scaling, "--out", out)
        with open(out) as file:
            values = json.load(file)["profiles"]["host"]
        self.assertEqual(values["exposed_gather"]["value"], 0)
        self.assertGreater(values["gradient_prescale"]["value"], 0)
        real = self.record("realistic", "alltoall")
        self.assertEqual(main(["constants", real, "--out", out]), 2)

    def test_bad_usage_is_one_line(self):
        for arguments in (["run", "--mode", "scaling", "--out", self.scratch, "--experts", "3"],
                          ["run", "--mode", "scaling", "--out", self.scratch, "--routing", "zipf:-1"],
                          ["run", "--mode", "scaling", "--out", self.scratch, "--ep", "3"],
                          ["run", "--mode", "scaling", "--out", self.scratch, "--device", "gpu"],
                          ["run", "--mode", "scaling", "--out", self.scratch, "--passes", "1", "--device", "cuda:99"],
                          ["measure", "--world", "1", "--out", self.path("x.json")]):
            self.assertEqual(main(arguments), 2)
        self.assertEqual(os.listdir(self.scratch), [])
        for arguments in (["run"], ["fly"], ["run", "--mode", "scaling", "--out", "x", "--passes", "0"]):
            with self.assertRaises(SystemExit) as caught:
                main(arguments)
            self.assertEqual(caught.exception.code, 2)

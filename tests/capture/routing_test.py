"""The recorder of routing, on routers that return what Megatron's and torchtitan's do."""
import json
import pathlib

import torch

from moesim_capture import Recorder
from moesim_capture.__main__ import main
from moesim_capture.layout import Layout
from moesim_capture.routing import RoutingError, RoutingRecorder, chosen_experts, merge
from support import ScratchTest

E, K = 4, 2
INDICES = torch.tensor([[0, 1], [2, 3], [0, 2]])
COUNTS = [2, 1, 2, 1]


class TopKRouter(torch.nn.Module):  # Megatron core: probabilities [T, E] and a map [T, E]
    def forward(self, x):
        routing_map = torch.zeros(3, E, dtype=torch.bool).scatter_(1, INDICES, True)
        return routing_map.float() / K, routing_map


class OlderTopKRouter(torch.nn.Module):  # Megatron core before the map: scores [T, K] and indices [T, K]
    def forward(self, x):
        return torch.full((3, K), 0.5), INDICES


class TokenChoiceTopKRouter(torch.nn.Module):  # torchtitan: scores, indices, tokens per expert
    def forward(self, x):
        return torch.full((3, K), 0.5), INDICES, torch.tensor(COUNTS, dtype=torch.float32)


class Model(torch.nn.Module):
    def __init__(self, *routers):
        super().__init__()
        self.layers = torch.nn.ModuleList(routers)

    def forward(self, x):
        for layer in self.layers:
            layer(x)


class Routers(ScratchTest):
    def test_every_kind_gives_the_same_counts(self):
        for router in (TopKRouter(), OlderTopKRouter(), TokenChoiceTopKRouter()):
            indices, counts = chosen_experts(router(None), E)
            self.assertEqual(counts.tolist(), COUNTS)
            if not isinstance(router, TopKRouter):
                self.assertEqual(indices.tolist(), INDICES.tolist())
        with self.assertRaises(RoutingError):
            chosen_experts((torch.zeros(3, E),), E)

    def record(self, rank, passes=2, keep=False):
        model = Model(TopKRouter() if not keep else OlderTopKRouter(), TokenChoiceTopKRouter())
        with RoutingRecorder(self.path("routing_rank%d.jsonl" % rank), rank, E, keep_indices=keep) as recorder:
            self.assertEqual(recorder.watch(model), 2)
            for _ in range(passes):
                model(None)
        model(None)  # hooks are gone

    def test_files_and_merging(self):
        for rank in range(2):
            self.record(rank, keep=True)
        rows = [json.loads(row) for row in pathlib.Path(self.path("routing_rank1.jsonl")).read_text().splitlines()]
        self.assertEqual([(row["layer"], row["microbatch"]) for row in rows[1:]], [(0, 0), (1, 0), (0, 1), (1, 1)])
        merged = merge(self.scratch, Layout(2, ep=2))
        self.assertEqual(merged["num_global_tokens_per_expert"], [COUNTS, COUNTS])  # all equal: one table for all
        self.assertNotIn("tables", merged)
        self.assertEqual(merged["topk_indices"]["1"], INDICES.tolist())

    def test_moesim_takes_the_dispatching_file(self):
        indices = torch.arange(16).view(8, 2) % 8
        for rank in range(2):
            with RoutingRecorder(self.path("routing_rank%d.jsonl" % rank), rank, 8, keep_indices=True) as recorder:
                recorder.note(0, (torch.ones(8, 2), indices))
        out = self.path("dispatching.json")
        self.assertEqual(main(["merge-routing", self.scratch, "--world", "2", "--ep", "2", "--out", out]), 0)
        self.answered("compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "2", "--seq", "8",
                      "--routing", out, "--dispatcher", "alltoall")

    def test_recomputed_forwards_are_the_same_microbatch(self):
        model = Model(TopKRouter())
        with Recorder(self.path("rank0.txt"), 0) as recorder, RoutingRecorder(
                self.path("routing_rank0.jsonl"), 0, E, recorder) as routing:
            routing.watch(model)
            for _ in range(2):
                with recorder.operation("forward_step"):
                    model(None)
                with recorder.operation("backward_step"):
                    model(None)
        self.assertEqual(len(pathlib.Path(self.path("routing_rank0.jsonl")).read_text().splitlines()), 3)

    def test_bad_folders(self):
        layout = Layout(2, ep=2)
        with self.assertRaisesRegex(RoutingError, "no routing_rank"):
            merge(self.scratch, layout)
        self.record(0)
        with self.assertRaisesRegex(RoutingError, "no file of rank 1"):
            merge(self.scratch, layout)
        for content in (b"", b"{}\n", b"{\n", b'{"schema": "moesim.routing-lines/1", "rank": 1, "experts": 4}\n{"layer": 0}\n',
                        b'{"schema": "moesim.routing-lines/1", "rank": 1, "experts": 4}'):
            self.write("routing_rank1.jsonl", content)
            with self.assertRaises(RoutingError) as caught:
                merge(self.scratch, layout)
            self.assertIn("routing_rank1.jsonl", str(caught.exception))

"""Records who routes how many tokens where, and writes the dispatching files that moesim reads (docs/formats.md).

Each rank appends one JSON line per router call to its own file; `merge` makes one dispatching file of one expert-parallel
group of them. Routers are found by what they return, so Megatron's (probabilities with a map [T, E] or indices [T, K])
and torchtitan's (scores [T, K], indices [T, K], counts [E]) both work unchanged.
"""
import json
import os
import re
from collections import defaultdict
from typing import List, Optional

import torch

from .layout import Layout
from .recorder import write_all

SCHEMA = "moesim.routing-lines/1"


class RoutingError(ValueError):
    """Bad input, said in one line."""


def chosen_experts(output, experts: int):
    """(indices [T, K] or None, counts [E]) of what a router returned, without waiting for the device."""
    values = list(output) if isinstance(output, (tuple, list)) else [output]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    for value in tensors:
        if value.dtype == torch.bool and value.dim() >= 2 and value.shape[-1] == experts:
            return None, value.reshape(-1, experts).sum(0)
    for value in tensors:
        if value.dtype in (torch.int64, torch.int32) and value.dim() >= 2:
            indices = value.reshape(-1, value.shape[-1]).long()
            counts = torch.zeros(experts, dtype=torch.int64, device=value.device)
            return indices, counts.scatter_add_(0, indices.reshape(-1), torch.ones_like(indices.reshape(-1)))
    raise RoutingError("found a router that returns %s, expected a bool map [T, %d] or integer indices [T, K]" % (
        ", ".join("%s %s" % (list(t.shape), t.dtype) for t in tensors) or "no tensor", experts))


def is_router(module) -> bool:
    return type(module).__name__.endswith("Router")


class RoutingRecorder:
    """Watches routers; counts stay on the device until `flush`, which the recorder calls between operations."""

    def __init__(self, path, rank: int, experts: int, recorder=None, keep_indices: bool = False):
        self.path, self.rank, self.experts, self.recorder = os.fspath(path), rank, experts, recorder
        self.keep_indices = keep_indices
        self._calls = defaultdict(int)
        self._pending = []
        self._handles = []
        if os.path.dirname(self.path):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._put({"schema": SCHEMA, "rank": rank, "experts": experts})
        if recorder is not None:
            recorder.after_line.append(self.flush)

    def watch(self, model, routers=None) -> int:
        """Hooks the routers of a model (modules named ...Router unless given), in order; returns how many."""
        found = list(routers) if routers is not None else [m for m in model.modules() if is_router(m)]
        start = len(self._handles)
        for layer, router in enumerate(found, start):
            self._handles.append(router.register_forward_hook(self._hook(layer)))
        return len(found)

    def _hook(self, layer):
        def hook(module, inputs, output):
            self.note(layer, output)

        return hook

    def note(self, layer: int, output):
        """One call of a router. The call again that recomputes activations during backward is the same microbatch."""
        if self.recorder is not None and (self.recorder.paused or self.recorder.open_operation == "backward_step"):
            return
        indices, counts = chosen_experts(output, self.experts)
        microbatch = self._calls[layer]
        self._calls[layer] += 1
        self._pending.append((layer, microbatch, counts, indices.detach() if self.keep_indices and indices is not None
                              else None))

    def flush(self):
        pending, self._pending = self._pending, []
        for layer, microbatch, counts, indices in pending:
            row = {"layer": layer, "microbatch": microbatch, "num_local_tokens_per_expert": counts.tolist()}
            if indices is not None:
                row["topk_indices"] = indices.tolist()
            self._put(row)

    def close(self):
        self.flush()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def _put(self, row):
        write_all(self._file, json.dumps(row) + "\n")


def read_lines(path):
    """(rank, experts, rows) of one rank's file. Raises RoutingError."""
    head, rows = None, []
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            place = "%s:%d" % (path, number)
            if not text.endswith("\n"):
                raise RoutingError("%s: found a last line without a line break, expected whole lines" % place)
            try:
                row = json.loads(text)
            except ValueError as error:
                raise RoutingError("%s: found %s, expected a JSON object" % (place, error)) from None
            if head is None:
                if not isinstance(row, dict) or row.get("schema") != SCHEMA:
                    raise RoutingError('%s: found no "schema": "%s", expected a routing recording' % (place, SCHEMA))
                head = row
                continue
            counts = row.get("num_local_tokens_per_expert") if isinstance(row, dict) else None
            if not isinstance(counts, list) or len(counts) != head["experts"]:
                raise RoutingError("%s: found no num_local_tokens_per_expert of %d numbers" % (place, head["experts"]))
            rows.append(row)
    if head is None:
        raise RoutingError("%s: found an empty file, expected a routing recording" % path)
    return head["rank"], head["experts"], rows


def merge(folder, layout: Layout, group: int = 0) -> dict:
    """The dispatching file (as an object) of one expert-parallel group: files routing_rank<N>.jsonl of all its ranks.

    With pipeline stages the layers of later ones follow those of earlier ones. Under tensor parallelism, where
    each router sees its share of the sequence, a table has a row for every rank of both groups.
    """
    found = {}
    for name in sorted(os.listdir(folder)):
        if re.match(r"routing_rank\d+\.jsonl\Z", name):
            rank, experts, rows = read_lines(os.path.join(folder, name))
            found[rank] = (experts, rows)
    if not found:
        raise RoutingError("%s: found no routing_rank<N>.jsonl, expected one of every rank" % folder)
    experts = next(iter(found.values()))[0]
    tables, first_layer = [], 0
    for stage in range(layout.pp):
        start = layout.rank(layout.of(0)._replace(pp=stage, edp=group))
        members = layout.group("tp_exp", start)
        missing = [rank for rank in members if rank not in found]
        if missing:
            raise RoutingError("%s: found no file of rank %d, expected all of %s" % (folder, missing[0], members))
        by_key = []
        for rank in members:
            rank_experts, rows = found[rank]
            if rank_experts != experts:
                raise RoutingError("%s: found %d experts on rank %d, expected %d" % (folder, rank_experts, rank, experts))
            by_key.append({(row["layer"], row["microbatch"]): row for row in rows})
        keys = sorted(set.intersection(*map(set, by_key))) if by_key else []
        for layer, microbatch in keys:
            rows = [rows[(layer, microbatch)] for rows in by_key]
            table = {"layer": first_layer + layer, "microbatch": microbatch,
                     "num_global_tokens_per_expert": [row["num_local_tokens_per_expert"] for row in rows]}
            if all("topk_indices" in row for row in rows):
                table["topk_indices"] = {str(i): row["topk_indices"] for i, row in enumerate(rows)}
            tables.append(table)
        first_layer += 1 + max((layer for layer, _ in keys), default=-1)
    if not tables:
        raise RoutingError("%s: found no layer and microbatch that all ranks recorded" % folder)
    return dispatching(layout.tp * layout.ep, experts, tables)


def dispatching(ep: int, experts: int, tables: List[dict], about: Optional[str] = None) -> dict:
    """A dispatching file; where all tables are equal, one that holds for every layer and microbatch."""
    out = {"schema": "moesim.dispatching/1", "about": about or "recorded by moesim-capture", "ep": ep,
           "experts": experts}
    content = [{k: v for k, v in table.items() if k not in ("layer", "microbatch")} for table in tables]
    if all(one == content[0] for one in content):
        out.update(content[0])
    else:
        out["tables"] = tables
    return out

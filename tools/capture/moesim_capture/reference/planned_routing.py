"""Routing that is fixed before the run: the experts of every token of every expert-parallel rank, the same for all layers
and microbatches. So every mode of running knows what the other ranks route."""
import json
from typing import List

import torch

from .config import JobConfig


class PlannedRouting:
    """indices[r]: [T, K] experts of the tokens of expert-parallel rank r."""

    def __init__(self, indices: List[torch.Tensor], experts: int):
        self.indices, self.experts = indices, experts
        self.counts = torch.stack([torch.bincount(one.flatten(), minlength=experts) for one in indices])  # [EP, E]

    @property
    def received(self) -> List[int]:
        """Rows that the experts of each rank compute."""
        ep = len(self.indices)
        return self.counts.sum(0).view(ep, -1).sum(1).tolist()

    def table(self) -> dict:
        return {"per_rank_results": {str(r): {"num_local_tokens_per_expert": row.tolist()}
                                     for r, row in enumerate(self.counts)},
                "num_global_tokens_per_expert": self.counts.tolist(),
                "topk_indices": {str(r): one.tolist() for r, one in enumerate(self.indices)}}


def plan_routing(config: JobConfig) -> PlannedRouting:
    """The routing that config.routing names. Raises ValueError with one line for what it does not understand."""
    name, _, value = config.routing.partition(":")
    if name == "balanced" and not value:
        return PlannedRouting([_balanced(config, r) for r in range(config.ep)], config.experts)
    if name == "zipf":
        try:
            exponent = float(value)
        except ValueError:
            exponent = -1.0
        if not 0.0 <= exponent <= 10.0:
            raise ValueError("found routing %s, expected zipf:S with S from 0 to 10" % config.routing)
        return PlannedRouting([_zipf(config, r, exponent) for r in range(config.ep)], config.experts)
    return PlannedRouting(_from_file(config), config.experts)


def _balanced(config: JobConfig, rank: int) -> torch.Tensor:
    slots = torch.arange(config.tokens * config.topk).view(config.tokens, config.topk)
    return (slots + rank) % config.experts


def _zipf(config: JobConfig, rank: int, exponent: float) -> torch.Tensor:
    """Experts are drawn without repetition, expert e with weight (e + 1)^-exponent (Gumbel's trick)."""
    generator = torch.Generator().manual_seed(config.seed * 1000003 + rank)
    weights = -exponent * torch.log(torch.arange(1, config.experts + 1, dtype=torch.float64))
    uniform = torch.rand(config.tokens, config.experts, generator=generator, dtype=torch.float64)
    keys = weights - torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
    return keys.topk(config.topk, dim=1).indices


def _from_file(config: JobConfig) -> List[torch.Tensor]:
    path = config.routing
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise ValueError("found routing %s, expected balanced, zipf:S or a dispatching file (%s)" % (
            path, error.strerror)) from None
    except ValueError as error:
        raise ValueError("%s: found %s, expected JSON" % (path, error)) from None
    expected = "%d x %d topk_indices below %d of each of %d ranks" % (config.tokens, config.topk, config.experts,
                                                                     config.ep)
    found = content.get("topk_indices") if isinstance(content, dict) else None
    ranks = []
    for r in range(config.ep):
        rows = found.get(str(r)) if isinstance(found, dict) else None
        try:
            ranks.append(torch.tensor(rows, dtype=torch.int64))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError("%s: found no topk_indices of rank %d, expected %s" % (path, r, expected)) from None
        if tuple(ranks[r].shape) != (config.tokens, config.topk) or (
                ranks[r].numel() and not 0 <= int(ranks[r].min()) <= int(ranks[r].max()) < config.experts):
            raise ValueError("%s: found topk_indices of shape %s on rank %d, expected %s" % (
                path, list(ranks[r].shape), r, expected))
    return ranks

"""Routing that is fixed before the run: the experts of every token of every expert-parallel rank, the same for all layers
and microbatches. So every mode of running knows what the other ranks route."""
import json
from typing import List

import torch

from .config import JobConfig


class PlannedRouting:
    """indices[r]: [T, K] experts of the tokens of expert-parallel rank r, sequence after sequence; `tp` ranks share each
    sequence."""

    def __init__(self, indices: List[torch.Tensor], experts: int, sequences: int = 1, tp: int = 1):
        self.indices, self.experts, self.sequences, self.tp = indices, experts, sequences, tp
        self.counts = torch.stack([torch.bincount(one.flatten(), minlength=experts) for one in indices])  # [EP, E]

    def share(self, exp: int, tp: int) -> torch.Tensor:
        """[T / tp, K] of one rank."""
        whole = self.indices[exp]
        return whole.view(self.sequences, self.tp, -1, whole.shape[1])[:, tp].reshape(-1, whole.shape[1])

    @property
    def received(self) -> List[int]:
        """Rows that the experts of each rank compute."""
        ep = len(self.indices)
        return self.counts.sum(0).view(ep, -1).sum(1).tolist()

    def table(self) -> dict:
        """A row for every rank that sends: tensor parallelism runs faster than experts."""
        sent = [self.share(e, t) for e in range(len(self.indices)) for t in range(self.tp)]
        counts = [torch.bincount(one.flatten(), minlength=self.experts).tolist() for one in sent]
        return {"per_rank_results": {str(r): {"num_local_tokens_per_expert": row} for r, row in enumerate(counts)},
                "num_global_tokens_per_expert": counts,
                "topk_indices": {str(r): one.tolist() for r, one in enumerate(sent)}}


def plan_routing(config: JobConfig) -> PlannedRouting:
    """The routing that config.routing names. Raises ValueError with one line for what it does not understand."""
    return PlannedRouting(_indices(config), config.experts, config.micro_batch, config.tp)


def _indices(config: JobConfig) -> List[torch.Tensor]:
    name, _, value = config.routing.partition(":")
    if name == "balanced" and not value:
        return [_balanced(config, r) for r in range(config.ep)]
    if name == "zipf":
        try:
            exponent = float(value)
        except ValueError:
            exponent = -1.0
        if not 0.0 <= exponent <= 10.0:
            raise ValueError("found routing %s, expected zipf:S with S from 0 to 10" % config.routing)
        return [_zipf(config, r, exponent) for r in range(config.ep)]
    return _from_file(config)


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
    senders, tokens = config.ep * config.tp, config.tokens // config.tp
    expected = "%d x %d topk_indices below %d of each of %d ranks" % (tokens, config.topk, config.experts, senders)
    found = content.get("topk_indices") if isinstance(content, dict) else None
    ranks = []
    for r in range(senders):
        rows = found.get(str(r)) if isinstance(found, dict) else None
        try:
            ranks.append(torch.tensor(rows, dtype=torch.int64))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError("%s: found no topk_indices of rank %d, expected %s" % (path, r, expected)) from None
        if tuple(ranks[r].shape) != (tokens, config.topk) or (
                ranks[r].numel() and not 0 <= int(ranks[r].min()) <= int(ranks[r].max()) < config.experts):
            raise ValueError("%s: found topk_indices of shape %s on rank %d, expected %s" % (
                path, list(ranks[r].shape), r, expected))
    # Each rank's share of every sequence, put together again.
    shares = torch.stack(ranks).view(config.ep, config.tp, config.micro_batch, -1, config.topk)
    return list(shares.transpose(1, 2).reshape(config.ep, config.tokens, config.topk))

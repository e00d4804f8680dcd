"""The two dispatchers: tokens to the ranks of their experts and back. Both give the same result.

x: [N, H] tokens of this rank; scores, indices: [N, K]; experts(rows, counts): computes rows sorted by local expert. Under
tensor parallelism a rank has its share of the tokens, and its share of every expert gives partial sums.
"""
import torch
import torch.distributed as dist

from .exchanges import (ExchangeRows, GatherRows, ReduceScatterRows, columns_to_rows, gather_columns, gather_rows,
                        rows_to_columns, scatter_columns)


class AllGatherDispatcher:
    """All ranks of tensor and expert parallelism get all their tokens, each computes those of its experts, and the sums go
    back by a reduce-scatter."""

    def __init__(self, groups, experts: int):
        self.group = groups.tp_exp
        per_rank = experts // dist.get_world_size(groups.exp)
        self.low = dist.get_rank(groups.exp) * per_rank
        self.high = self.low + per_rank

    def __call__(self, x, scores, indices, experts):
        all_indices = gather_rows(indices, self.group)
        all_scores = GatherRows.apply(scores, self.group)
        all_x = GatherRows.apply(x, self.group)
        mine = (all_indices >= self.low) & (all_indices < self.high)
        tokens, choices = mine.nonzero(as_tuple=True)
        chosen = all_indices[tokens, choices] - self.low
        order = torch.argsort(chosen, stable=True)
        tokens, choices = tokens[order], choices[order]
        counts = torch.bincount(chosen, minlength=self.high - self.low).tolist()
        rows = experts(all_x[tokens], counts) * all_scores[tokens, choices].unsqueeze(1)
        return ReduceScatterRows.apply(torch.zeros_like(all_x).index_add(0, tokens, rows), self.group)


class AllToAllDispatcher:
    """Counts are gathered first; then every rank sends its tokens, one copy per expert, where they are computed.

    Under tensor parallelism as Megatron's older dispatcher does it: each rank takes all tokens of its group and a share of
    their columns through the exchange; the columns are gathered for the experts, and their partial sums scattered again."""

    def __init__(self, groups, experts: int):
        self.group, self.experts, self.tp = groups.exp, experts, groups.tp
        self.members = dist.get_world_size(self.group)
        per_rank = experts // self.members
        self.low = dist.get_rank(self.group) * per_rank
        self.high = self.low + per_rank

    def __call__(self, x, scores, indices, experts):
        if self.tp is None:
            return self._exchange(x, scores, indices, self._counts(indices), experts)
        scores, indices = GatherRows.apply(scores, self.tp, "tp"), gather_rows(indices, self.tp)
        counts = self._counts(indices)  # before the columns travel, as in Megatron

        def whole_experts(rows, counts):
            return scatter_columns(experts(gather_columns(rows, self.tp), counts), self.tp)

        return columns_to_rows(self._exchange(rows_to_columns(x, self.tp), scores, indices, counts, whole_experts), self.tp)

    def _counts(self, indices):
        """Rows to each expert, and those that each member sends to this rank's experts."""
        counts = torch.bincount(indices.flatten(), minlength=self.experts)
        return counts, gather_rows(counts, self.group).view(self.members, self.experts)[:, self.low:self.high]

    def _exchange(self, x, scores, indices, counts, experts):
        (counts, from_all), topk, flat = counts, indices.shape[1], indices.flatten()
        sent = counts.view(self.members, -1).sum(1).tolist()
        received = from_all.sum(1).tolist()
        order = torch.argsort(flat, stable=True)
        tokens = torch.div(order, topk, rounding_mode="floor")
        rows = ExchangeRows.apply(x[tokens], received, sent, self.group)
        # Rows come by sender, each sender's by expert; the experts want them by expert.
        local = torch.arange(self.high - self.low, device=x.device).repeat(self.members)
        by_expert = torch.argsort(local.repeat_interleave(from_all.reshape(-1)), stable=True)
        back = torch.argsort(by_expert)
        rows = experts(rows[by_expert], from_all.sum(0).tolist())[back]
        rows = ExchangeRows.apply(rows, sent, received, self.group) * scores.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, tokens, rows)


def make_dispatcher(name: str, groups, experts: int):
    return {"allgather": AllGatherDispatcher, "alltoall": AllToAllDispatcher}[name](groups, experts)

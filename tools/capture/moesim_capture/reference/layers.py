"""The model: attention, a router with planned choices, experts looped or grouped, and one pipeline stage of it all."""
import torch
from torch import nn
from torch.nn import functional as F

from .config import JobConfig
from .dispatchers import make_dispatcher
from .exchanges import gather_sequence, scatter_sequence
from .planned_routing import PlannedRouting


def share_of(weight: torch.Tensor, dim: int, member: int, members: int) -> nn.Parameter:
    """A tensor-parallel rank's part of a weight."""
    return nn.Parameter(weight.detach().chunk(members, dim)[member].clone())


def share_of_pair(weight: torch.Tensor, dim: int, member: int, members: int) -> nn.Parameter:
    """The same of gate and value, which lie behind each other."""
    return nn.Parameter(torch.cat([share_of(half, dim, member, members) for half in weight.detach().chunk(2, dim)], dim))


class RmsNorm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    """Causal, all heads alike; [B, S, H] in and out. Under tensor parallelism a rank has some of the heads and gets and
    gives its share of the sequence."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads, self.tp = heads, None
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def keep_share(self, group, member: int, members: int):
        self.tp, self.heads = group, self.heads // members
        q, k, v = self.qkv.weight.detach().chunk(3)
        self.qkv.weight = nn.Parameter(torch.cat([share_of(one, 0, member, members) for one in (q, k, v)]))
        self.out.weight = share_of(self.out.weight, 1, member, members)

    def forward(self, x):
        if self.tp is not None:
            return scatter_sequence(self._mix(gather_sequence(x, self.tp)), self.tp)
        return self._mix(x)

    def _mix(self, x):
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            future = torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1)
            weights = (q @ k.transpose(-2, -1) * q.shape[-1]**-0.5).masked_fill(future, float("-inf"))
            mixed = weights.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, -1))


class PlannedRouter(nn.Module):
    """Scores are computed from the tokens, the choice is planned: (scores [N, K], indices [N, K])."""

    def __init__(self, hidden: int, experts: int, indices: torch.Tensor):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.register_buffer("indices", indices)

    def forward(self, x):
        scores = self.gate(x).softmax(-1).gather(1, self.indices)
        return scores / scores.sum(-1, keepdim=True), self.indices


class LoopedExperts(nn.Module):
    """SwiGLU experts, one product after the other."""

    def __init__(self, experts: int, hidden: int, ffn: int):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(hidden, 2 * ffn, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(ffn, hidden, bias=False) for _ in range(experts))

    def keep_share(self, member: int, members: int):
        for up, down in zip(self.up, self.down):
            up.weight = share_of_pair(up.weight, 0, member, members)
            down.weight = share_of(down.weight, 1, member, members)

    def forward(self, rows, counts):
        out = []
        for part, up, down in zip(rows.split(counts), self.up, self.down):
            gate, value = up(part).chunk(2, -1)
            out.append(down(F.silu(gate) * value))
        return torch.cat(out)


class GroupedExperts(nn.Module):
    """The experts in one batched product over rows padded to the fullest expert."""

    def __init__(self, experts: int, hidden: int, ffn: int):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, hidden, 2 * ffn) * hidden**-0.5)
        self.down = nn.Parameter(torch.randn(experts, ffn, hidden) * ffn**-0.5)

    def keep_share(self, member: int, members: int):
        self.up = share_of_pair(self.up, 2, member, members)
        self.down = share_of(self.down, 1, member, members)

    def forward(self, rows, counts):
        most, experts = max(max(counts), 1), len(counts)
        sizes = torch.tensor(counts, device=rows.device)
        expert = torch.arange(experts, device=rows.device).repeat_interleave(sizes)
        starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        places = expert * most + torch.arange(rows.shape[0], device=rows.device) - starts
        padded = rows.new_zeros(experts * most, rows.shape[1]).index_copy(0, places, rows).view(experts, most, -1)
        gate, value = torch.bmm(padded, self.up).chunk(2, -1)
        return torch.bmm(F.silu(gate) * value, self.down).view(experts * most, -1)[places]


class MoeLayer(nn.Module):
    def __init__(self, config: JobConfig, groups, indices: torch.Tensor):
        super().__init__()
        self.router = PlannedRouter(config.hidden, config.experts, indices)
        kind = GroupedExperts if config.grouped else LoopedExperts
        self.experts = kind(config.experts // config.ep, config.hidden, config.ffn)
        self.dispatcher = make_dispatcher(config.dispatcher, groups, config.experts)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        scores, indices = self.router(tokens)
        return self.dispatcher(tokens, scores, indices, self.experts).view_as(x)


class Block(nn.Module):
    def __init__(self, config: JobConfig, groups, indices, tp_rank: int):
        super().__init__()
        self.attention_norm, self.attention = RmsNorm(config.hidden), Attention(config.hidden, config.heads)
        self.moe_norm, self.moe = RmsNorm(config.hidden), MoeLayer(config, groups, indices)
        if config.tp > 1:
            self.attention.keep_share(groups.tp, tp_rank, config.tp)
            self.moe.experts.keep_share(tp_rank, config.tp)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.moe(self.moe_norm(x))


class Stage(nn.Module):
    """The layers of one pipeline stage of one rank; the first has the embedding, the last the head. Under tensor parallelism
    both are whole on every rank, which gets its share of the sequence."""

    def __init__(self, config: JobConfig, rank: int, groups, routing: PlannedRouting):
        super().__init__()
        at = config.layout.of(rank)
        self.first, self.last = at.pp == 0, at.pp == config.pp - 1
        per_stage = config.layers // config.pp
        # Weights follow the seed and the layer alone, so that another pipeline trains the same model.
        torch.manual_seed(config.seed)
        if self.first:
            self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.blocks = nn.ModuleList()
        for layer in range(at.pp * per_stage, (at.pp + 1) * per_stage):
            torch.manual_seed(config.seed + 1 + layer)
            self.blocks.append(Block(config, groups, routing.share(at.exp, at.tp), at.tp))
        torch.manual_seed(config.seed + 1 + config.layers)
        if self.last:
            self.norm, self.head = RmsNorm(config.hidden), nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, x, labels=None):
        """Tokens [B, S] or activations [B, S, H] in; activations out, or the loss of every token on the last stage."""
        if self.first:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        if not self.last:
            return x
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1), reduction="none")

    def expert_parameters(self):
        return [p for block in self.blocks for p in block.moe.experts.parameters()]

    def dense_parameters(self):
        experts = {id(p) for p in self.expert_parameters()}
        return [p for p in self.parameters() if id(p) not in experts]

    def whole_parameters(self):
        """Those of which every tensor-parallel rank has all, and sees the gradient of its share of the sequence only."""
        split = {id(p) for block in self.blocks for part in (block.attention, block.moe.experts) for p in part.parameters()}
        return [p for p in self.parameters() if id(p) not in split]

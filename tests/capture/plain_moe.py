"""A training script as people write them: a mixture of experts with all_to_all_single under DistributedDataParallel.
Knows nothing of a recorder. Run it with torchrun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, send, receive, group):
        ctx.sizes = (receive, send, group)
        out = rows.new_empty(sum(receive), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), receive, send, group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return AllToAll.apply(gradient, *ctx.sizes), None, None, None


class Expert(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Moe(nn.Module):
    def __init__(self, hidden, inner, experts, topk, group):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.group, self.size, self.topk, self.total = group, dist.get_world_size(group), topk, experts
        self.experts = nn.ModuleList(Expert(hidden, inner) for _ in range(experts // self.size))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weight, chosen = self.gate(tokens).softmax(-1).topk(self.topk)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.total)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        send = counts.view(self.size, -1).sum(1).tolist()
        receive = theirs.view(self.size, -1).sum(1).tolist()
        rows = AllToAll.apply(tokens[torch.div(order, self.topk, rounding_mode="floor")], send, receive, self.group)
        local = torch.arange(len(self.experts)).repeat(self.size).repeat_interleave(theirs)
        done = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            mine = (local == index).nonzero().flatten()
            done = done.index_copy(0, mine, expert(rows[mine]))
        back = AllToAll.apply(done, receive, send, self.group)
        out = torch.zeros_like(tokens).index_add(
            0, torch.div(order, self.topk, rounding_mode="floor"), back * weight.flatten()[order].unsqueeze(1))
        return out.view_as(x)


class Model(nn.Module):
    def __init__(self, vocabulary, hidden, inner, experts, topk, layers, group):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Moe(hidden, inner, experts, topk, group) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=8)
    arguments.add_argument("--hidden", type=int, default=128)
    options = arguments.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model(512, options.hidden, 2 * options.hidden, 2 * world, 2, 2, dist.group.WORLD)
    torch.manual_seed(1 + rank)
    experts = [name for name, _ in model.named_parameters() if ".experts." in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, experts)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        tokens = torch.randint(512, (4, 65))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print("step %d loss %.9f" % (step, mean / world), flush=True)


if __name__ == "__main__":
    main()

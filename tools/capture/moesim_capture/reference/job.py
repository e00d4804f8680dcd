"""One rank of the reference job: its stage, groups and optimizer, and one training iteration, each operation recorded.

Without an active recorder the same iteration runs unrecorded.
"""
import torch
import torch.distributed as dist

from ..layout import Layout
from ..recorder import operation
from .config import JobConfig
from .layers import Stage
from .planned_routing import PlannedRouting


class Groups:
    """The rank's process groups. Every rank makes all groups in the same order, as torch.distributed wants it."""

    def __init__(self, layout: Layout, rank: int):
        def mine(label):
            groups = {tuple(members): dist.new_group(members) for members in layout.groups(label)}
            return groups[tuple(layout.group(label, rank))]

        self.exp, self.dp, self.exp_dp = mine("exp"), mine("dp"), mine("exp_dp")
        # Without tensor parallelism the gathers of tokens are the expert group's.
        self.tp, self.tp_exp = (mine("tp"), mine("tp_exp")) if layout.tp > 1 else (None, self.exp)

    def name_in(self, names):
        """Tells a recorder's GroupNames which is which, where several have the same members."""
        names.name(self.exp, "exp")
        names.name(self.dp, "dp")
        names.name(self.exp_dp, "exp_dp")
        if self.tp is not None:
            names.name(self.tp, "tp")
            names.name(self.tp_exp, "tp_exp")


class FlatGradients:
    """Gradients of some parameters as views of one buffer, which is reduced as a whole."""

    def __init__(self, parameters):
        parameters = list(parameters)
        first = parameters[0]
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
        start = 0
        for parameter in parameters:
            parameter.grad = self.buffer[start:start + parameter.numel()].view_as(parameter)
            start += parameter.numel()

    def average(self, group):
        """Mean over the group: divided first, as Megatron does."""
        members = dist.get_world_size(group)
        self.buffer.div_(members)
        if members > 1:
            dist.all_reduce(self.buffer, group=group)


class RankJob:
    def __init__(self, config: JobConfig, rank: int, routing: PlannedRouting, groups: Groups):
        self.config, self.rank, self.groups = config, rank, groups
        self.layout = config.layout
        self.stage_id = self.layout.of(rank).pp
        self.device, self.dtype = torch.device(config.device), getattr(torch, config.dtype)
        self.stage = Stage(config, rank, groups, routing).to(self.device, self.dtype)
        self.dense = FlatGradients(self.stage.dense_parameters())
        self.expert = FlatGradients(self.stage.expert_parameters())
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=1e-4)
        self.data = torch.Generator().manual_seed(config.seed * 7919 + self.layout.of(rank).exp)
        share = config.seq // config.tp
        self.share = slice(self.layout.of(rank).tp * share, (self.layout.of(rank).tp + 1) * share)  # of a sequence
        self.activation = (config.micro_batch, share, config.hidden)
        stages = config.pp
        self.next = rank + self.layout.world // stages if self.stage_id + 1 < stages else None
        self.previous = rank - self.layout.world // stages if self.stage_id > 0 else None
        self._open = {}  # microbatch -> (input, output) between its forward and its backward

    # One microbatch.

    def _forward(self, microbatch: int, received, state: str):
        ends = self.stage.first or self.stage.last
        tokens = labels = None
        if ends:
            with operation("get_batch", state=state):
                shape = (self.config.micro_batch, self.config.seq + 1)
                both = torch.randint(self.config.vocab, shape, generator=self.data).to(self.device)
                tokens, labels = (one[:, self.share].contiguous() for one in (both[:, :-1], both[:, 1:]))
        with operation("forward_step", state=state):
            source = tokens if self.stage.first else received.requires_grad_()
            out = self.stage(source, labels)
        if self.stage.last:
            with operation("loss_func", state=state):
                out = out.mean()
                mean = out.detach().float().view(1).clone()
                dist.all_reduce(mean, group=self.groups.dp)
                self.loss = mean / dist.get_world_size(self.groups.dp)
                if self.groups.tp is not None:
                    dist.all_reduce(self.loss, group=self.groups.tp)
                    self.loss = self.loss / self.config.tp
                out = out / (self.config.microbatches * self.config.tp)
        self._open[microbatch] = (source, out)
        return out

    def _backward(self, microbatch: int, gradient, state: str):
        source, out = self._open.pop(microbatch)
        with operation("backward_step", state=state):
            torch.autograd.backward(out, gradient)
        return None if self.stage.first else source.grad

    # Between stages; each call is one transfer, or one send with one receive.

    def _empty(self):
        return torch.empty(self.activation, dtype=self.dtype, device=self.device)

    def _transfer(self, send=None, to=None, receive_from=None):
        received = self._empty() if receive_from is not None else None
        ops = []
        if send is not None:
            ops.append(dist.P2POp(dist.isend, send.contiguous(), to))
        if received is not None:
            ops.append(dist.P2POp(dist.irecv, received, receive_from))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return received

    # The iteration.

    def iteration(self):
        """One 1F1B iteration of all microbatches with gradient reduction and optimizer."""
        count, stages = self.config.microbatches, self.config.pp
        warm = min(stages - self.stage_id - 1, count)
        self.dense.buffer.zero_()
        self.expert.buffer.zero_()

        def receive():
            return None if self.previous is None else self._transfer(receive_from=self.previous)

        for microbatch in range(warm):
            out = self._forward(microbatch, receive(), "warmup")
            self._transfer(send=out.detach(), to=self.next)
        received = receive() if warm < count else None
        for step in range(count - warm):
            out = self._forward(warm + step, received, "steady")
            gradient = None
            if self.next is not None:
                gradient = self._transfer(send=out.detach(), to=self.next, receive_from=self.next)
            gradient = self._backward(step, gradient, "steady")
            if self.previous is not None:
                last = step + 1 == count - warm
                received = self._transfer(gradient, self.previous, None if last else self.previous)
        for microbatch in range(count - warm, count):
            gradient = self._transfer(receive_from=self.next)
            gradient = self._backward(microbatch, gradient, "cooldown")
            if self.previous is not None:
                self._transfer(send=gradient, to=self.previous)
        self._finish("finalize")

    def microbatch(self):
        """One microbatch and the end of the iteration, without transfers between stages: what a scaling recording
        holds."""
        self.dense.buffer.zero_()
        self.expert.buffer.zero_()
        gradient = received = None
        if not self.stage.first:
            received = torch.randn(self.activation, dtype=self.dtype, device=self.device)
        if not self.stage.last:
            gradient = torch.randn(self.activation, dtype=self.dtype, device=self.device)
        self._forward(0, received, None)
        self._backward(0, gradient, None)
        self._finish("finalize")

    def _finish(self, state: str):
        with operation("dp_allreduce", group="dp", tensor=self.dense.buffer, state=state):
            self.dense.average(self.groups.dp)
        with operation("exp_dp_allreduce", group="exp_dp", tensor=self.expert.buffer, state=state):
            self.expert.average(self.groups.exp_dp)
        with operation("optimizer_step", state=state):
            if self.groups.tp is not None:
                self._sum_over_sequence()
            self.optimizer.step()

    def _sum_over_sequence(self):
        """The gradients of whole weights, of which each tensor-parallel rank has its share of the sequence's."""
        gradients = [p.grad for p in self.stage.whole_parameters()]
        joined = torch.cat([one.flatten() for one in gradients])
        dist.all_reduce(joined, group=self.groups.tp)
        for one, total in zip(gradients, joined.split([one.numel() for one in gradients])):
            one.copy_(total.view_as(one))

"""The collectives of the dispatchers, with their gradients. Only torch.distributed is called, so the same code runs on
real groups and in a FakeWorld."""
import torch
import torch.distributed as dist

from ..recorder import communication


def gather_rows(tensor: torch.Tensor, group) -> torch.Tensor:
    """[N, ...] of every member, one below the other."""
    tensor = tensor.contiguous()
    members = dist.get_world_size(group)
    out = tensor.new_empty((tensor.shape[0] * members,) + tuple(tensor.shape[1:]))
    if dist.get_backend(group) == "gloo":  # has no all_gather_into_tensor before torch 2
        dist.all_gather(list(out.chunk(members)), tensor, group=group)
    else:
        dist.all_gather_into_tensor(out, tensor, group=group)
    return out


# One call for the recording, whatever it is made of.
@communication("reduce_scatter", group="exp", source="_reduce_scatter_along_first_dim_moe")
def reduce_scatter_rows(tensor: torch.Tensor, group) -> torch.Tensor:
    """The member's share of the sum over all members, of [members * N, ...]."""
    tensor = tensor.contiguous()
    members = dist.get_world_size(group)
    shape = (tensor.shape[0] // members,) + tuple(tensor.shape[1:])
    if dist.get_backend(group) == "gloo":  # gloo has no reduce-scatter: everyone's share is exchanged and added here
        shares = torch.empty_like(tensor)
        dist.all_to_all_single(shares, tensor, group=group)
        return shares.view((members,) + shape).sum(0)
    out = tensor.new_empty(shape)
    dist.reduce_scatter_tensor(out, tensor, group=group)
    return out


def exchange_rows(tensor: torch.Tensor, received, sent, group) -> torch.Tensor:
    """All-to-all of unequal numbers of rows, by member."""
    out = tensor.new_empty((sum(received),) + tuple(tensor.shape[1:]))
    dist.all_to_all_single(out, tensor.contiguous(), received, sent, group=group)
    return out


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return gather_rows(tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return reduce_scatter_rows(gradient, ctx.group), None


class ReduceScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return reduce_scatter_rows(tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return gather_rows(gradient, ctx.group), None


class ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, received, sent, group):
        ctx.sizes = (received, sent, group)
        return exchange_rows(tensor, received, sent, group)

    @staticmethod
    def backward(ctx, gradient):
        received, sent, group = ctx.sizes
        return exchange_rows(gradient, sent, received, group), None, None, None

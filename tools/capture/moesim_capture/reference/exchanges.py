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


def _reduce_scatter_rows(tensor: torch.Tensor, group) -> torch.Tensor:
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


# One call for the recording, whatever it is made of.
REDUCE_SCATTER_ROWS = {
    "exp": communication("reduce_scatter", "exp", "_reduce_scatter_along_first_dim_moe")(_reduce_scatter_rows),
    "tp": communication("reduce_scatter", "tp", "_reduce_scatter_along_first_dim")(_reduce_scatter_rows),
}
reduce_scatter_rows = REDUCE_SCATTER_ROWS["exp"]


def exchange_rows(tensor: torch.Tensor, received, sent, group) -> torch.Tensor:
    """All-to-all of unequal numbers of rows, by member."""
    out = tensor.new_empty((sum(received),) + tuple(tensor.shape[1:]))
    dist.all_to_all_single(out, tensor.contiguous(), received, sent, group=group)
    return out


class GatherRows(torch.autograd.Function):
    """`label`: of the group, "exp" or "tp"."""

    @staticmethod
    def forward(ctx, tensor, group, label="exp"):
        ctx.group, ctx.label = group, label
        return gather_rows(tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return REDUCE_SCATTER_ROWS[ctx.label](gradient, ctx.group), None, None


class ReduceScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group, label="exp"):
        ctx.group = group
        return REDUCE_SCATTER_ROWS[label](tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return gather_rows(gradient, ctx.group), None, None


class ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, received, sent, group):
        ctx.sizes = (received, sent, group)
        return exchange_rows(tensor, received, sent, group)

    @staticmethod
    def backward(ctx, gradient):
        received, sent, group = ctx.sizes
        return exchange_rows(gradient, sent, received, group), None, None, None


# Tensor parallelism: a rank holds a share of every sequence, or a share of the columns of all of it.


def gather_sequence(x, group):
    """[B, S / tp, ...] of every member to [B, S, ...]; its gradient sums what the members' shares of the weights gave."""
    return GatherRows.apply(x.transpose(0, 1), group, "tp").transpose(0, 1)


def scatter_sequence(x, group):
    """Partial sums [B, S, ...] of every member to the member's [B, S / tp, ...] of the total."""
    return ReduceScatterRows.apply(x.transpose(0, 1), group, "tp").transpose(0, 1)


def gather_columns(rows, group):
    """[N, H / tp] of every member to [N, H]."""
    members = dist.get_world_size(group)
    return GatherRows.apply(rows, group, "tp").view(members, *rows.shape).transpose(0, 1).reshape(rows.shape[0], -1)


def scatter_columns(rows, group):
    """Partial sums [N, H] of every member to the member's [N, H / tp] of the total."""
    count, members = rows.shape[0], dist.get_world_size(group)
    by_member = rows.view(count, members, -1).transpose(0, 1).reshape(members * count, -1)
    return ReduceScatterRows.apply(by_member, group, "tp")


def rows_to_columns(rows, group):
    """[N, H] of every member to [members * N, H / members]: all rows, the member's share of their columns."""
    count, members = rows.shape[0], dist.get_world_size(group)
    shares = rows.view(count, members, -1).transpose(0, 1).reshape(members * count, -1)
    return ExchangeRows.apply(shares, [count] * members, [count] * members, group)


def columns_to_rows(shares, group):
    """The way back of rows_to_columns."""
    members = dist.get_world_size(group)
    count = shares.shape[0] // members
    rows = ExchangeRows.apply(shares, [count] * members, [count] * members, group)
    return rows.view(members, count, -1).transpose(0, 1).reshape(count, -1)

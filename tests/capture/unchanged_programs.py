"""Programs that train and communicate as people's do, for unchanged_test.py. Every one takes (rank, world, mark) and returns
what it computed; mark("...") stands around what would be operations. What this torch lacks is asked for, never guessed by
version: such a program returns "SKIP ..."."""
import contextlib
import copy
import io

import torch
import torch.distributed as dist
from torch import nn

Work = dist.distributed_c10d.Work


def data(rank, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(17 + rank))


def tried(act):
    """Returns the result of `act`, or its exception: a backend that lacks a collective lacks it with the recorder, too."""
    try:
        return act()
    except Exception as error:
        return type(error).__name__


def every_collective(rank, world, mark):
    out = []

    def run(name, act):
        with mark("forward_step"):
            out.append((name, tried(act)))

    def parts(*shape):
        return [torch.empty(*shape) for _ in range(world)]

    for later in (False, True):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            run("all_reduce", lambda: ended(dist.all_reduce, data(rank, 5, 4), later, out, op=op))
        unequal = [i + 1 for i in range(world)], [rank + 1] * world
        # A call, the tensors that it fills, and its other arguments.
        for call, filled, *rest in (
                (dist.broadcast, data(rank, 7), 1),
                (dist.all_gather, parts(3, 4), data(rank, 3, 4)),
                (dist.scatter, torch.empty(3), [data(i, 3) for i in range(world)] if rank == 2 else None, 2),
                (dist.all_to_all_single, torch.empty(2 * world, 3), data(rank, 2 * world, 3)),
                (dist.all_to_all_single, torch.empty(sum(unequal[0]), 3), data(rank, sum(unequal[1]), 3), *unequal),
                (dist.all_to_all, parts(2), list(data(rank, world, 2).unbind())),
                (dist.reduce_scatter, torch.empty(4), list(data(rank, world, 4).unbind())),
                (dist.reduce_scatter_tensor, torch.empty(4), data(rank, 4 * world)),
                (dist.all_gather_into_tensor, torch.empty(2 * world, 4), data(rank, 2, 4)),
                (dist.all_reduce_coalesced, [data(rank, 4), data(rank, 2, 2)]),
                (dist.all_gather_coalesced, [[torch.empty(3), torch.empty(2)] for _ in range(world)], [data(rank, 3), data(rank, 2)])):
            run(call.__name__, lambda: ended(call, filled, later, out, *rest))
        # These fill something on one rank.
        run("gather", lambda: ended(lambda into, **how: dist.gather(data(rank, 3), into, dst=0, **how),
                                    parts(3) if rank == 0 else None, later, out))
        run("reduce", lambda: (ended(dist.reduce, data(rank, 6), later, out, 1), None)[rank != 1])
        run("barrier", lambda: ended(lambda nothing, **how: dist.barrier(**how), None, later, out))

    def objects():
        rows = [None] * world
        dist.all_gather_object(rows, {"rank": rank})
        one = [rank]
        dist.broadcast_object_list(one, 2)
        return rows, one

    run("objects", objects)
    return out


def ended(call, filled, later, out, *rest, **more):
    """What a collective has filled, at once or when its Work was waited for. As FSDP2 asks: something that is no Work is not
    waited for."""
    work = call(filled, *rest, async_op=later, **more)
    if later and isinstance(work, Work):
        work.wait()
    elif later:
        out.append("no Work: %s" % type(work).__name__)
    return filled


def point_to_point(rank, world, mark):
    right, left = (rank + 1) % world, (rank - 1) % world
    out = []
    for inside in (False, True):
        with mark("forward_step") if inside else contextlib.nullcontext():
            x, y = data(rank, 4), torch.empty(4)
            if rank % 2 == 0:
                dist.send(x, right)
                dist.recv(y, left)
            else:
                dist.recv(y, left)
                dist.send(x, right)
            out.append(y.clone())
            works = [dist.isend(x, right), dist.irecv(y, left)]
            out.append([isinstance(work, Work) for work in works])
            for work in works:
                work.wait()
            out.append(y.clone())
            ops = [dist.P2POp(dist.isend, x + 1, right), dist.P2POp(dist.irecv, y, left)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            out.append(y.clone())
            out.append(tried(lambda: dist.P2POp(dist.all_reduce, x, right)))
    return out


def direct_calls(rank, world, mark):
    group = dist.new_group(range(world))
    x, y = data(rank, 4), data(rank, 2 * world)
    out = torch.empty_like(y)
    with mark("forward_step"):
        group.allreduce([x]).wait()
        group.alltoall_base(out, y, [], []).wait()
        work = group.broadcast(out, 1) if tried(lambda: group.broadcast(out.clone(), 1)) != "TypeError" else None
        if work is not None:
            work.wait()
    return x, out, dist.get_world_size(group)


def waits_elsewhere(rank, world, mark):
    """Launched in one operation and waited for in the next, by wait(), by the future, and never."""
    x, y, z = data(rank, 4), data(rank, 5), data(rank, 6)
    with mark("forward_step"):
        first = dist.all_reduce(x, async_op=True)
        second = dist.all_reduce(y, async_op=True)
        third = dist.all_reduce(z, async_op=True)
    with mark("backward_step"):
        first.wait()
        value = tried(lambda: second.get_future().wait())
        done = first.is_completed()
    third.wait()
    return x, y, z, value, done, [type(one).__name__ for one in (first, second, third)]


def exceptions(rank, world, mark):
    """Calls that raise on every rank alike, and are caught."""
    out = []
    with mark("forward_step"):
        out.append(tried(lambda: dist.all_to_all_single(torch.empty(4), torch.empty(5), [1], [2])))
        out.append(tried(lambda: dist.all_reduce("no tensor")))
        out.append(tried(lambda: dist.all_gather([torch.empty(2)], torch.empty(3))))
        x = data(rank, 4)
        dist.all_reduce(x)
    out.append(x)

    class Mine(Exception):
        pass

    try:
        with mark("forward_step"):
            dist.all_reduce(x)
            raise Mine()
    except Mine:
        out.append("raised")
    with mark("forward_step"):
        with mark("backward_step"):
            dist.all_reduce(x)
    return out, x


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient)


def autograd(rank, world, mark):
    import torch.distributed.nn.functional as differentiable
    x = data(rank, 2 * world, 3).requires_grad_()
    out = []
    with mark("forward_step"):
        y = Exchange.apply(x * 2)
        y = y + differentiable.all_reduce(x * x)
        y = y + sum(differentiable.all_gather(x + 1))
        y = y * tried(lambda: differentiable.broadcast(x, 1))
    with mark("backward_step"):
        y.pow(2).sum().backward()
    out += [y.detach(), x.grad.clone()]

    def more():
        z = data(rank, 2 * world, 3).requires_grad_()
        with mark("forward_step"):
            w = differentiable.all_to_all_single(torch.empty(2 * world, 3), z * 3)
        with mark("backward_step"):
            w.sum().backward()
        return w.detach(), z.grad

    out.append(tried(more))
    return out


def net(rank):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.GELU(), nn.Linear(40, 40), nn.Linear(40, 3))


def trained(model, rank, mark, steps=4, optimizer=None, accumulate=1, scheduler=False):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    if scheduler:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    losses = []
    for step in range(steps):
        for part in range(accumulate):
            last = part + 1 == accumulate
            with contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
                x = data(100 * step + 10 * part + rank, 8, 6)
                with mark("forward_step"):
                    loss = model(x).pow(2).mean()
                with mark("backward_step"):
                    loss.backward()
            losses.append(loss.detach())
        with mark("optimizer_step"):
            optimizer.step()
        if scheduler:
            scheduler.step()
        optimizer.zero_grad()
    return losses, [p.detach().clone() for p in model.parameters()], [b.clone() for b in model.buffers()]


loop = contextlib.nullcontext  # what stands around the loop that trains a model; the test puts record() there


def looped(model, *rest, **more):
    with loop(model):
        return trained(model, *rest, **more)


def distributed(rank, world, mark):
    from torch.nn.parallel import DistributedDataParallel as Ddp
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    out = []
    for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True},
                    {"broadcast_buffers": False}, {"static_graph": True}):
        out.append((options, tried(lambda: looped(Ddp(net(rank), **options), rank, mark))))
    out.append(looped(Ddp(net(rank)), rank, mark, accumulate=2, scheduler=True))

    def hooked(state, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0] / world)

    def waiting(state, bucket):
        dist.all_reduce(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    for hook in (hooked, waiting, default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        model = Ddp(net(rank), bucket_cap_mb=0.001)
        model.register_comm_hook(None, hook)
        out.append((hook.__name__, looped(model, rank, mark)))
    return out


def by_hand(rank, world, mark):
    """Gradients reduced by the script itself, an own optimizer loop, a copy of the model and files in between."""
    model = net(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    kept = []
    for step in range(3):
        with mark("forward_step"):
            loss = model(data(step + rank, 8, 6)).pow(2).sum()
        with mark("backward_step"):
            loss.backward()
        with mark("dp_allreduce"):
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with mark("optimizer_step"):
            optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save([model, optimizer.state_dict()], file)
        file.seek(0)
        options = {"weights_only": False} if "weights_only" in torch.load.__kwdefaults__ else {}
        back = torch.load(file, **options)[0]
        with torch.no_grad():
            kept += [norm, twin(data(1, 8, 6)), back(data(1, 8, 6)), scheduler.get_last_lr()]
    return kept, [p.detach().clone() for p in model.parameters()]


def scripted(rank, world, mark):
    @torch.jit.script
    def mixed(x: torch.Tensor, n: int) -> torch.Tensor:
        for i in range(n):
            x = torch.sin(x) * (i + 1)
        return x

    model = torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval())
    traced = torch.jit.trace(net(rank).eval(), data(0, 8, 6))
    torch.manual_seed(3)
    for p in model.parameters():
        nn.init.normal_(p)
    out = trained(model, rank, mark)
    x = data(rank, 8, 6)
    with mark("forward_step"):
        y = mixed(traced(x), 3)
        dist.all_reduce(y)
    # Scripted while it is recorded.
    late = torch.jit.script(nn.Sequential(nn.Linear(6, 3), nn.Tanh()))
    for p in late.parameters():
        nn.init.constant_(p, 0.25)
    return out, y.detach(), late(x).detach(), torch.jit.trace(net(rank).eval(), x)(x).detach()


def compiled(rank, world, mark):
    if not hasattr(torch, "compile"):
        return "SKIP torch.compile"

    def layer(x):
        y = torch.sin(x) * 2
        dist.all_reduce(y)
        return y + 1

    options = {"backend": "eager"}
    out = []
    with mark("forward_step"):
        out.append(tried(lambda: torch.compile(layer, **options)(data(rank, 4))))
    model = torch.compile(nn.parallel.DistributedDataParallel(net(rank)), **options)
    out.append(tried(lambda: trained(model, rank, mark)))
    return out


def functional(rank, world, mark):
    try:
        import torch.distributed._functional_collectives as funcol
    except ImportError:
        return "SKIP functional collectives"
    group = dist.group.WORLD
    with mark("forward_step"):
        x = tried(lambda: funcol.all_reduce(data(rank, 4), "sum", group) + 1)
        y = tried(lambda: funcol.all_gather_tensor(data(rank, 2, 3), 0, group) * 2)
        z = tried(lambda: funcol.all_to_all_single(data(rank, world, 3), None, None, group) - 1)
    return x, y, z


def sharded(rank, world, mark):
    try:
        from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
        model = Fsdp(net(rank))
    except Exception as error:
        return "SKIP FSDP: %s" % type(error).__name__
    return trained(model, rank, mark)


def sharded2(rank, world, mark):
    try:
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            from torch.distributed._composable.fsdp import fully_shard
    except Exception as error:  # with Python 3.11 torch 1.13 cannot even be asked
        return "SKIP FSDP2: %s" % type(error).__name__
    try:
        model = net(rank)
        for part in model:
            if list(part.parameters()):
                fully_shard(part)
        fully_shard(model)
        losses, parameters, buffers = trained(model, rank, mark)
    except Exception as error:
        return "SKIP FSDP2: %s" % type(error).__name__
    return losses, [p.to_local() if hasattr(p, "to_local") else p for p in parameters]


ALL = [every_collective, point_to_point, direct_calls, waits_elsewhere, exceptions, autograd, distributed, by_hand, scripted,
       compiled, functional, sharded, sharded2]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) == type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


@contextlib.contextmanager
def nothing(name):
    yield

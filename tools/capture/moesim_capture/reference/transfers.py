"""Times torch.distributed's collectives between processes of this machine, as rows that `moesim calibrate fit` takes: the
library that a recorded run uses is then the one that its forecast knows."""
import os
import time

import torch
import torch.distributed as dist

from . import cores, workers
from .exchanges import exchange_rows, gather_rows, reduce_scatter_rows

SIZES = tuple(1024 * 4**i for i in range(8))  # bytes as nccl-tests counts them, 1 KiB to 16 MiB
MIN_REPEATS, MAX_REPEATS, SECONDS_PER_ROW = 7, 200, 0.3


def _operations(size: int, world: int):
    """Name -> a function that does it once. A size counts all of what a rank holds in the end or in the beginning."""
    piece = max(1, size // 4 // world)
    one, whole = torch.ones(piece), torch.ones(piece * world)
    shares = [piece] * world
    return {
        "all_gather": lambda: gather_rows(one, None),
        "reduce_scatter": lambda: reduce_scatter_rows(whole, None),
        "all_to_all": lambda: exchange_rows(whole, shares, shares, None),
        "all_reduce": lambda: dist.all_reduce(whole),
    }


def worker(rank: int, world: int, rendezvous: str):
    torch.set_num_threads(1)
    cores.take_one(rank, world)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=world)
    rows = []
    for size in SIZES:
        for name, act in _operations(size, world).items():
            act()
            times = []
            more = torch.ones(1)
            start_of_row = time.perf_counter()
            while more.item() > 0:
                dist.barrier()
                start = time.perf_counter()
                act()
                took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
                dist.all_reduce(took, op=dist.ReduceOp.MAX)  # the slowest member's time is the collective's
                times.append(took.item())
                enough = len(times) >= MAX_REPEATS or (len(times) >= MIN_REPEATS and
                                                       time.perf_counter() - start_of_row > SECONDS_PER_ROW)
                more.fill_(0.0 if enough else 1.0)
                dist.broadcast(more, 0)
            # The fastest: others on the machine only add to it. With two cores and a load of 10 the median of a small
            # all-reduce was 3.4 ms, most of it threads of gloo that waited for a core, and the fastest 0.2 ms.
            rows.append((name, size, min(times), len(times)))
    dist.barrier()
    dist.destroy_process_group()
    return rows


def measure(world: int, timeout: float) -> dict:
    """Google Benchmark's JSON of all rows, the fastest of their repeats. Raises RunError when a rank fails."""
    if world < 2:
        raise ValueError("found a world of %d, expected at least 2 ranks to talk to each other" % world)

    def task_of(rank, rendezvous):
        return {"transfers": {"rank": rank, "world": world, "rendezvous": rendezvous}}

    rows = workers.run_world(world, task_of, timeout)[0]
    library = "gloo-torch-" + torch.__version__
    return {"context": {"gpu": "HOST", "ranks": str(world), "library": library, "load_avg": list(os.getloadavg())},
            "benchmarks": [{"name": "%s/nodes:1/ranks:%d/bytes:%d/dtype:float/library:%s" % (name, world, size, library),
                            "run_type": "iteration", "iterations": repeats, "real_time": seconds * 1e6,
                            "cpu_time": seconds * 1e6, "time_unit": "us"} for name, size, seconds, repeats in rows]}

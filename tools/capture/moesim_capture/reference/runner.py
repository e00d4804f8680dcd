"""Runs the reference job and records it: for real on several processes, or in scaling mode, where one process plays every
rank in turn.

Below the output folder: <sizes>/realistic, realistic1, ... or <sizes>/scaling, scaling1, ..., one per pass, and
dispatching.json, the routing. Unrecorded and recorded iterations alternate, so what recording costs is measured beside it
(run.json).
"""
import contextlib
import gc
import os
import statistics
import time
from dataclasses import asdict

import torch
import torch.distributed as dist

from ..clocks import CpuTimeClock
from ..fake_world import FakeWorld
from ..hooks import CommunicationHooks
from ..layout import GroupNames, file_name, folder_name
from ..recorder import Recorder, write_json
from ..routing import RoutingRecorder, dispatching
from . import cores, workers
from .config import JobConfig
from .job import Groups, RankJob
from .planned_routing import plan_routing


def pass_folder(out: str, config: JobConfig, mode: str, number: int) -> str:
    name = folder_name(config.layout, config.experts, config.layers, config.hidden, config.seq)
    return os.path.join(out, name, mode + (str(number) if number else ""))


def _rank_path(folder: str, config: JobConfig, rank: int, stamp: str) -> str:
    return os.path.join(folder, file_name(config.layout, config.experts, config.layers, config.micro_batch, rank, stamp))


def _about(config: JobConfig, command: str):
    return ["command: " + command, config.about()]


def require_device(config: JobConfig):
    """Raises ValueError where this machine lacks the job's device."""
    if config.device == "cpu":
        return
    index = config.device.partition(":")[2] or "0"
    if not torch.cuda.is_available() or not index.isdigit() or int(index) >= torch.cuda.device_count():
        raise ValueError("found %d CUDA devices, expected one for --device %s" % (torch.cuda.device_count(), config.device))


def _prepare(config: JobConfig):
    require_device(config)
    torch.set_num_threads(config.threads)


def _synchronize(config: JobConfig):
    if config.device.startswith("cuda"):
        torch.cuda.synchronize()


def refuse_to_overwrite(out: str, config: JobConfig, mode: str, passes: int):
    """Raises ValueError where a pass already has files: two runs in one folder would be read as one recording."""
    for number in range(passes):
        folder = pass_folder(out, config, mode, number)
        if os.path.isdir(folder) and os.listdir(folder):
            raise ValueError("%s: found a folder with files, expected a new or empty one" % folder)


def write_routing(out: str, config: JobConfig):
    """dispatching.json: the planned routing of one group of tensor and expert parallelism, for every layer and
    microbatch."""
    table = plan_routing(config).table()
    folder = os.path.dirname(pass_folder(out, config, "", 0))
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "dispatching.json"),
                dispatching(config.tp * config.ep, config.experts, [table], "planned routing %s" % config.routing), indent=None)


# Scaling mode.


def contribute_routing(world: FakeWorld, routing):
    """Tells a FakeWorld what the other ranks' counts and choices are, which sizes depend on."""
    counts, ep, tp = routing.counts, len(routing.indices), routing.tp  # counts: of whole sequences
    per_rank = tuple(routing.share(0, 0).shape)
    everyone = torch.cat([routing.share(e, t) for e in range(ep) for t in range(tp)])  # tensor parallelism runs fastest
    of_tp = [torch.cat([routing.share(e, t) for t in range(tp)]) for e in range(ep)]

    def all_indices(tensor, group):
        if group.size() == ep * tp:
            return everyone.to(tensor.device)
        return of_tp[world.layout.of(group.ranks[0]).exp].to(tensor.device)

    def all_counts(tensor, group):
        return counts.reshape(-1).to(tensor.device)

    world.contributes(
        lambda t, group: t.dtype == torch.int64 and tuple(t.shape) == per_rank and group.size() in (ep * tp, tp),
        all_indices)
    world.contributes(
        lambda t, group: t.dtype == torch.int64 and tuple(t.shape) == (routing.experts,) and group.size() == ep,
        all_counts)


def run_scaling(config: JobConfig, out: str, passes: int, warmup: int, command: str, version: int = 2):
    """Every rank in turn: `warmup` unrecorded microbatches, then per pass one unrecorded and one recorded. The timings
    returned are {rank: {"plain_ms": [...], "recorded_ms": [...]}}."""
    _prepare(config)
    routing = plan_routing(config)
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime())
    timings = {}
    # On a CPU the device is a core, which others use, too: only the time on it counts.
    clock = CpuTimeClock() if config.device == "cpu" and config.threads == 1 else config.device
    for rank in range(config.world):
        with FakeWorld(config.layout, rank) as world:
            contribute_routing(world, routing)
            groups = Groups(config.layout, rank)
            job = RankJob(config, rank, routing, groups)
            names = GroupNames(config.layout)
            groups.name_in(names)
            for _ in range(warmup):
                job.microbatch()
            timings[rank] = {"plain_ms": [], "recorded_ms": []}
            for number in range(passes):
                timings[rank]["plain_ms"].append(_timed(config, job.microbatch))
                path = _rank_path(pass_folder(out, config, "scaling", number), config, rank, stamp)
                with Recorder(path, rank, job.stage_id, "scaling", clock, version,
                              about=_about(config, command)) as recorder, CommunicationHooks(
                                  recorder, config.layout, names):
                    timings[rank]["recorded_ms"].append(_timed(config, job.microbatch))
            del job
            gc.collect()
            if config.device.startswith("cuda"):
                torch.cuda.empty_cache()
    return timings


def _timed(config: JobConfig, work) -> float:
    _synchronize(config)
    start = time.perf_counter()
    work()
    _synchronize(config)
    return (time.perf_counter() - start) * 1e3


# Real runs.


def run_worker(config: JobConfig, out: str, passes: int, warmup: int, command: str, rank: int, rendezvous: str,
               version: int = 2):
    """One rank of a real run; returns its timings as run_scaling does."""
    device = config.device
    if device == "cuda":
        device = "cuda:%d" % (rank % max(1, torch.cuda.device_count()))
        config = JobConfig(**{**asdict(config), "device": device})
    _prepare(config)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    backend = "nccl" if device.startswith("cuda") else "gloo"
    if backend == "gloo":
        cores.take_one(rank, config.world)
    dist.init_process_group(backend, init_method="file://" + rendezvous, rank=rank, world_size=config.world)
    routing = plan_routing(config)
    groups = Groups(config.layout, rank)
    job = RankJob(config, rank, routing, groups)
    names = GroupNames(config.layout)
    groups.name_in(names)
    for _ in range(warmup):
        job.iteration()
    stamps = [time.strftime("%Y%m%d%H%M%S", time.gmtime())]
    dist.broadcast_object_list(stamps, 0)
    timings = {"plain_ms": [], "recorded_ms": [], "cores": []}
    for number in range(passes):
        dist.barrier()
        timings["plain_ms"].append(_timed(config, job.iteration))
        folder = pass_folder(out, config, "realistic", number)
        with contextlib.ExitStack() as open_:
            recorder = open_.enter_context(
                Recorder(_rank_path(folder, config, rank, stamps[0]), rank, job.stage_id, "realistic", config.device,
                         version, about=_about(config, command)))
            open_.enter_context(CommunicationHooks(recorder, config.layout, names))
            if number == 0:
                watched = open_.enter_context(
                    RoutingRecorder(os.path.join(folder, "routing_rank%d.jsonl" % rank), rank, config.experts, recorder))
                watched.watch(job.stage)
            with recorder.inside:
                dist.barrier()
            before = cores.times()
            timings["recorded_ms"].append(_timed(config, job.iteration))
            timings["cores"].append(cores.between(before, cores.times()))
    dist.barrier()
    dist.destroy_process_group()
    return timings


def run_realistic(config: JobConfig, out: str, passes: int, warmup: int, command: str, version: int = 2,
                  timeout: float = 600):
    """Starts one process per rank on this machine; returns {rank: timings}. Raises RunError when one of them fails."""
    def task_of(rank, rendezvous):
        return {"config": asdict(config), "out": out, "passes": passes, "warmup": warmup, "command": command,
                "rank": rank, "rendezvous": rendezvous, "version": version}

    return workers.run_world(config.world, task_of, timeout)


# Overhead.


def summary(config: JobConfig, mode: str, timings: dict, command: str) -> dict:
    """Medians of unrecorded and recorded iterations (the slowest rank of a real run, the sum of ranks in scaling mode)
    and their ratio."""
    join = max if mode == "realistic" else sum

    def passes(key):
        return [join(values) for values in zip(*(t[key] for t in timings.values()))]

    plain, recorded = passes("plain_ms"), passes("recorded_ms")
    out = {"schema": "moesim.capture-run/1", "mode": mode, "command": command, "job": asdict(config),
           "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
           "received_rows": plan_routing(config).received, "plain_ms": plain, "recorded_ms": recorded}
    if plain and recorded:
        # Neighbours are compared: the machine's load changes more slowly than that.
        ratios = [r / p - 1 for p, r in zip(plain, recorded)]
        out["overhead"] = {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
    if mode == "realistic":
        # By pass, a row per rank: where its time went (cores.times); null where the kernel does not say.
        out["cores"] = [list(rows) for rows in zip(*(timings[rank]["cores"] for rank in sorted(timings)))]
    return out


def write_summary(out: str, config: JobConfig, value: dict):
    folder = os.path.dirname(pass_folder(out, config, "", 0))
    write_json(os.path.join(folder, "run_%s.json" % value["mode"]), value)

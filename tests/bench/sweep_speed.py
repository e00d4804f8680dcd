"""Scenarios per second of `moesim sweep`, and the speedup of a second thread or MPI rank; for collect.py.

A sweep of N scenarios and one of a fifth of it run on one thread, two threads and two MPI ranks, in turn; the
difference of their wall times is free of what a process and MPI need to start. The efficiency is the rate on two over
twice the rate on one, the median of all turns. The tables of all runs must have the same bytes.
"""
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

LAYER = {"model": "mixtral-8x7b", "parallel": {"ep": 8, "seq": 4096}, "dispatcher": "allgather,alltoall",
         "routing": "zipf:1.2", "cluster": "dgx-h100x4"}
TWO_NODES = {"model": "qwen3-30b-a3b", "parallel": {"ep": 16, "seq": 4096}, "dispatcher": "allgather,alltoall,flex-deepep",
             "routing": "gini:0.3", "cluster": "dgx-h100x4"}
# Name: scenario, the grid, and the seeds that make it long and a fifth of it.
SWEEPS = {
    "mixtral-8x7b": (LAYER, ["topk=1..8", "routing.gini=0..0.6:0.02", "parallel.ep=2,4,8",
                             "cluster.nic.bandwidth=25..400GBps:75"], 25),
    "qwen3-30b-a3b": (TWO_NODES, ["topk=1..8", "routing.gini=0..0.6:0.02", "parallel.ep=8,16",
                                  "cluster.nic.bandwidth=25..400GBps:75"], 10),
}


def launcher(moesim, how):
    if how == "2 ranks":
        return ["mpirun", "--oversubscribe", "-n", "2", moesim, "sweep", "s.json", "--threads", "1"]
    return [moesim, "sweep", "s.json", "--threads", how.split()[0]]


def run(moesim, how, grid, seeds, folder):
    out = folder / "rows.csv"
    command = launcher(moesim, how) + [word for axis in grid + ["seed=1..%d" % seeds] for word in ("--grid", axis)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    start = time.perf_counter()
    subprocess.run(command + ["--out", "rows.csv"], cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start, hashlib.sha256(out.read_bytes()).hexdigest()


def measure(moesim, name, repeat, ways):
    scenario, grid, seeds = SWEEPS[name]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "s.json").write_text(json.dumps(scenario))
        counted = subprocess.run([moesim, "sweep", "s.json", "--dry-run"] + [w for g in grid for w in ("--grid", g)],
                                 cwd=folder, check=True, capture_output=True, text=True).stdout
        scenarios = int(counted.split()[0])
        rates, digests = {how: [] for how in ways}, {}
        for _ in range(repeat):
            for how in ways:
                long, digest = run(moesim, how, grid, seeds, folder)
                short, _ = run(moesim, how, grid, seeds // 5, folder)
                rates[how].append(scenarios * (seeds - seeds // 5) / (long - short))
                digests[how] = digest
    if len(set(digests.values())) != 1:
        sys.exit("%s: the tables differ: %s" % (name, digests))
    for how in ways:
        rate = statistics.median(rates[how])
        yield {"name": "sweep/%s/%s" % (name, how.replace(" ", "-")), "seconds": scenarios * seeds / rate,
               "scenarios_per_second": rate,
               "efficiency": statistics.median(two / one / (1 if how == "1 thread" else 2)
                                               for one, two in zip(rates["1 thread"], rates[how]))}


def bench_entries(build, repeat):
    """Returns the entries for build/bench.json: one per sweep and way."""
    moesim = str((build / "moesim").resolve())
    ways = ["1 thread", "2 threads"]
    if (build / "libmoesim_mpi.so").exists() and shutil.which("mpirun"):
        ways.append("2 ranks")
    for name in SWEEPS:
        yield from measure(moesim, name, repeat, ways)

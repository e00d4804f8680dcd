#!/usr/bin/env python3
"""Scenarios per second of `moesim sweep`, and the speedup of a second thread or MPI rank.

sweep_speed.py BUILD_DIR [--repeat N] [--processor-time]

A sweep of N scenarios and one of a fifth of it run on one thread, two threads and two MPI ranks, in turn; the
difference of their wall times is free of what a process and MPI need to start. The efficiency is the rate on two over
twice the rate on one, the median of all turns. The tables of all runs must have the same bytes.

--processor-time is for a machine that is busy with other things: rates are those of processors that do nothing else, and
the efficiency counts what a second thread or rank costs (waiting for messages, drawing a routing twice), but not what an
idle one would lose.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import resource
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
    "mixtral-8x7b, EP 2..8, 2 dispatchers": (LAYER, ["topk=1..8", "routing.gini=0..0.6:0.02", "parallel.ep=2,4,8",
                                                     "cluster.nic.bandwidth=25..400GBps:75"], 25),
    "qwen3-30b-a3b, EP 8..16, 3 dispatchers": (TWO_NODES, ["topk=1..8", "routing.gini=0..0.6:0.02", "parallel.ep=8,16",
                                                           "cluster.nic.bandwidth=25..400GBps:75"], 10),
}


def launcher(moesim, how):
    if how == "2 ranks":
        return ["mpirun", "--oversubscribe", "-n", "2", moesim, "sweep", "s.json", "--threads", "1"]
    return [moesim, "sweep", "s.json", "--threads", how.split()[0]]


def spent():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(moesim, how, grid, seeds, folder, processor_time):
    out = folder / "rows.csv"
    command = launcher(moesim, how) + [word for axis in grid + ["seed=1..%d" % seeds] for word in ("--grid", axis)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    start, before = time.perf_counter(), spent()
    subprocess.run(command + ["--out", "rows.csv"], cwd=folder, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    if processor_time:
        seconds = (spent() - before) / (1 if how == "1 thread" else 2)
    return seconds, hashlib.sha256(out.read_bytes()).hexdigest()


def measure(moesim, name, repeat, ways, processor_time):
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
                long, digest = run(moesim, how, grid, seeds, folder, processor_time)
                short, _ = run(moesim, how, grid, seeds // 5, folder, processor_time)
                rates[how].append(scenarios * (seeds - seeds // 5) / (long - short))
                digests[how] = digest
    if len(set(digests.values())) != 1:
        sys.exit("%s: the tables differ: %s" % (name, digests))
    result = {"name": "sweep/" + name, "scenarios": scenarios * seeds}
    for how in ways:
        result[how] = {"scenarios_per_second": statistics.median(rates[how]),
                       "efficiency": statistics.median(two / one / (1 if how == "1 thread" else 2)
                                                       for one, two in zip(rates["1 thread"], rates[how]))}
    return result


def results(build, repeat, processor_time=False):
    moesim = str((build / "moesim").resolve())
    ways = ["1 thread", "2 threads"]
    if (build / "libmoesim_mpi.so").exists() and shutil.which("mpirun"):
        ways.append("2 ranks")
    for name in SWEEPS:
        yield measure(moesim, name, repeat, ways, processor_time)


def bench_entries(build, repeat):
    """Returns the entries for build/bench.json: one per sweep and way."""
    for r in results(build, repeat):
        for how in ("1 thread", "2 threads", "2 ranks"):
            if how in r:
                yield {"name": "sweep/%s/%s" % (r["name"].removeprefix("sweep/").split(",")[0], how.replace(" ", "-")),
                       "seconds": r["scenarios"] / r[how]["scenarios_per_second"], **r[how]}


def render(measured, processor_time):
    lines = ["| sweep | scenarios | on | scenarios/s | efficiency |", "|---|---:|---|---:|---:|"]
    for r in measured:
        for how in ("1 thread", "2 threads", "2 ranks"):
            if how in r:
                lines.append("| %s | %d | %s | %.0f | %s |" % (
                    r["name"].removeprefix("sweep/"), r["scenarios"], how, r[how]["scenarios_per_second"],
                    "" if how == "1 thread" else "%.1f %%" % (100 * r[how]["efficiency"])))
    machine = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                   platform.machine())
    return "\n".join(lines) + "\n\nMade by `tests/bench/sweep_speed.py` on %s: %s, %d cores, load %.1f at the end%s.\n" % (
        datetime.date.today().isoformat(), machine, os.cpu_count(), os.getloadavg()[0],
        ", so times are processor time (--processor-time)" if processor_time else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--processor-time", action="store_true")
    arguments = parser.parse_args()
    table = render(list(results(arguments.build, arguments.repeat, arguments.processor_time)), arguments.processor_time)
    print(table)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs every benchmark in a process of its own and collects the results.

collect.py BUILD_DIR [--repeat N] [--only PREFIX] [--docs FILE]

Writes BUILD_DIR/bench.json ("moesim.bench/1") and, with --docs, the table of those that have a goal
between the markers of FILE. Times of workloads are processor time of the one thread that runs (the same as wall time on
an idle machine), the median of N processes; the SimGrid reference runs once, right after ours. Times of command lines
are wall time, start included.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Our name -> SimGrid's workload, network and ranks.
REFERENCES = {
    "w3-flat/1024": ("w1", "flat", 1024),
    "w3-island/256": ("w1", "island", 256),
    "w3-island/1024": ("w1", "island", 1024),
    "w3-2:1/256": ("w1", "2:1", 256),
    "w3-2:1/1024": ("w1", "2:1", 1024),
    "w1s-island/256": ("w1s", "island", 256),
    "w1n/256": ("w1n", "flat", 256),
    "w1n-island/256": ("w1n", "island", 256),
    "w1n-unequal/64": ("w1n-unequal", "flat", 64),
    "w1n-unequal-island/64": ("w1n-unequal", "island", 64),
}

# The project's goals for a workload: at most these seconds, or at least this ratio of SimGrid's time to ours.
GOALS = {
    "w3-island/1024": ">= 30 x",
    "w3-2:1/1024": ">= 30 x",
    "w1s-island/256": ">= 30 x",
    "w1n/256": ">= 30 x",
    "w1n-island/256": ">= 30 x",
    "w1n/1024": "<= 2 s",
    "w1n-island/1024": "<= 2 s",
    "step/2048": "<= 0.8 s",
    "step/16384": "<= 5 s",
    "step/131072": "<= 30 s, 4 GB",
    "step-balanced/2048": "<= 0.1 s",
    "step-balanced/16384": "<= 0.1 s",
    "step-balanced/131072": "<= 0.1 s",
    "forecasts/layer": ">= 20000 scenarios/s",
    "forecasts/step": ">= 3000 scenarios/s",
    "forecasts/step-skewed": ">= 400 scenarios/s",
    "cli/compare": "<= 0.05 s",
    "cli/replay": "<= 0.05 s",
    "read/cmd": ">= 200 MB/s",
    "sweep/mixtral-8x7b/2-threads": ">= 20000 scenarios/s, 95 %",
    "sweep/mixtral-8x7b/2-ranks": ">= 95 %",
    "sweep/qwen3-30b-a3b/2-threads": ">= 95 %",
    "sweep/qwen3-30b-a3b/2-ranks": ">= 95 %",
}

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


def run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run_benchmark(binary, name, repeat):
    seconds, peaks, entry = [], [], None
    for _ in range(repeat):
        text = run([binary, "--benchmark_filter=^" + re.escape(name) + "$", "--benchmark_format=json",
                    "--benchmark_min_time=0.01"])
        entry = json.loads(text)["benchmarks"][0]
        unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[entry["time_unit"]]
        seconds.append(entry["cpu_time"] * unit)
        peaks.append(entry.get("peak_bytes", 0))
    result = {"name": name, "seconds": statistics.median(seconds), "peak_bytes": int(max(peaks))}
    for key in ("simulated_us", "scenarios_per_second", "bytes_per_second"):
        if key in entry:
            result[key] = entry[key]
    return result


def run_reference(binary, workload):
    seconds, peak, simulated = run([binary, *map(str, workload), "--log=root.threshold:error"]).split()
    return float(seconds), int(peak), float(simulated)


def time_command(command, repeat):
    """Median wall time of a whole process."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def command_line_entries(build, root):
    moesim = build / "moesim"
    if not moesim.exists():
        return
    yield "cli/compare", [str(moesim), "compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "8",
                          "--tp", "1", "--pp", "4", "--topk", "2", "--dispatcher", "allgather,alltoall", "--routing",
                          "zipf:1.2", "--scope", "layer"]
    echo = root.parent / "shared" / "data" / "echo"
    for recording in sorted(echo.glob("pp*_exp*/scaling")) + sorted(echo.glob("*/scaling")):
        if len(list(recording.glob("*.txt"))) == 16:
            yield "cli/replay", [str(moesim), "replay", str(recording), "--cluster", "echo-h800x2"]
            return


def launcher(moesim, how):
    if how == "2 ranks":
        return ["mpirun", "--oversubscribe", "-n", "2", moesim, "sweep", "s.json", "--threads", "1"]
    return [moesim, "sweep", "s.json", "--threads", how.split()[0]]


def run_sweep(moesim, how, grid, seeds, folder):
    out = folder / "rows.csv"
    command = launcher(moesim, how) + [word for axis in grid + ["seed=1..%d" % seeds] for word in ("--grid", axis)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    start = time.perf_counter()
    subprocess.run(command + ["--out", "rows.csv"], cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start, hashlib.sha256(out.read_bytes()).hexdigest()


def measure_sweep(moesim, name, repeat, ways):
    """Scenarios per second, and the speedup of a second thread or MPI rank. A sweep of N scenarios and one of a fifth of it run in
    turn; the difference of their wall times is free of what a process and MPI need to start. The efficiency is the rate on two over
    twice the rate on one, the median of all turns. The tables of all runs must have the same bytes."""
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
                long, digest = run_sweep(moesim, how, grid, seeds, folder)
                short, _ = run_sweep(moesim, how, grid, seeds // 5, folder)
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


def sweep_entries(build, repeat):
    moesim = str((build / "moesim").resolve())
    ways = ["1 thread", "2 threads"]
    if (build / "libmoesim_mpi.so").exists() and shutil.which("mpirun"):
        ways.append("2 ranks")
    for name in SWEEPS:
        yield from measure_sweep(moesim, name, repeat, ways)


def render(results, note, only):
    """Table of the workloads that have a goal."""
    lines = ["| workload | time | goal |", "|---|---:|---|"]
    for r in results:
        goal = GOALS.get(r["name"])
        if not goal:
            continue
        time_cell = "%.4g s" % r["seconds"]
        if "bytes_per_second" in r:
            time_cell += ", %.0f MB/s" % (r["bytes_per_second"] / 1e6)
        if "scenarios_per_second" in r:
            time_cell += ", %.0f scenarios/s" % r["scenarios_per_second"]
        if "efficiency" in r:
            time_cell += ", efficiency %.1f %%" % (100 * r["efficiency"])
        if "ratio" in r:
            time_cell += ", %.0f x" % r["ratio"]
        if "GB" in goal and r.get("peak_bytes"):
            time_cell += ", %.0f MB" % (r["peak_bytes"] / 1e6)
        lines.append("| %s | %s | %s |" % (r["name"], time_cell, goal))
    lines += ["| %s | not run | %s |" % (name, goal) for name, goal in GOALS.items()
              if name.startswith(only) and name not in {r["name"] for r in results}]
    return "\n".join(lines) + "\n\n" + note + "\n"


def replace_between(path, text):
    path.write_text(re.sub(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", lambda _: text, path.read_text(), count=1, flags=re.DOTALL))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="names that start with this")
    parser.add_argument("--docs", type=pathlib.Path)
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    build = arguments.build.resolve()
    bench = build / "tests" / "bench"
    reference = bench / "simgrid_reference"
    results = []

    def finish(result):
        results.append(result)
        print("%-26s %10.4f s" % (result["name"], result["seconds"]), "ratio %.0f" % result["ratio"]
              if "ratio" in result else "", file=sys.stderr, flush=True)

    for binary in sorted(bench.glob("*_bench")):
        for name in run([str(binary), "--benchmark_list_tests"]).split():
            if not name.startswith(arguments.only):
                continue
            slow = name.startswith("step/")
            result = run_benchmark(str(binary), name, 1 if slow else arguments.repeat)
            if reference.exists() and name in REFERENCES:
                seconds, _, simulated = run_reference(str(reference), REFERENCES[name])
                result.update(reference="SimGrid S4U", reference_seconds=seconds, reference_simulated_us=simulated,
                              ratio=seconds / result["seconds"])
            if name == "read/cmd_MiB/128":
                result["name"] = "read/cmd"
            finish(result)
    for name, command in command_line_entries(build, root):
        if name.startswith(arguments.only):
            try:
                result = {"name": name, "seconds": time_command(command, 15)}
            except subprocess.CalledProcessError as error:
                print("%s: skipped, %s" % (name, error), file=sys.stderr)
                continue
            finish(result)
    if "sweep/".startswith(arguments.only) or arguments.only.startswith("sweep"):
        for result in sweep_entries(build, arguments.repeat):
            finish(result)
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    note = "Made by `tools/bench.sh` on %s: %s, %d cores, load %.1f at the end." % (
        datetime.date.today().isoformat(), model, os.cpu_count(), os.getloadavg()[0])
    output = {"schema": "moesim.bench/1", "machine": model, "cores": os.cpu_count(), "results": results}
    partial = build / "bench.json.partial"
    partial.write_text(json.dumps(output, indent=1) + "\n")
    partial.rename(build / "bench.json")
    table = render(results, note, arguments.only)
    if arguments.docs:
        replace_between(arguments.docs, table)
    print(table)


if __name__ == "__main__":
    main()

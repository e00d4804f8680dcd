#!/usr/bin/env python3
"""A sweep on 1, 2 and 16 MPI ranks of this machine, and what the measured rates say of a hundred nodes.

sweep_ranks.py BUILD_DIR [--repeat N]

Needs mpirun and BUILD_DIR/tests/bench/sweep_rank0 (-DMOESIM_BUILD_BENCH=ON). Times are processor time of all processes, so
that more ranks than cores can be compared: a run on n ranks is as efficient as it uses no more of it than one process.
The tables of all runs must have the same bytes.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sweep_speed as speed  # noqa: E402

NODES, CORES, BLOCK = 100, 32, 1024
RANKS = (1, 2, 16)
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def seconds_of(command, folder):
    before = speed.spent()
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
    return speed.spent() - before


def mpirun(ranks):
    return ["mpirun", "--oversubscribe", "-n", str(ranks)]


def measure(build, name, repeat):
    moesim = str((build / "moesim").resolve())
    scenario, grid, seeds = speed.SWEEPS[name]
    seeds //= 2
    words = [moesim, "sweep", "s.json", "--threads", "1", "--out", "rows.csv", "--overwrite", "--quiet"]
    words += [word for axis in grid for word in ("--grid", axis)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "s.json").write_text(json.dumps(scenario))
        used, tables = {n: [] for n in RANKS}, set()
        for _ in range(repeat):
            for n in RANKS:
                launch = mpirun(n) if n > 1 else []
                # The difference of two lengths has no start of a process in it.
                short = seconds_of(launch + words + ["--grid", "seed=1..%d" % (seeds // 5)], folder)
                long = seconds_of(launch + words + ["--grid", "seed=1..%d" % seeds], folder)
                used[n].append(long - short)
                print("%s, %d ranks: %.2f s" % (name, n, long - short), file=sys.stderr, flush=True)
                tables.add((folder / "rows.csv").read_bytes())
        if len(tables) != 1:
            sys.exit(name + ": the tables differ")
        table = tables.pop()
        scenarios = int(table.splitlines()[-1].split(b",")[0]) + 1
        bench = [str((build / "tests/bench/sweep_rank0").resolve()), "rows.csv", "put.csv"]
        library = str((build / "libmoesim_mpi.so").resolve())
        rank0 = [json.loads(subprocess.run(mpirun(2) + bench + [library], cwd=folder, env=ENVIRONMENT, check=True,
                                           capture_output=True, text=True).stdout) for _ in range(repeat)]
    part = scenarios * (seeds - seeds // 5) / seeds
    middle = {n: statistics.median(used[n]) for n in RANKS}
    of = {(what, per): statistics.median(one[what][per] for one in rank0)
          for what in ("write", "message") for per in ("block", "byte")}
    return {"name": name, "scenarios": scenarios, "rows": table.count(b"\n") - 1, "bytes": len(table) / scenarios,
            "rate": part / middle[1], "efficiency": {n: middle[1] / middle[n] for n in RANKS[1:]}, "rank0": of}


def hundred(m):
    """Load of NODES nodes on rank 0, and where it saturates."""
    of = m["rank0"]
    byte = of["write", "byte"] + of["message", "byte"]
    block = of["write", "block"] + of["message", "block"]
    wanted = NODES * CORES * m["rate"]
    most = 1 / (m["bytes"] * byte + block / BLOCK)
    return {"wanted": wanted, "most": most, "cores": most / m["rate"], "busy": wanted / most, "network": wanted * m["bytes"],
            "per_byte": byte, "per_block": block}


def render(measured):
    lines = ["| sweep | scenarios/s on a core | bytes of table each | processor time of 1 rank over that of 2, of 16 | rank 0: "
             "ns a byte, us a block | scenarios/s that rank 0 takes | cores that fill it |", "|---|---:|---:|---:|---:|---:|---:|"]
    for m in measured:
        h = hundred(m)
        lines.append("| %s | %.0f | %.0f | %s | %.2f, %.0f | %.2g | %.0f |" % (
            m["name"], m["rate"], m["bytes"], ", ".join("%.0f %%" % (100 * e) for e in m["efficiency"].values()),
            1e9 * h["per_byte"], 1e6 * h["per_block"], h["most"], h["cores"]))
    return "\n".join(lines) + "\n\nMade by `tests/bench/sweep_ranks.py` on %s: %d cores, load %.1f at the end; processor time.\n" % (
        datetime.date.today().isoformat(), os.cpu_count(), os.getloadavg()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    measured = [measure(arguments.build, name, arguments.repeat) for name in speed.SWEEPS]
    table = render(measured)
    print(table)
    for m in measured:
        print(json.dumps({key: value for key, value in {**m, **hundred(m)}.items() if key != "rank0"}))


if __name__ == "__main__":
    main()

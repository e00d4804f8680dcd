"""From a bare node to a cluster file: `moesim calibrate node` on a virtual GPU (virtual_gpu/), whose laws it has to find."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MOESIM, BENCH = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])


def run(folder, *arguments, machine="gpus=8"):
    environment = dict(os.environ, VIRTUAL_GPU=machine, LD_LIBRARY_PATH=str(pathlib.Path(BENCH).parent))
    return subprocess.run([MOESIM, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def check(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def check_node(folder):
    done = run(folder, "calibrate", "node", "--out", "cluster.json", "--program", BENCH, "--raw", "raw")
    check(done.returncode == 0, "calibrate node: " + done.stderr + done.stdout)
    check("h100-sxm, the profile of this GPU" in done.stdout, "the base is not said: " + done.stdout)
    check("next:    moesim compare --model qwen3-30b-a3b --cluster cluster.json --ep 8" in done.stdout, "no next command: " + done.stdout)
    rows = str(folder / "raw/moesim-bench-virtual-1.measurements.json")
    said = json.loads(run(folder, "calibrate", "node", "--out", "again.json", "--with", rows, "--format", "json").stdout)
    left = said["profile"]["left_out"]
    print("rows left out: %d, mean |error| %.1f %% before, %.1f %% after, %.0f %% inside" % (
        left["rows"], 100 * left["mean_abs_error_before"], 100 * left["mean_abs_error"], 100 * left["coverage"]))
    check(left["rows"] > 100, "few rows were left out: %s" % left)
    check(left["mean_abs_error"] < 0.05 and left["mean_abs_error"] < 0.4 * left["mean_abs_error_before"], "laws of the rows are off: %s" % left)
    # The planted numbers of the machine alone.
    profile = json.loads((folder / "cluster.profile.json").read_text())
    for path, planted in ((("launch", "kernel"), 2.4e-6), (("launch", "host_sync"), 6.6e-6), (("launch", "kernel_floor"), 2.2e-6),
                          (("launch", "d2h_copy"), 8.1e-6), (("overlap", "compute_under_communication"), 1.12)):
        got = profile[path[0]][path[1]]
        check(abs(got / planted - 1) < 0.03, "%s is %s, planted %s" % (path, got, planted))
    # The profile of all rows on all rows, by operation.
    checked = json.loads(run(folder, "calibrate", "check", "cluster.profile.json", "--against", rows, "--format", "json").stdout)
    print("all rows: mean |error| %.1f %%, %.0f %% inside" % (100 * checked["mean_abs_error"], 100 * checked["coverage"]))
    check(checked["mean_abs_error"] < 0.05, "the profile is off its own rows: %s" % checked["mean_abs_error"])
    compare = run(folder, "compare", "--model", "qwen3-30b-a3b", "--cluster", "cluster.json", "--ep", "8", "--dispatcher",
                  "allgather,alltoall", "--draws", "4")
    check(compare.returncode == 0 and "alltoall" in compare.stdout, "the command that it names: " + compare.stderr)


def check_faults(folder):
    some = ["--program", BENCH, "--filter", "^gemm/m:(4096|8192)/n:4096/k:4096.*burst"]
    slow = run(folder, "calibrate", "measure", "--out", "slow", *some, machine="gpus=1,throttled=0.6")
    check(slow.returncode == 0 and "throttled: the SMs ran at 60 %" in slow.stdout, "nobody tells: " + slow.stdout + slow.stderr)
    foreign = run(folder, "calibrate", "measure", "--out", "foreign", *some, machine="gpus=1,foreign=77")
    check("another process computes on it (pid 77)" in foreign.stderr, "nobody tells: " + foreign.stderr)
    dead = run(folder, "calibrate", "measure", "--out", "dead", "--program", BENCH, "--filter", "^all_gather.*ranks:8/bytes:1024/",
               machine="gpus=8,dead=5")
    check(dead.returncode == 2 and "process 5 of 8 ended with exit code 9" in dead.stderr, "nobody tells: " + dead.stderr)
    pcie = run(folder, "calibrate", "node", "--out", "pcie.json", "--raw", "pcie", "--short", "--program", BENCH,
               machine="gpus=1,name=NVIDIA RTX 6000 Ada")
    check(pcie.returncode == 0 and "by " in pcie.stdout and "times as likely as" in pcie.stdout,
          "a GPU without a profile finds the nearest one: " + pcie.stdout + pcie.stderr)


def main():
    with tempfile.TemporaryDirectory() as name:
        check_node(pathlib.Path(name))
        check_faults(pathlib.Path(name))
    print("virtual_node: ok")


main()

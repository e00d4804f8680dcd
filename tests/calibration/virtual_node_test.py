"""From a bare node to a cluster file: `moesim calibrate node` on a virtual GPU (virtual_gpu/), whose laws it has to find."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from support import check, free_port

MOESIM, BENCH = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])


def run(folder, *arguments, machine="gpus=8"):
    environment = dict(os.environ, VIRTUAL_GPU=machine, LD_LIBRARY_PATH=str(pathlib.Path(BENCH).parent))
    return subprocess.run([MOESIM, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def check_node(folder):
    done = run(folder, "calibrate", "node", "--out", "cluster.json", "--program", BENCH, "--raw", "raw")
    check(done.returncode == 0, "calibrate node: " + done.stderr + done.stdout)
    check("h100-sxm, the only one that the rows can be of" in done.stdout, "the base is not said: " + done.stdout)
    check("36 rows" not in done.stdout and "throttled" not in done.stdout, "a hot GPU besides the rows that ask for one: " + done.stdout)
    check("7 benchmarks left out: a warm cache" in done.stderr, "what is no row is not said: " + done.stderr)
    check("next:    moesim compare --model qwen3-30b-a3b --cluster cluster.json --ep 8" in done.stdout, "no next command: " + done.stdout)
    rows = str(folder / "raw/moesim-bench-virtual-1.measurements.json")
    said = json.loads(run(folder, "calibrate", "node", "--out", "again.json", "--with", rows, "--format", "json").stdout)
    left = said["profile"]["left_out"]
    print("rows left out: %d, mean |error| %.1f %% before, %.1f %% after, %.0f %% inside" % (
        left["rows"], 100 * left["mean_abs_error_before"], 100 * left["mean_abs_error"], 100 * left["coverage"]))
    check(left["rows"] > 100, "few rows were left out: %s" % left)
    check(said["profile"]["skipped"] == [], "rows move no law: %s" % said["profile"]["skipped"])
    check(left["mean_abs_error"] < 0.035 and left["mean_abs_error"] < 0.4 * left["mean_abs_error_before"], "laws of the rows are off: %s" % left)
    # The planted numbers of the machine alone.
    profile = json.loads((folder / "cluster.profile.json").read_text())
    for path, planted in ((("launch", "kernel"), 2.4e-6), (("launch", "host_sync"), 6.6e-6), (("launch", "kernel_floor"), 2.2e-6),
                          (("launch", "d2h_copy"), 8.1e-6), (("overlap", "compute_under_communication"), 1.12)):
        got = profile[path[0]][path[1]]
        check(abs(got / planted - 1) < 0.03, "%s is %s, planted %s" % (path, got, planted))
    # The profile of all rows on all rows, by operation.
    checked = json.loads(run(folder, "calibrate", "check", "cluster.profile.json", "--against", rows, "--format", "json").stdout)
    print("all rows: mean |error| %.1f %%, %.0f %% inside" % (100 * checked["mean_abs_error"], 100 * checked["coverage"]))
    check(checked["mean_abs_error"] < 0.03, "the profile is off its own rows: %s" % checked["mean_abs_error"])
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


def check_launcher(folder):
    """Several nodes: processes are mapped over them and find process 0; every rank has something to send."""
    launcher = folder / "bin" / "mpirun"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho \"$*\" > launched\nwhile [ \"$1\" != '%s' ]; do shift; done\nexec \"$@\"\n" % BENCH)
    launcher.chmod(0o755)
    environment = dict(os.environ, VIRTUAL_GPU="gpus=8", LD_LIBRARY_PATH=str(pathlib.Path(BENCH).parent),
                       PATH="%s:%s" % (launcher.parent, os.environ["PATH"]))
    measure = [MOESIM, "calibrate", "measure", "--out", "far", "--program", BENCH, "--dry-run", "--ranks", "16"]
    listed = subprocess.run([*measure, "--ranks-per-node", "8"], cwd=folder, env=environment, capture_output=True, text=True)
    check(listed.returncode == 0, "a dry run under mpirun: " + listed.stderr)
    launched = (folder / "launched").read_text()
    for word in ("-n 16 ", "--map-by ppr:8:node", "--bind-to none", "-x MASTER_ADDR="):
        check(word in launched, "mpirun gets no %s: %s" % (word, launched))
    unmapped = subprocess.run(measure, cwd=folder, env=environment, capture_output=True, text=True)
    check(unmapped.returncode == 2 and "found --ranks 16 without --ranks-per-node" in unmapped.stderr, "not refused: " + unmapped.stderr)
    many = subprocess.run([BENCH, "--dry-run"], env=dict(environment, VIRTUAL_GPU="gpus=600"), capture_output=True, text=True).stdout
    check("reduce_scatter/nodes:1/ranks:600/bytes:8192/" in many and "ranks:600/bytes:4096/" not in many,
          "600 ranks share 4 KiB: fewer than one element for every other rank's half")


def check_places(folder):
    """Processes of one node take a GPU each, by the place that their launcher gives; two on one GPU are refused, so are more than GPUs."""
    port = free_port()
    launchers = {"torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
                 "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
                 "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")}
    taken = {name for names in launchers.values() for name in names}

    def together(launcher, shown, *more):
        """Runs a process for each list of GPUs that it is shown, of a node with two."""
        processes = []
        for rank, gpus in enumerate(shown):
            environment = {key: value for key, value in os.environ.items() if key not in taken}
            environment.update(zip(launchers[launcher], (str(rank), str(len(shown)), str(rank))), VIRTUAL_GPU="gpus=2", CUDA_VISIBLE_DEVICES=gpus,
                               LD_LIBRARY_PATH=str(pathlib.Path(BENCH).parent), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, SLURM_STEP_ID="0")
            processes.append(subprocess.Popen([BENCH, "--benchmark_filter=^all_gather.*ranks:2/bytes:1024/", *more], cwd=folder,
                                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        said = ["".join(process.communicate(timeout=120)) for process in processes]
        return [process.returncode for process in processes], "".join(said)

    for launcher in launchers:
        # The second process takes the second GPU that it sees: the same one as the first where it sees them the other way round.
        for shown, same in ((["0,1", "0,1"], False), (["0", "1"], False), (["1,0", "1,0"], False), (["0,1", "1,0"], True), (["1", "1"], True)):
            codes, said = together(launcher, shown)
            if same:
                check(codes == [1, 1] and "processes 0 and 1 have the same GPU, expected one process a GPU" in said, "%s %s: %s" % (launcher, shown, said))
            else:
                check(codes == [0, 0] and "all_gather/nodes:1/ranks:2/bytes:1024/" in said, "%s %s: %s" % (launcher, shown, said))
    # A dry run takes the GPUs as the real run does.
    for more in ((), ("--dry-run",)):
        codes, said = together("torchrun", ["0,1"] * 3, *more)
        check(codes == [1, 1, 1] and "found 3 processes on this node and 2 GPUs" in said, "three processes, two GPUs %s: %s" % (more, said))
    codes, said = together("torchrun", ["1", "1"], "--dry-run")
    check(codes == [1, 1] and "processes 0 and 1 have the same GPU" in said, "a dry run of two processes on a GPU: " + said)
    codes, said = together("torchrun", ["0,1", "0,1"], "--dry-run")
    check(codes == [0, 0] and said.count("all_gather/nodes:1/ranks:2/bytes:1024/") == 1, "a dry run of two: " + said)


def main():
    for checks in (check_node, check_faults, check_launcher, check_places):
        with tempfile.TemporaryDirectory() as name:
            checks(pathlib.Path(name))
    print("virtual_node: ok")


main()

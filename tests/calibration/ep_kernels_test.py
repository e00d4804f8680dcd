"""calibration/bench/ep_kernels.py on a stand-in for PyTorch, DeepEP and HybridEP (virtual_ep/): four processes whose rows really travel, with
a clock that only calls move. Planted times come out, wrong results are found, what is missing is one line."""
import csv
import io
import os
import pathlib
import subprocess
import sys
import tempfile

from support import check, free_port

SOURCE, MOESIM = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
DRIVER, STAND_IN = SOURCE / "calibration/bench/ep_kernels.py", SOURCE / "tests/calibration/virtual_ep"
sys.dont_write_bytecode = True
sys.path.insert(0, str(STAND_IN))
import deep_ep  # noqa: E402

RANKS = 4
SIZES = ["--shape", "256/2/8", "--shape", "128/3/16", "--tokens", "24,64"]
TORCHRUN = {"rank": "RANK", "ranks": "WORLD_SIZE", "local": "LOCAL_RANK"}
OPEN_MPI = {"rank": "OMPI_COMM_WORLD_RANK", "ranks": "OMPI_COMM_WORLD_SIZE", "local": "OMPI_COMM_WORLD_LOCAL_RANK"}
KERNELS = {"normal": ("deepep_v1_normal_dispatch", "deepep_v1_normal_combine", "normal"),
           "low-latency": ("deepep_v1_lowlatency_dispatch", "deepep_v1_lowlatency_combine", "lowlatency"),
           "hybrid": ("hybridep_dispatch_api", "hybridep_combine_api", "hybrid")}
LAUNCHERS = (*TORCHRUN.values(), *OPEN_MPI.values(), "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def run(*arguments, ranks=RANKS, names=TORCHRUN, says="", only=None):
    """Returns exit codes, the table and what was said to people."""
    base = {key: value for key, value in os.environ.items() if key not in LAUNCHERS}
    base.update(PYTHONPATH=str(STAND_IN), PYTHONDONTWRITEBYTECODE="1", VIRTUAL_EP=says, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    processes = []
    for rank in range(ranks) if only is None else [only]:
        place = {names["rank"]: str(rank), names["ranks"]: str(ranks), names["local"]: str(rank)} if ranks > 1 else {}
        processes.append(subprocess.Popen([sys.executable, str(DRIVER), "--gpu", "h200-sxm", *arguments], env=dict(base, **place), stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    out, said = zip(*(process.communicate(timeout=200) for process in processes))
    return [process.returncode for process in processes], "".join(out), "".join(said)


def planted(row):
    """The time of a row of the table, us."""
    family = next(name for *kernels, name in KERNELS.values() if row["kernel"] in kernels)
    dtype = "bfloat16" if row["dtype"] == "bf16" else "float8_e4m3fn"
    return 1e6 * deep_ep.seconds(family + ("_combine" if "combine" in row["kernel"] else "_dispatch"), int(row["tokens"]), int(row["hidden"]), dtype)


def check_times(folder):
    for kernels, (dispatch, combine, _) in KERNELS.items():
        names = OPEN_MPI if kernels == "hybrid" else TORCHRUN
        codes, table, said = run("--kernels", kernels, *SIZES, names=names)
        check(codes == [0] * RANKS, "%s: %s\n%s" % (kernels, codes, said))
        rows = list(csv.DictReader(io.StringIO(table)))
        found = sorted((row["kernel"], row["dtype"], row["hidden"], row["tokens"]) for row in rows)
        expected = sorted((kernel, dtype, hidden, tokens) for kernel, dtype in ((dispatch, "bf16"), (dispatch, "fp8"), (combine, "bf16"))
                          for hidden in ("256", "128") for tokens in ("24", "64"))
        check(found == expected, "%s: rows are %s" % (kernels, found))
        for row in rows:
            off = float(row["latency_us"]) / planted(row) - 1
            check(abs(off) < 0.03, "%s is %.1f %% off what was planted, %.2f us" % (row, 100 * off, planted(row)))
            check(row["ep"] == "4" and row["nodes"] == "1" and row["gpu"] == "h200-sxm", "the place of a row: %s" % row)
            check(row["sms"] == ("20" if kernels == "normal" else ""), "SMs of %s" % row)
        check(said.count("skewed routing") == 12, "skewed rows are said, not written: " + said)
        # The table is what `calibrate import` and `refine` take.
        file = folder / (kernels + ".csv")
        file.write_text(table)
        done = subprocess.run([MOESIM, "calibrate", "import", "csv", str(file)], capture_output=True, text=True)
        check(done.returncode == 0 and done.stdout.count('"kernel"') == len(rows), "calibrate import csv: " + done.stderr)
    done = subprocess.run([MOESIM, "calibrate", "refine", "h200-sxm", "--with", *map(str, sorted(folder.glob("*.csv"))), "--out",
                           str(folder / "mine.json")], capture_output=True, text=True)
    for key in ("ep/deepep_v1_normal_dispatch@bf16", "ep/deepep_v1_lowlatency_combine@bf16", "ep/hybridep_dispatch_api@fp8"):
        check(key in done.stdout, "calibrate refine: no %s in %s%s" % (key, done.stdout, done.stderr))


def check_wrong_results():
    small = ["--shape", "128/2/8", "--tokens", "8"]
    for kernel, name, said_of in (("normal", "normal_dispatch", "deepep_v1_normal_dispatch"), ("normal", "normal_combine", "deepep_v1_normal_combine"),
                                  ("low-latency", "lowlatency_combine", "deepep_v1_lowlatency_combine"),
                                  ("hybrid", "hybrid_dispatch", "hybridep_dispatch_api"), ("hybrid", "hybrid_combine", "hybridep_combine_api")):
        codes, table, said = run("--kernels", kernel, *small, says="wrong=" + name)
        check(codes == [1] * RANKS and "wrong result: %s, equal routing" % said_of in said and "rank 2: " in said, "%s: %s %s" % (name, codes, said))
        check(said_of not in table, "a wrong result is in the table: " + table)
        check(name.endswith("combine") == ("dispatch" in table), "only what is wrong is left out: " + table)


def check_missing():
    for says, kernels, line in (("without=torch", "normal", "skipped: No module named 'torch'"),
                                ("without=deep_ep", "hybrid", "skipped: No module named 'deep_ep'"),
                                ("without=HybridEPBuffer", "hybrid", "skipped: this deep_ep has no HybridEPBuffer"),
                                ("without=gpu", "normal", "skipped: torch sees no GPU")):
        for ranks in (1, 2):
            codes, table, said = run("--kernels", kernels, ranks=ranks, says=says)
            check(codes == [0] * ranks and table == "" and said.startswith("ep_kernels.py: " + line) and said.count("\n") == 1,
                  "%s: %s %s %s" % (says, codes, table, said))
    codes, table, said = run(ranks=1)
    check(codes == [0] and table == "" and "skipped: one process, expected one for each GPU" in said, "one process: " + said)


def check_refused():
    for arguments, line in ((["--shape", "100/2/8"], "found --shape 100/2/8, expected"), (["--shape", "128/9/8"], "found --shape 128/9/8"),
                            (["--shape", "128/2/6"], "found 6 experts on 4 processes"), (["--tokens", "0"], "found --tokens 0, expected"),
                            (["--kernels", "hybrid", "--sms", "24"], "found --sms 24 with --kernels hybrid")):
        codes, table, said = run(*arguments)
        check(codes == [2] * RANKS and table == "" and line in said and said.count("\n") == 1, "%s: %s %s" % (arguments, codes, said))
    codes, _, said = run(says="gpus=3", only=3)
    check(codes == [2] and "found 4 processes on this node and 3 GPUs, expected one process a GPU" in said, "four processes on three GPUs: %s" % said)


def main():
    with tempfile.TemporaryDirectory() as name:
        check_times(pathlib.Path(name))
    check_wrong_results()
    check_missing()
    check_refused()
    print("ep_kernels: ok")


main()

"""tools/gpu_pass.sh from end to end on a machine without a GPU: a stand-in measures. Stopped in the middle, it goes on."""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from support import check

SOURCE, MOESIM = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
STAND_IN = SOURCE / "tests/calibration/stand_in_bench.py"
FAKE_SMI = """#!/bin/sh
case "$*" in *--query-gpu=name\\ *) echo "NVIDIA H200" ;; *) echo "a stand-in for nvidia-smi" ;; esac
"""
# A step of one rank in ms, one operation after another, as moesim_capture writes it.
OPERATIONS = {"forward_step": 1.25, "loss_func": 0.05, "backward_step": 2.5, "optimizer_step": 0.4}
OPERATION = ("rank:0:%s(stage_id=0,batch_id=0,mg_state=None,duration=%s,description=None,group_kind=None,cmd_uid=cmd-%s,"
             "op_semantics=None,finalize_base_duration_ms=None,input__shape=None,input__dtype=None,timestamp=%.2f,sub_operations=[])\n")
# A Python whose torch has CUDA: what is recorded lies there already.
TORCH = """#!/bin/sh
case "$*" in
  *torch.cuda.is_available*) exit 0 ;;
  *torch.__version__*) echo "torch 9" ;;
  *"moesim_capture run"*) %s ;;
  *) exec %s "$@" ;;
esac
"""
# Starts four processes as torch.distributed.run does, with sizes that lists of Python hold.
EP_RUN = """#!/bin/sh
case "$*" in
  *torch.distributed.run*) ;;
  *) exec %s "$@" ;;
esac
[ "$*" != "${*#-m torch.distributed.run --standalone --nproc-per-node 4 }" ] || exit 9
shift 5
export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$
for rank in 3 2 1; do RANK=$rank LOCAL_RANK=$rank %s "$@" --shape 128/2/8 --tokens 8,16 & done
RANK=0 LOCAL_RANK=0 %s "$@" --shape 128/2/8 --tokens 8,16
code=$?
wait
exit $code
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def run(folder, *more, ep="without=torch"):
    environment = dict(os.environ, PATH=str(folder) + ":" + os.environ["PATH"], PYTHONPATH=str(SOURCE / "tests/calibration/virtual_ep"),
                       PYTHONDONTWRITEBYTECODE="1", VIRTUAL_EP=ep)
    return subprocess.run(["sh", str(SOURCE / "tools/gpu_pass.sh"), "--out", str(folder / "out"), "--bench", str(STAND_IN),
                           "--moesim", MOESIM, *more], cwd=folder, env=environment, capture_output=True, text=True)


def numbers(text, pattern):
    found = re.search(pattern, text)
    check(found, "no '%s' in: %s" % (pattern, text))
    return [float(group) for group in found.groups()]


def check_capture(folder):
    """The recording was checked, replayed, and what replay says of it is what was measured; without one the pass goes on."""
    out = folder / "out"
    text = (out / "capture.txt").read_text()
    check(text == "capture: skipped, no PyTorch with CUDA here\n", "without PyTorch: " + text)
    check(text in (out / "report.md").read_text(), "the report does not tell the capture")
    recording = folder / "kept/pp1_tp1_exp1_expn16_dp1_nl1_hs64_sl64"
    (recording / "scaling").mkdir(parents=True)
    at, lines = 1000.0, ["# device: cuda, NVIDIA H200\n"]
    for number, (name, length) in enumerate(OPERATIONS.items()):
        at += length
        lines.append(OPERATION % (name, length, number, at))
    (recording / "scaling/wd1_tp1_pp1_exp1_expNum16_l1_bs1_rank0_20261126120000.txt").write_text("".join(lines))
    (recording / "run_scaling.json").write_text('{"plain_ms": [5, 3, 4]}')
    (out / "done/capture").unlink()
    program(folder / "python3", TORCH % ("mkdir -p out/capture && cp -r kept " + str(out / "capture/torch"), sys.executable))
    done = run(folder, "--only", "capture")
    text = (out / "capture.txt").read_text()
    check(done.returncode == 0 and "torch 9" in text and "a step took 4000.0 us" in text, "not PyTorch's recording: " + text)
    busy, off, iteration = numbers(text, r"of this recording: computing ([0-9.]+) us \(([-+0-9.]+) %\), iteration ([0-9.]+) us")
    together = 1e3 * sum(OPERATIONS.values())
    check(abs(busy / together - 1) < 1e-3, "replay computes for %s us, recorded are %s" % (busy, together))
    check(abs(off - 100 * (busy / 4000 - 1)) < 0.06, "%s %% is not the error" % off)
    check(0 <= iteration - busy < 0.2, "one rank waits for another: %s of %s" % (busy, iteration))
    base, = numbers(text, r"with those of h200-sxm.* iteration ([0-9.]+) us")
    check(base > iteration, "the base has no host gaps")
    check("no problems" in (out / "capture.log").read_text(), "trace check did not run")
    # A capture that fails is told.
    (out / "done/capture").unlink()
    program(folder / "python3", TORCH % ("exit 1", sys.executable))
    done = run(folder, "--only", "capture")
    text = (out / "capture.txt").read_text()
    check(done.returncode == 0 and "capture: failed, see capture.log" in text, "nobody tells: " + text)
    (folder / "python3").unlink()


def check_collectives(out):
    """Collectives of all GPUs are among the rows, as they were measured."""
    rows = {(row["op"], row["bytes"]): row for path in (out / "raw").glob("*.measurements.json")
            for row in json.loads(path.read_text()).get("collectives", [])}
    expected = {(op, float(1 << power)) for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_recv") for power in (20, 28)}
    check(set(rows) == expected, "collectives are %s" % sorted(rows))
    for (op, size), row in rows.items():
        check((row["nodes"], row["gpus_per_node"]) == (1, 8) and abs(row["seconds"] / (15e-6 + size / 300e9) - 1) < 0.05, "%s: %s" % (op, row))
    check("all_gather/" in (out / "refine.txt").read_text(), "the refined profile knows no collectives: " + (out / "refine.txt").read_text())


def check_ep_kernels(folder):
    """Dispatch and combine become rows where the libraries are; what is missing is one line, and no failure."""
    out = folder / "out"
    said = (out / "ep_kernels.txt").read_text()
    check(said == "ep_kernels.py: skipped: No module named 'torch'\n", "without PyTorch: " + said)
    check(said in (out / "report.md").read_text(), "the report does not tell it")
    program(folder / "python3", EP_RUN % ((sys.executable,) * 3))
    for ep, missing, kernels in (("without=HybridEPBuffer", "this deep_ep has no HybridEPBuffer", ("normal", "low-latency")),
                                 ("wrong=lowlatency_combine", "wrong result: deepep_v1_lowlatency_combine", ("normal", "hybrid", "low-latency"))):
        (out / "done/ep_kernels").unlink()
        for path in (out / "raw").glob("ep_*"):
            path.unlink()
        done = run(folder, "--only", "ep_kernels", ep=ep)
        said = (out / "ep_kernels.txt").read_text()
        check(done.returncode == 0 and missing in said, "%s: %s%s" % (ep, done.stderr, said))
        files = sorted((out / "raw").glob("ep_*.measurements.json"))
        check([file.name for file in files] == sorted("ep_%s.measurements.json" % name for name in kernels), "%s: %s %s" % (ep, files, said))
        rows = [row for file in files for row in json.loads(file.read_text())["dispatches"]]
        check({(row["gpu"], row["ep"]) for row in rows} == {("H200-SXM5-141GB", 4)}, "not of the GPU that the bench names: %s" % rows)
        combines = [row for row in rows if row["kernel"] == "deepep_v1_lowlatency_combine"]
        check(len(combines) == (0 if "wrong" in ep else 2), "a wrong result is not among the rows: %s" % combines)
    (folder / "python3").unlink()
    # A profile takes them.
    (out / "done/fit").unlink()
    (out / "fitted.json").unlink()
    done = run(folder, "--only", "fit")
    refined = (out / "refine.txt").read_text()
    check(done.returncode == 0 and "ep/deepep_v1_normal_dispatch@bf16" in refined and "ep/hybridep_dispatch_api@bf16" in refined,
          "fit with rows of kernels: " + done.stderr + refined)
    check("ep/hybridep_combine_api@bf16" in json.loads((out / "fitted.json").read_text())["laws"], "no law of its own: " + (out / "fit.log").read_text())


def check_pack(folder):
    """The files of --pack depend on nothing of this machine except its C library."""
    there = folder / "there"
    there.mkdir()
    script = ["sh", str(SOURCE / "tools/gpu_pass.sh")]
    done = subprocess.run([*script, "--pack", str(folder / "pack.tar.gz"), "--moesim", MOESIM], capture_output=True, text=True)
    if "found no Google Benchmark here" in done.stderr:
        return
    check(done.returncode == 0, "pack: " + done.stderr)
    done = subprocess.run([*script, "--packed", str(folder / "pack.tar.gz"), "--bench", str(STAND_IN), "--only", "list"],
                          cwd=there, capture_output=True, text=True)
    packed = there / "build/packed"
    check(done.returncode == 0 and (there / "gpu-pass/list.txt").stat().st_size > 0, "packed: " + done.stderr)
    version = [subprocess.run([path, "--version"], capture_output=True, text=True).stdout for path in (MOESIM, packed / "moesim")]
    check(version[0] and version[0] == version[1], "another moesim: " + str(version))
    needs = subprocess.run(["ldd", packed / "program"], env=dict(os.environ, LD_LIBRARY_PATH=str(packed / "lib")),
                           capture_output=True, text=True).stdout
    own = [line for line in needs.splitlines() if "=> /" in line and str(packed) not in line]
    check(all(line.split()[0] in ("libc.so.6", "libm.so.6") for line in own), "not taken along: " + str(own))
    check(list(packed.glob("usr/lib/*/cmake/benchmark/benchmarkConfig.cmake")), "Google Benchmark was not taken along")
    done = subprocess.run([*script, "--packed", "nowhere.tar.gz"], cwd=there, capture_output=True, text=True)
    check(done.returncode == 2 and "found no file nowhere.tar.gz" in done.stderr, "a missing pack: " + done.stderr)


def check_nearest(folder):
    """The pass takes the profile of the GPU's own form; of an unknown GPU it wants --base."""
    out = folder / "out"
    said = (out / "gpu.txt").read_text()
    for name in ("NVIDIA H200 NVL", ""):
        (out / "gpu.txt").write_text(name + "\n")
        (out / "done/check").unlink(missing_ok=True)
        done = run(folder, "--only", "check")
        check(done.returncode == 1 and "found the GPU '%s'" % name in done.stderr and "expected --base" in done.stderr, "%s: %s" % (name, done.stderr))
    (out / "gpu.txt").write_text(said)
    done = run(folder, "--only", "check")
    check(done.returncode == 0, "check once more: " + done.stderr)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program(folder / "nvidia-smi", FAKE_SMI)
        out = folder / "out"
        bad = run(folder, "--only", "sleep")
        check(bad.returncode == 2 and "expected one of" in bad.stderr, "an unknown step is refused: " + bad.stderr)
        # As if it had been stopped after a part of the products.
        for step in ("state", "build", "list", "costs"):
            done = run(folder, "--only", step)
            check(done.returncode == 0, step + ": " + done.stderr)
        parts = list((out / "raw").glob("*-parts/part-*.json"))
        check(parts, "no part of the costs is there")
        before = {part: part.read_bytes() for part in parts}
        whole = run(folder)
        check(whole.returncode == 0, "the whole pass: " + whole.stderr)
        check(all(part.read_bytes() == old for part, old in before.items()), "a part was measured again")
        check("state" not in whole.stderr.split(), "a step that is done ran again: " + whole.stderr)
        for file in ("machine.txt", "state_before.txt", "state_after.txt", "list.txt", "mine.json", "refine.txt", "prediction.csv",
                     "check_mine.txt", "check_base.txt", "report.md", "capture.txt"):
            check((out / file).is_file() and (out / file).stat().st_size > 0, file + " is missing")
        mine = json.loads((out / "mine.json").read_text())
        check(abs(mine["launch"]["kernel"] / 2.4e-6 - 1) < 0.05, "the launch is not the measured one")
        check(abs(mine["overlap"]["compute_under_communication"] - 1.15) < 0.05, "the slow-down is not the measured one")
        check(abs(mine["laws"]["kernel/scatter_add"]["parameters"]["share"]["value"] / 0.35 - 1) < 0.1, "the share of scatter_add")
        check(mine["laws"]["gemm/bf16"]["own_share"] > 0.2, "the products are not own")
        # The prediction was made before, covers what came, and no left-out row was in the fit.
        raw = json.loads(next((out / "raw").glob("*.measurements.json")).read_text())
        check(not any(row["n"] == 7168 for row in raw["gemms"]), "the left-out shape was in the fit")
        check((out / "prediction.csv").stat().st_mtime <= (out / "held/measure.log").stat().st_mtime, "the prediction came late")
        predicted = list(csv.DictReader((out / "prediction.csv").open()))
        held = {(row["m"], row["n"]): row["seconds"] * 1e6
                for row in json.loads(next((out / "held").glob("*.measurements.json")).read_text())["gemms"]}
        check(len(predicted) == len(held) == 4, "four rows are left out, not %d and %d" % (len(predicted), len(held)))
        off = []
        for row in predicted:
            m = float(row["row"].split("/m:")[1].split("/")[0])
            off.append(abs(float(row["forecast_us"]) / held[(m, 7168.0)] - 1))
        check(sum(off) / len(off) < 0.25, "the predictions are %s off" % off)
        log = (out / "raw/measure.log").read_text()
        check("throttled" in log and "skipped: one GPU" not in log.split("unusual")[0], "the throttled row is not told: " + log)
        check_collectives(out)
        check_pack(folder)
        again = run(folder)
        check(again.returncode == 0 and "gpu_pass.sh: report.md" not in again.stderr, "a finished pass does nothing")
        check_nearest(folder)
        check_ep_kernels(folder)
        check_capture(folder)
    print("gpu_pass: ok")


main()

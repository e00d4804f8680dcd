"""tools/gpu_pass.sh from end to end on a machine without a GPU: a stand-in measures. Stopped in the middle, it goes on."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE, MOESIM = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
STAND_IN = SOURCE / "tests/calibration/stand_in_bench.py"
FAKE_SMI = """#!/bin/sh
case "$*" in *--query-gpu=name\\ *) echo "NVIDIA H200" ;; *) echo "a stand-in for nvidia-smi" ;; esac
"""


def check(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def run(folder, *more):
    environment = dict(os.environ, PATH=str(folder) + ":" + os.environ["PATH"])
    return subprocess.run(["sh", str(SOURCE / "tools/gpu_pass.sh"), "--out", str(folder / "out"), "--bench", str(STAND_IN),
                           "--moesim", MOESIM, *more], cwd=folder, env=environment, capture_output=True, text=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        smi = folder / "nvidia-smi"
        smi.write_text(FAKE_SMI)
        smi.chmod(0o755)
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
        again = run(folder)
        check(again.returncode == 0 and "gpu_pass.sh: report.md" not in again.stderr, "a finished pass does nothing")
    print("gpu_pass: ok")


main()

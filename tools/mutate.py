#!/usr/bin/env python3
"""Mutation spot checks: changes one sign, factor, bound or constant of a source file at a time, and sees whether a test
fails. Prints a line per mutant; exits 1 where one survived.

  tools/mutate.py BUILD COUNT FILE... [--seed N]

BUILD is a configured build folder of this tree (build/coverage compiles fast). COUNT mutants are drawn from all possible ones
of the files. Sources are put back as they were. Test programs run from the file's own folder up (models_tests,
calibration_tests, replay_tests).
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ABOVE = {"sim": ("sim", "models", "replay"), "models": ("models", "calibration", "replay"),
         "calibration": ("calibration",), "replay": ("replay",), "traces": ("traces", "replay")}
SECONDS = 300  # a mutant that runs longer hangs: a test fails

OPERATORS = (
    (re.compile(r"(?<=[\w)\]]) \* (?=[\w(])"), lambda m: " / "),
    (re.compile(r"(?<=[\w)\]]) / (?=[\w(])"), lambda m: " * "),
    (re.compile(r"(?<=[\w)\]]) \+ (?=[\w(])"), lambda m: " - "),
    (re.compile(r"(?<=[\w)\]]) - (?=[\w(])"), lambda m: " + "),
    (re.compile(r" \+= "), lambda m: " -= "),
    (re.compile(r"std::max\("), lambda m: "std::min("),
    (re.compile(r"std::min\("), lambda m: "std::max("),
    (re.compile(r"(?<![\w.])\d+\.\d+(?:e-?\d+)?(?![\w.])|(?<![\w.])\d+e-?\d+(?![\w.])"),
     lambda m: "(1.25 * %s)" % m.group(0) if float(m.group(0)) else m.group(0)),
)
NO_COST = re.compile(r"^\s*(#|//|\*)|\bfor \(|\bthrow\b|InputError|\bcheck\(|static_assert|reserve\(|template|case |\"|warning|~")


def mutants_of(path):
    for number, line in enumerate((ROOT / path).read_text().split("\n")):
        code = line.split("//")[0]
        if NO_COST.search(code):
            continue
        for pattern, change in OPERATORS:
            for match in pattern.finditer(code):
                new = change(match)
                if new != match.group(0):
                    yield path, number, match.start(), match.end(), match.group(0), new


def build(folder, target):
    return subprocess.run(["cmake", "--build", folder, "--target", target], cwd=ROOT, capture_output=True).returncode == 0


def caught_by(folder, path):
    """The test that failed, "the compiler", or None."""
    # Counters of a coverage build are not wanted from mutants.
    environment = dict(os.environ, GCOV_PREFIX="/nonexistent", GCOV_PREFIX_STRIP="99", GCOV_ERROR_FILE="/dev/null")
    for name in ABOVE[path.split("/")[0]]:
        if not build(folder, name + "_tests"):
            return "the compiler"
        program = os.path.join(folder, "tests", name, name + "_tests")
        try:
            done = subprocess.run([program, "--gtest_fail_fast"], cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return name + " (hangs)"
        if done.returncode != 0:
            failed = re.findall(r"\[  FAILED  \] ([\w/.]+)", done.stdout)
            return failed[0] if failed else name + " (crashes)"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("count", type=int)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = os.path.abspath(options.build)
    mutants = []
    for path in options.files:
        path = os.path.relpath(os.path.abspath(path), ROOT)
        if path.split("/")[0] not in ABOVE or not (ROOT / path).is_file():
            parser.error("found %s, expected a source file of %s" % (path, ", ".join(sorted(ABOVE))))
        mutants += mutants_of(path)
    chosen = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    for path in sorted({mutant[0].split("/")[0]: mutant[0] for mutant in chosen}.values()):
        by = caught_by(folder, path)
        if by:
            print("found %s failing before anything was changed, expected tests that pass" % by, file=sys.stderr)
            return 2
    survived = tried = 0
    for path, number, begin, end, old, new in sorted(chosen):
        original = (ROOT / path).read_text()
        lines = original.split("\n")
        lines[number] = lines[number][:begin] + new + lines[number][end:]
        try:
            (ROOT / path).write_text("\n".join(lines))
            by = caught_by(folder, path)
        finally:
            (ROOT / path).write_text(original)
        if by != "the compiler":
            tried += 1
            survived += by is None
        print("%-14s %s:%d: %s" % ("SURVIVED" if by is None else "caught", path, number + 1, lines[number].strip()) +
              ("" if by is None else "    [%s]" % by), flush=True)
    print("%d of %d mutants caught, of %d possible in %d files" % (tried - survived, tried, len(mutants), len(options.files)))
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())

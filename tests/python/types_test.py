"""mypy --strict finds no fault in the package and in a program that uses it: types_test.py BUILD/python

Exit code 77 (skipped) where mypy is not installed."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

if not shutil.which("mypy"):
    print("SKIPPED: mypy is not installed (Debian: mypy)")
    sys.exit(77)

USER = """
import moesim
a = moesim.compare(model="mixtral-8x7b", cluster="dgx-h100x4", ep=8)
times: list[float] = [one.time_us.value for one in a]
name: str | None = a.recommendation.dispatcher if a.recommendation else None
days: list[float] = [plan.days.value for plan in moesim.plan(model="olmoe", tokens="1T")]
"""
WRONG = "import moesim\na = moesim.compare()\nprint(a.winer)\n"


def checked(program):
    """Returns the exit code and what mypy says of a program."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "program.py")
        file.write_text(program)
        package = os.path.abspath(sys.argv[1])
        said = subprocess.run(["mypy", "--strict", "--ignore-missing-imports", "--cache-dir", folder, str(file), f"{package}/moesim"],
                              capture_output=True, text=True, cwd=folder, env={**os.environ, "MYPYPATH": package})
        return said.returncode, said.stdout + said.stderr


code, text = checked(USER)
print(text)
wrong, text = checked(WRONG)
print(text)
sys.exit(code != 0 or wrong == 0 or "winer" not in text)

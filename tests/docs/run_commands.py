"""Runs the moesim commands that a document shows, in the order of the page, in a folder that looks like a checkout.

  run_commands.py MOESIM SOURCE DOCUMENT

A command is a line of a fenced block that begins with "moesim", "build/moesim" or "$ build/moesim"; a backslash goes on
in the next line, "#" begins a comment. Files that it names are those of tests/docs/fixtures, of the checkout, or
written by an earlier command of the page. A block under "<!-- not run: reason -->" is left out; commands on recordings
that are not here (../shared/data) are counted as skipped. Exits 1 where a command fails, or where none was found.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile


def commands(text):
    """(line, command) of every command to run; (line, None) where a block says that it is not run."""
    fenced, left_out, pending, start = False, False, "", 0
    previous = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            left_out = fenced and previous.strip().startswith("<!-- not run:")
        elif fenced:
            if not pending:
                match = re.match(r"\s*(?:\$ )?((?:build/)?moesim\s.*)", line)
                if not match:
                    continue
                pending, start = match.group(1), number
            else:
                pending += " " + line.strip()
            if pending.endswith("\\"):
                pending = pending[:-1].rstrip()
            else:
                yield start, None if left_out else re.sub(r"\s+#.*", "", pending)
                pending = ""
        if line.strip():
            previous = line


def main():
    moesim, source, document = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    shared = source.parent / "shared"
    run = skipped = failed = 0
    with tempfile.TemporaryDirectory(prefix="moesim_docs_") as scratch:
        here = pathlib.Path(scratch) / "moesim"
        shutil.copytree(source / "tests/docs/fixtures", here)
        (here / "build").mkdir()
        (here / "build/moesim").symlink_to(moesim)
        for name in ("docs", "traces", "calibration", "tests"):
            (here / name).symlink_to(source / name)
        if shared.exists():
            (here.parent / "shared").symlink_to(shared)
        environment = dict(os.environ, PATH=f"{here / 'build'}:{os.environ['PATH']}", COLUMNS="120", NO_COLOR="1")
        for line, command in commands(document.read_text()):
            if command is None or ("../shared" in command and not shared.exists()):
                skipped += 1
                continue
            result = subprocess.run(["bash", "-c", command], cwd=here, env=environment, capture_output=True, text=True,
                                    timeout=240)
            run += 1
            if result.returncode != 0:
                failed += 1
                print(f"{document.name}:{line}: exit {result.returncode}: {command}\n{result.stderr[:500]}")
    print(f"{run} commands run, {failed} failed, {skipped} skipped")
    if run == 0 and skipped == 0:
        print("no commands found")
        return 1
    if run == 0:
        print("SKIPPED: needs ../shared/data")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

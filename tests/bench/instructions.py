#!/usr/bin/env python3
"""Instructions that commands take, counted by callgrind (the same on any machine, but for the C library's variants), against
tests/bench/instructions.tsv: instructions.py build/moesim [--update]. Exit 1 where one takes 20 % more than noted."""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("instructions.tsv")
MORE = 1.2


def counted(moesim, words):
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", moesim, *shlex.split(words),
                               "--threads", "1", "--quiet"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"moesim {words}: exit {done.returncode}: {done.stderr[-300:]}")
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main():
    moesim = str(pathlib.Path(sys.argv[1]).resolve())
    rows = [line.split("\t") for line in TABLE.read_text().splitlines()]
    now = [(counted(moesim, words), int(noted), words) for noted, words in rows]
    for count, noted, words in now:
        print("%8.1f M  %+5.1f %%  %s%s" % (count / 1e6, 100 * (count / noted - 1), words, "   FAILED" if count > MORE * noted else ""))
    if "--update" in sys.argv:
        TABLE.write_text("".join(f"{count}\t{words}\n" for count, _, words in now))
        return 0
    return int(any(count > MORE * noted for count, noted, _ in now))


if __name__ == "__main__":
    sys.exit(main())

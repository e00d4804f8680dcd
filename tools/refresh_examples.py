#!/usr/bin/env python3
"""Puts what commands print in the place of what documents show ("$ build/moesim ..." in a fenced block).
Commands of a page run as in its test, tests/docs/run_commands.py, which says what a block may look like; the notebook
is run where build/python is. An output that is shown in extracts ("...", lines cut on the right) is cut out anew: every stretch
of lines where the output is most like it. Read the result, and the numbers of the prose beside it; where the place is not
clear, "FILE:LINE: by hand" is printed.
Usage: tools/refresh_examples.py [build/moesim] [FILE.md ...]"""
import difflib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/docs"))
import run_commands as docs  # noqa: E402

CLEARLY = 0.1


def likeness(shown, real):
    """0 to 2 for two lines; the first word counts most, cut words do not count."""
    shown, real = shown.split(), real.split()
    real = real[:len(shown)]
    return (shown[:1] == real[:1]) + difflib.SequenceMatcher(None, shown, real, False).ratio()


def cut(shown, real):
    """As many words of the real line as are shown; all where a sentence is shown to its end."""
    count = len(shown.split())
    if shown.endswith(".") or len(shown) < docs.SHORTEST_CUT or len(real.split()) <= count:
        return real
    return re.match(r"\s*(?:\S+\s+){%d}\S+" % (count - 1), real).group(0)


def extract(shown, real):
    """Returns the part of this output that corresponds to `shown`; None where it is ambiguous."""
    out, start, runs = [], 0, docs.runs_of(shown)
    for number, run in enumerate(runs):
        if number > 0:
            out.append(next(line for line in shown[len(out):] if line.strip() == "..."))
        last = len(real) - len(run)
        if number == 0:
            places = [0]
        elif number == len(runs) - 1 and run:
            places = [last]
        else:
            places = range(start, last + 1)
        ranked = sorted(((sum(likeness(line, real[place + n]) for n, (_, line) in enumerate(run)), -place)
                         for place in places if start <= place <= last), reverse=True)
        if not ranked or run and len(ranked) > 1 and ranked[0][0] - ranked[1][0] < CLEARLY:
            return None
        place = start if not run else -ranked[0][1]
        out += [cut(line, real[place + n]) for n, (_, line) in enumerate(run)]
        start = place + len(run)
    return out if docs.difference(out, real) is None else None


def refreshed(text, name, moesim):
    lines = text.split("\n")
    with docs.checkout(moesim, ROOT) as here:
        todo = []
        for command in docs.commands(text):
            code, real = docs.run(command, here)
            if code is None:
                print(f"{name}:{command.line}: not run: {real}")
            elif code != 0:
                print(f"{name}:{command.line}: by hand: exit code {code}")
            elif command.note != "output varies":
                if command.prompted and docs.difference(command.shown, real):
                    todo.append((command, real))
                for line, *_ in docs.missing_rows(command.rows, real):
                    print(f"{name}:{line}: by hand: a row of a table")
        for command, real in reversed(todo):
            is_cut = any(line.strip() == "..." or docs.agrees(line, other) and line.rstrip() != other.rstrip()
                         for line in command.shown for other in real)
            fresh = extract(command.shown, real) if is_cut else real
            if fresh is None:
                print(f"{name}:{command.line}: by hand")
                continue
            print(f"{name}:{command.line}: " + ("cut out anew" if is_cut else "brought up to date"))
            at = command.shown_at - 1
            lines[at:at + len(command.shown)] = fresh
    return "\n".join(lines)


def main():
    moesim = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/moesim").resolve()
    pages = [ROOT / name for name in sys.argv[2:]] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        text = page.read_text()
        fresh = refreshed(text, page.relative_to(ROOT), moesim)
        if fresh != text:
            page.write_text(fresh)
    if package := next(moesim.parent.glob("python/moesim/_moesim*.so"), None):
        subprocess.run([sys.executable, ROOT / "tests/python/run_notebook.py", package.parents[1],
                        ROOT / "docs/ten_lines.ipynb", "--write"])


if __name__ == "__main__":
    main()

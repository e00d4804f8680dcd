#!/usr/bin/env python3
"""Runs the commands that documents show ("$ build/moesim whatif ..." in a fenced block) and puts what they print in the
place of what stands there. Usage: tools/refresh_examples.py [build/moesim] [FILE.md ...]"""
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "$ build/moesim whatif "


def refreshed(text, program):
    out, fence, skipping = [], False, False
    for line in text.split("\n"):
        if line.startswith("```"):
            fence, skipping = not fence, False
        if fence and line.startswith(PROMPT):
            words = shlex.split(line[2:])
            words[0] = program
            shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
            out += [line] + shown.rstrip("\n").split("\n")
            skipping = True
        elif not skipping:
            out.append(line)
    return "\n".join(out)


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/moesim")
    for name in sys.argv[2:] or ["docs/whatif.md", "README.md"]:
        path = ROOT / name
        text = path.read_text()
        fresh = refreshed(text, program)
        if fresh != text:
            path.write_text(fresh)
            print(f"{name}: brought up to date")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs the commands that documents show ("$ build/moesim ..." in a fenced block, also over several lines that end in a
backslash) and puts what they print in the place of what stands there. Commands run one after the other in a folder of
their own, in which docs/ and build/ are what they are here; pictures that they draw go to docs/images.
Usage: tools/refresh_examples.py [build/moesim] [FILE.md ...]"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = ("$ build/moesim whatif ", "$ build/moesim sweep ", "$ build/library_example")


def run(command, folder):
    return subprocess.run(["bash", "-c", "set -o pipefail; " + command], cwd=folder, capture_output=True, text=True,
                          check=True).stdout


def refreshed(text, folder):
    out, fence, skipping, command = [], False, False, None
    for line in text.split("\n"):
        if line.startswith("```"):
            fence, skipping = not fence, False
        if fence and (command is not None or line.startswith(PROMPTS)):
            out.append(line)
            command = line[2:] if command is None else command + " " + line.strip()
            if command.endswith("\\"):
                command = command[:-1].rstrip()
                continue
            shown = run(command, folder)
            out += shown.rstrip("\n").split("\n") if shown else []
            command, skipping = None, True
        elif not skipping:
            out.append(line)
    return "\n".join(out)


def main():
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/moesim").resolve()
    for name in sys.argv[2:] or ["docs/whatif.md", "docs/library.md", "README.md"]:
        path = ROOT / name
        text = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "docs").symlink_to(ROOT / "docs")
            (folder / "build").symlink_to(program.parent)
            fresh = refreshed(text, folder)
            for picture in folder.glob("*.svg"):
                (ROOT / "docs/images").mkdir(exist_ok=True)
                shutil.copyfile(picture, ROOT / "docs/images" / picture.name)
        if fresh != text:
            path.write_text(fresh)
            print(f"{name}: brought up to date")


if __name__ == "__main__":
    main()

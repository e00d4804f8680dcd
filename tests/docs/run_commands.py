"""Runs the moesim commands that a document shows, in the order of the page, in a folder that looks like a checkout, and
compares what they print with what the page shows.

  run_commands.py MOESIM SOURCE DOCUMENT

A command is a line of a fenced block that begins with "moesim" or "build/moesim", behind "$ " or not; a backslash goes
on in the next line, "#" begins a comment. Files that it names are those of tests/docs/fixtures, of the checkout, or
written by an earlier command of the page.

Behind "$ " the command's output (stdout and stderr) follows, up to the next "$ " or the end of the block. Lines may be
cut on the right (40 characters must stay), "..." stands for lines that are left out. Between "<!-- output -->" and
"<!-- /output -->" below a command the words of each line are words of a line of its output, in the same order (a table
with fewer columns); heads of tables do not count. Pictures that commands draw are those of docs/images.

A block under "<!-- not run: reason -->" is left out; of one under "<!-- output varies: reason -->" only the exit code
counts. Skipped and counted: commands on recordings that are not here (../shared/data), reports of a moesim that was
built without them. Exits 1 where a command fails or prints something else, or where none was found.
"""
import collections
import contextlib
import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SHORTEST_CUT = 40
RULE = re.compile(r"\s*\|[ :|-]+\|$")  # between head and body of a table
END = "(the end)"
WITHOUT_REPORTS = re.compile(r"^moesim: --report: (this moesim was built |its page could not be bundled)", re.MULTILINE)


@dataclasses.dataclass
class Command:
    line: int                                   # of the page, from 1
    text: str
    prompted: bool                              # its output is shown below
    note: str = ""                              # "not run", "output varies"
    shown_at: int = 0                           # line of the page of the first shown line
    shown: list = dataclasses.field(default_factory=list)
    rows: list = dataclasses.field(default_factory=list)  # (line, text) between <!-- output --> and <!-- /output -->


def commands(text):
    """Every command of the page."""
    found, current, note = [], None, ""
    fenced = going_on = in_rows = False
    lines, previous = [line.rstrip() for line in text.split("\n")], ""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced, going_on, current = not fenced, False, None
            match = re.match(r"<!-- (not run|output varies): ", previous)
            note = match.group(1) if match else ""
        elif fenced and going_on:
            current.text = current.text[:-1].rstrip() + " " + stripped
            current.shown_at = number + 1
            going_on = stripped.endswith("\\")
        elif fenced:
            match = re.match(r"(\$ )?((?:build/)?(?:moesim|library_example)(?:\s.*)?)$", stripped)
            if match and (match.group(1) or not (current and current.prompted)):
                current = Command(number, match.group(2), bool(match.group(1)), note, number + 1)
                found.append(current)
                going_on = stripped.endswith("\\")
            elif stripped.startswith("$ "):  # of another program
                current = None
            elif current and current.prompted:
                current.shown.append(line)
        elif stripped in ("<!-- output -->", "<!-- /output -->"):
            in_rows = stripped == "<!-- output -->"
        elif in_rows and stripped and not RULE.match(line) and not RULE.match(lines[number]):
            found[-1].rows.append((number, line))
        if stripped:
            previous = stripped
    for command in found:
        command.text = re.sub(r"\s+#.*", "", command.text)
        while command.shown and not command.shown[-1]:
            command.shown.pop()
    return found


def agrees(shown, real):
    shown, real = shown.rstrip(), real.rstrip()
    return shown == real or len(shown) >= SHORTEST_CUT and real.startswith(shown)


def runs_of(shown):
    """The shown lines between "..." as [(index, line), ...]: neighbours in the output."""
    runs = [[]]
    for index, line in enumerate(shown):
        if line.strip() == "...":
            runs.append([])
        else:
            runs[-1].append((index, line))
    return runs


def agreeing(run, real):
    """Returns the number of lines of a run that are the first ones of `real`."""
    pairs = zip(run, real)
    return next((n for n, ((_, line), other) in enumerate(pairs) if not agrees(line, other)), min(len(run), len(real)))


def difference(shown, real):
    """None where `shown` is `real` or cut out of it; else (index of the shown line, the real line, what is wrong)."""
    runs, start = runs_of(shown), 0
    for number, run in enumerate(runs):
        last = number == len(runs) - 1
        if not run and len(runs) > 1:
            continue
        places = [0] if number == 0 else range(start, len(real) + 1)
        fitting = [place for place in places if agreeing(run, real[place:place + len(run)]) == len(run)
                   and not (last and place + len(run) < len(real))]
        if fitting:
            start = fitting[0] + len(run)
            continue
        best = max(places, key=lambda place: agreeing(run, real[place:place + len(run)]))
        same = agreeing(run, real[best:])
        if same == len(run):
            return run[-1][0] if run else -1, real[best + same], 'is not the end of the output, "..." is missing'
        index, line = run[same]
        if same == 0 and number > 0:
            return index, (difflib.get_close_matches(line, real[start:], 1, 0) or [END])[0], "is not printed"
        return index, real[best + same] if best + same < len(real) else END, "is printed otherwise"
    return None


def words(line):
    return [word for word in re.split(r"[\s|_]+", line.strip().rstrip(".").lower()) if word]


def missing_rows(rows, real):
    """The rows whose words are not those of a line of the output, in the order of the output."""
    rest = collections.deque(real)
    for number, row in rows:
        before = list(rest)
        while rest:
            line = iter(words(rest.popleft()))
            if all(word in line for word in words(row)):
                break
        else:
            yield number, row, (difflib.get_close_matches(row, before, 1, 0) or [END])[0]
            rest = collections.deque(before)


@contextlib.contextmanager
def checkout(moesim, source):
    """A folder for the commands of one page."""
    with tempfile.TemporaryDirectory(prefix="moesim_docs_") as scratch:
        here = pathlib.Path(scratch) / "moesim"
        shutil.copytree(source / "tests/docs/fixtures", here)
        (here / "build").mkdir()
        for program in ("moesim", "library_example"):
            if (moesim.parent / program).exists():
                (here / "build" / program).symlink_to(moesim.parent / program)
        for name in ("docs", "traces", "calibration", "tests"):
            (here / name).symlink_to(source / name)
        if (source.parent / "shared").exists():
            (here.parent / "shared").symlink_to((source.parent / "shared").resolve())
        yield here


def run(command, here):
    """(exit code, lines printed), or (None, why it is not run)."""
    if command.note == "not run":
        return None, "left out by the page"
    if "../shared" in command.text and not (here.parent / "shared").exists():
        return None, "needs ../shared/data"
    if "library_example" in command.text and not (here / "build/library_example").exists():
        return None, "library_example is not built"
    environment = dict(os.environ, PATH=f"{here / 'build'}:{os.environ['PATH']}", COLUMNS="120", NO_COLOR="1")
    result = subprocess.run(["bash", "-c", "set -o pipefail; " + command.text], cwd=here, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    if result.returncode != 0 and "--report" in command.text and WITHOUT_REPORTS.search(result.stdout):
        return None, "moesim was built without reports"
    return result.returncode, result.stdout.rstrip().split("\n") if result.stdout.strip() else []


def main():
    moesim, source, document = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    done = compared = failed = 0
    skipped = collections.Counter()
    with checkout(moesim, source) as here:
        for command in commands(document.read_text()):
            code, real = run(command, here)
            if code is None:
                skipped[real] += 1
                continue
            done += 1
            if code != 0:
                failed += 1
                print(f"{document.name}:{command.line}: exit {code}: {command.text}\n" + "\n".join(real)[-500:])
                continue
            if command.note == "output varies":
                continue
            compared += command.prompted or bool(command.rows)
            wrong = difference(command.shown, real) if command.prompted else None
            if wrong:
                failed += 1
                index, line, what = wrong
                shown = command.shown[index] if index >= 0 else "(nothing)"
                print(f"{document.name}:{command.shown_at + index}: {what}\n  shown: {shown}\n  real:  {line}")
            for number, row, line in missing_rows(command.rows, real):
                failed += 1
                print(f"{document.name}:{number}: is not in the output\n  shown: {row}\n  real:  {line}")
        for picture in here.glob("*.svg"):
            kept = source / "docs/images" / picture.name
            if not kept.exists() or kept.read_text() != picture.read_text():
                failed += 1
                print(f"{document.name}: docs/images/{picture.name} is not the picture that is drawn")
    reasons = ", ".join(f"{count}: {reason}" for reason, count in skipped.items())
    print(f"{done} commands run, {compared} outputs compared, {failed} failed, {sum(skipped.values())} skipped"
          + (f" ({reasons})" if reasons else ""))
    if failed:
        print("tools/refresh_examples.py brings outputs up to date")
        return 1
    if done == 0 and not skipped:
        print("no commands found")
        return 1
    if done == 0:
        print("SKIPPED: " + reasons)
    return 0


if __name__ == "__main__":
    sys.exit(main())

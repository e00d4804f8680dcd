"""Golden answers: what moesim printed on commit cc8e6f1, which no change moves unless its commit says so.

  run.py MOESIM SOURCE                compares; prints every difference and exits 1 where there is one
  run.py MOESIM SOURCE --only REGEX   the same for the entries whose names match
  run.py MOESIM SOURCE --update       writes what MOESIM prints; a number moves only in a commit titled "model: ..."

`commands.txt` lists the commands. An entry is a line "CLASS NAME: WORDS"; "<a|b>" stands for each of its words, and " !HH.1" behind
the name says that the answer is known to be wrong and which issue mends it. Classes:

  numbers  moesim WORDS --format json. Every key that the golden has keeps its value to the last digit on the kind of machine that
           wrote it (`machine`), within 1e-9 elsewhere; new keys may appear. Versions and times of the run itself are left out.
  text     moesim WORDS, stdout and stderr and the exit code, line by line. A commit may change it that says so.
  csv      moesim WORDS, or the file named by "&& cat FILE" behind them, one number or word after the other, as numbers.
  page     WORDS is a document; every command of it that prints an answer, as numbers (tests/docs compares the texts).
  python   the JSON that `python3 -c WORDS` prints, with `import moesim` and `import json`, as numbers.
  post     "PATH BODY" sent to `moesim serve`, as numbers.

Entries that name ../shared are left out, and counted, where it is absent. tests/golden/answers/NAME.json holds the answers of an entry.
"""
import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))
import run_commands  # noqa: E402

VOLATILE = {"version", "command", "sha256", "elapsed_s", "seconds", "wall_seconds", "evaluations_per_second"}
# Verbs whose --format json is an answer, of the commands in documents.
ANSWERS = ("compare", "whatif", "replay", "plan", "sweep", "validate", "scenario", "list", "trace", "calibrate", "rerun")
# Of the others, those that write files or read what was measured here are run, not compared.
WRITES = re.compile(r"--(out|report|timeline|picture|format|paths)\b|[>|]|\bcalibrate (measure|node|import|fit|refine)\b|\bmerge\b|\braw/")


def kind_of_machine():
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    fma = "fma" if flags and " fma" in flags.group(1) else "plain"
    return f"{platform.machine()} {'-'.join(platform.libc_ver())} {fma}"


class Entry:
    def __init__(self, line):
        head, self.words = line.split(": ", 1)
        self.kind, self.name, *_ = head.split()
        parts = re.split(r"<([^<>]*\|[^<>]*)>", self.words) if self.kind not in ("python", "post") else [self.words]
        self.commands = ["".join(one) for one in itertools.product(*(
            part.split("|") if index % 2 else [part] for index, part in enumerate(parts)))]


def entries():
    lines = (pathlib.Path(__file__).parent / "commands.txt").read_text().split("\n")
    return [Entry(line) for line in lines if line and not line.startswith("#")]


def steady(value):
    """The answer without what another run or another folder changes."""
    if isinstance(value, dict):
        return {key: steady(one) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [steady(one) for one in value]
    return value


def answer_of(code, out, err):
    """The JSON of a run; where it prints none, its exit code and what it says."""
    try:
        parsed = steady(json.loads(out, parse_float=str))
        return parsed if code == 0 else {"exit": code, "answer": parsed}
    except ValueError:
        return {"exit": code, "out": out.split("\n"), "err": err.split("\n")}


class Runner:
    def __init__(self, moesim, source, here):
        self.moesim, self.source, self.here = moesim, source, here
        self.environment = dict(os.environ, PATH=f"{here / 'build'}:{os.environ['PATH']}", COLUMNS="100", NO_COLOR="1",
                                PYTHONPATH=str(moesim.parent / "python"), PYTHONDONTWRITEBYTECODE="1")

    def run(self, text):
        done = subprocess.run(["bash", "-c", "set -o pipefail; " + text], cwd=self.here, env=self.environment, text=True,
                              capture_output=True, timeout=600)
        return done.returncode, done.stdout, done.stderr

    def numbers(self, words):
        return answer_of(*self.run(f"moesim {words} --format json --quiet"))

    def text(self, words):
        code, out, err = self.run(f"moesim {words}")
        return {"exit": code, "out": out.split("\n"), "err": err.split("\n")}

    def csv(self, words):
        command, shown, file = words.partition(" && cat ")
        code, out, err = self.run(f"moesim {command} --quiet{shown}{file}")
        return {"exit": code, "rows": [line.split(",") for line in out.split("\n")], "err": err.split("\n")}

    def python(self, words):
        return answer_of(*self.run(f"python3 -c {shlex.quote('import json, moesim; ' + words)}"))

    def post(self, words):
        path, body = words.split(" ", 1)
        child = subprocess.Popen([self.moesim, "serve", "--port", "0", "--seconds", "60"], cwd=self.here, env=self.environment,
                                 text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            port = re.search(r"http://[^/]*:(\d+)/", child.stdout.readline())
            if not port:
                return None
            connection = http.client.HTTPConnection("127.0.0.1", int(port.group(1)), timeout=120)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return {"status": reply.status, **answer_of(0, reply.read().decode(), "")}
        finally:
            child.terminate()
            child.wait()

    def page(self, document):
        answers = {}
        with run_commands.checkout(self.moesim, self.source) as here:
            page = Runner(self.moesim, self.source, here)
            for command in run_commands.commands((self.source / document).read_text()):
                words = re.sub(r"^(build/)?moesim ", "", command.text)
                if command.note == "not run" or ("../shared" in words and not self.has_shared()):
                    continue
                if words == command.text or WRITES.search(words) or not words.startswith(ANSWERS):
                    run_commands.run(command, here)  # later commands read what it writes
                else:
                    answers[words] = page.numbers(words)
        return answers

    def has_shared(self):
        return (self.source.parent / "shared/data").exists()

    def answers(self, entry):
        """{command: answer}, or None where the entry cannot be asked here."""
        if "../shared" in entry.words and not self.has_shared():
            return None
        if entry.kind == "page":
            return self.page(entry.words)
        if entry.kind == "python" and not (self.moesim.parent / "python/moesim").exists():
            return None
        found = {words: getattr(self, entry.kind)(words) for words in entry.commands}
        return None if None in found.values() else found


def same_number(golden, now, exact):
    if golden == now:
        return True
    try:
        a, b = float(golden), float(now)
    except (TypeError, ValueError):
        return False
    return not exact and abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def differences(golden, now, exact, path=""):
    """Yields (path, golden, now) of everything that the golden has and that is otherwise now."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key, one in golden.items():
            if key in now:
                yield from differences(one, now[key], exact, f"{path}.{key}" if path else key)
            else:
                yield f"{path}.{key}", one, "(not there)"
    elif isinstance(golden, list) and isinstance(now, list):
        for index, (one, other) in enumerate(itertools.zip_longest(golden, now, fillvalue="(not there)")):
            yield from differences(one, other, exact, f"{path}[{index}]")
    elif not same_number(golden, now, exact):
        yield path, golden, now


def main():
    parser = argparse.ArgumentParser(description="Compares moesim's answers with the golden ones.")
    parser.add_argument("moesim", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--most", type=int, default=8, help="differences shown of a command")
    options = parser.parse_args()
    folder = pathlib.Path(__file__).parent / "answers"
    folder.mkdir(exist_ok=True)
    wanted = [entry for entry in entries() if re.search(options.only, entry.name)]
    asked = failed = 0
    skipped = []
    with run_commands.checkout(options.moesim.resolve(), options.source.resolve()) as here:
        runner = Runner(options.moesim.resolve(), options.source.resolve(), here)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for entry, answers in zip(wanted, pool.map(runner.answers, wanted)):
                file = folder / f"{entry.name}.json"
                if answers is None:
                    skipped.append(entry.name)
                    continue
                asked += len(answers)
                if options.update:
                    file.write_text(json.dumps({"machine": kind_of_machine(), "answers": answers}, indent=0, ensure_ascii=False) + "\n")
                    continue
                golden = json.loads(file.read_text(), parse_float=str)
                exact = golden["machine"] == kind_of_machine()
                for words in sorted(golden["answers"].keys() - answers.keys()):
                    failed += 1
                    print(f"{entry.name}: {words}\n  is asked no more")
                for words, now in answers.items():
                    wrong = list(differences(golden["answers"].get(words), now, exact))
                    failed += bool(wrong)
                    for path, one, other in wrong[:options.most]:
                        print(f"{entry.name}: {words}\n  {path}\n    golden: {one}\n    now:    {other}")
                    if len(wrong) > options.most:
                        print(f"  and {len(wrong) - options.most} more")
    print(f"{asked} commands asked, {failed} answered otherwise" + (f", skipped: {', '.join(skipped)}" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

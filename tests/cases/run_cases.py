#!/usr/bin/env python3
"""Runs cases of the command line: run_cases.py MOESIM SOURCE_FOLDER FILE.json... [--only NAME]

A file holds "files" (written beside each run: a text, objects as JSON, lists piece by piece, "@name" for one of "texts"), "usual"
(lists of words, by name), "let" (expressions, by name) and "cases". A case has files and let of its own, and
  runs     by name: words of moesim; "@name" stands for those of "usual" and $ROOT for the sources. A list is asked for JSON and has
           to succeed. {"words", "error"} has to be refused in one such line. {"words", "says", "warns", "prints", "never"} has to
           succeed with this on standard output, on standard error, on either and without that; "json": its answer is read, "out":
           its output is a text for "expect", "skip": an error with this skips the case
  copies   by folder: {"from": a folder, "only": a part of the files' names, "without": names that are left out, "replace": pairs of
           texts, "edit": by name, pairs of which the first place counts}
  table    {"file", "words", "base", "rows"}: a row is the file (a text, or what an object changes of the base), the one line with
           which that is refused ("": it is answered), and more words; without "file" a row is more words, as a shell splits
           them, and the line. What is refused writes nothing
  each     lists of values by name, all of whose combinations are run; "$name" stands for one
  expect   an expression over the runs' answers (answer.time_us.value, where(answer.messages, what='tokens', pass_='forward')),
           and its value: JSON, "= expression", "> expression" (<, >=, <=, !=), or "1.875 within 1e-6"
Texts are compared as they are, but for "..." at an end. A case that fails is printed whole.
"""
import itertools
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


class Answer(dict):
    """A JSON object whose keys are attributes, "pass" as pass_."""

    def __getattr__(self, key):
        try:
            return self[key.rstrip("_")]
        except KeyError:
            raise AttributeError(f"no {key} among {', '.join(self)}") from None


def unique(pairs):
    """The object of a case file, in which no key may stand twice."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"a key stands twice among {', '.join(keys)}")
    return dict(pairs)


def parsed(text):
    return json.loads(text, object_hook=Answer)


def where(rows, **wanted):
    return [row for row in rows if all(row.get(key.rstrip("_")) == value for key, value in wanted.items())]


def only(rows, **wanted):
    found = where(rows, **wanted)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows with {wanted}, expected one")
    return found[0]


HELPERS = dict(where=where, only=only, sum=sum, max=max, min=min, len=len, abs=abs, sorted=sorted, all=all, any=any, str=str,
               zip=zip, range=range, set=set, dumped=lambda value: json.dumps(value, separators=(",", ":")))
RELATIONS = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, "!=": lambda a, b: a != b, ">": lambda a, b: a > b,
             "<": lambda a, b: a < b}


def like(text, pattern):
    """Whether a text is the pattern, "..." at an end of which stands for anything."""
    before, after = pattern.startswith("..."), len(pattern) > 3 and pattern.endswith("...")
    pattern = pattern[3 if before else 0:len(pattern) - (3 if after else 0)]
    if before and after:
        return pattern in text
    return text.endswith(pattern) if before else text.startswith(pattern) if after else text == pattern


def same(found, expected):
    if isinstance(expected, str):
        return isinstance(found, str) and like(found, expected)
    if isinstance(expected, list):
        found = list(found) if isinstance(found, (list, tuple)) else None
        return found is not None and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in expected)
    if isinstance(found, bool) != isinstance(expected, bool) or (found is None) != (expected is None):
        return False
    if isinstance(found, float) or isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-15)
    return found == expected


def holds(found, expected, names):
    """Whether a value is the expected one, and that for the message."""
    if not isinstance(expected, str):
        return same(found, expected), expected
    relation, _, formula = expected.partition(" ")
    if relation == "=":
        value = eval(formula, names)
        return same(found, value), value
    if isinstance(found, str):
        return same(found, expected), expected
    if relation in RELATIONS:
        value = eval(formula, names)
        return RELATIONS[relation](found, value), f"{relation} {value}"
    if " within " in expected:
        middle, tolerance = (eval(part, names) for part in expected.split(" within "))
        near = lambda one, other: abs(one - other) <= tolerance
        if isinstance(middle, list):
            return len(found) == len(middle) and all(map(near, found, middle)), f"{middle} within {tolerance}"
        return near(found, middle), f"{middle} within {tolerance}"
    return same(found, expected), expected


def listed(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def words_of(words, usual, root):
    return list(itertools.chain.from_iterable(
        words_of(usual[word[1:]], usual, root) if word.startswith("@") else [word.replace("$ROOT", root)] for word in words))


def merged(base, change):
    """The base with what an object says otherwise, at any depth."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}


def text_of(content, texts):
    """The text of a file: as it stands, "@name" of the texts, pieces of these, {"of", "replace", "prefix"} or JSON."""
    if isinstance(content, str):
        return texts[content[1:]] if content.startswith("@") else content
    if isinstance(content, list):
        return "".join(text_of(piece, texts) for piece in content)
    if "of" in content:
        text = text_of(content["of"], texts)
        for old, new in content.get("replace", []):
            if text_of(old, texts) not in text:
                raise ValueError(f"nothing to replace: {old}")
            text = text.replace(text_of(old, texts), text_of(new, texts), content.get("times", 1))
        return "".join(content.get("prefix", "") + line for line in text.splitlines(keepends=True))
    return json.dumps(content)


def run_table(table, folder, texts, run):
    """Yields which rows are not answered, or refused in one line, as they say."""
    for number, (change, wanted, *more) in enumerate(table["rows"], 1):
        if "file" in table:
            base = table.get("base", {})
            content = text_of(change if isinstance(change, (str, list)) or "of" in change else merged(base, change), texts)
            (folder / table["file"]).write_text(content)
        else:
            more = [shlex.split(change)]
        before = sorted(folder.rglob("*"))
        done = run(table["words"] + [word for words in more for word in words])
        lines = done.stderr.splitlines()
        refused = done.returncode == 2 and not done.stdout and len(lines) == 1 and sorted(folder.rglob("*")) == before
        if not (refused and like(lines[0], wanted) if wanted else done.returncode == 0):
            yield f"row {number}, {json.dumps(change)}: found '{done.stderr}', expected '{wanted}'"


def run_case(case, file, moesim, root):
    """Yields what does not hold."""
    if not os.path.exists(case.get("needs", root).replace("$ROOT", root)):
        print(f"SKIPPED {case['case']}: {case['needs']} is absent")
        return
    texts = {}
    for name, content in file.get("texts", {}).items():
        texts[name] = text_of(content, texts)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, content in {**file.get("files", {}), **case.get("files", {})}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text_of(content, texts))
        for target, copy in case.get("copies", {}).items():
            for source in sorted(pathlib.Path(copy["from"].replace("$ROOT", root)).iterdir()):
                if copy.get("only", "") in source.name and source.name not in copy.get("without", []):
                    text = source.read_text()
                    for old, new in copy.get("replace", []):
                        text = text.replace(old, new)
                    for old, new in copy.get("edit", {}).get(source.name, []):
                        before, after = text.split(old, 1)
                        text = before + new + after
                    (folder / target).mkdir(parents=True, exist_ok=True)
                    (folder / target / source.name).write_text(text)
        names = dict(HELPERS, read=lambda name: parsed((folder / name).read_text()), text=lambda name: (folder / name).read_text(),
                     rows=lambda name: [parsed(line) for line in (folder / name).read_text().splitlines()],
                     exists=lambda name: (folder / name).exists())
        for name, formula in {**file.get("let", {}), **case.get("let", {})}.items():
            names[name] = eval(formula, names) if isinstance(formula, str) else formula

        def execute(words):
            words = words_of(words, file.get("usual", {}), root)
            return subprocess.run([moesim, *words], cwd=folder, text=True, capture_output=True, timeout=300,
                                  env={**os.environ, "COLUMNS": "200"})

        if "table" in case:
            yield from run_table(case["table"], folder, texts, execute)
        for name, run in case.get("runs", {}).items():
            asked = isinstance(run, list)
            words = run if asked else run["words"]
            done = execute(words + (["--format", "json", "--quiet"] if asked else []))
            code = 0 if asked else run.get("code", 2 if "error" in run else 0)
            if not asked and done.returncode and any(reason in done.stderr for reason in listed(run.get("skip"))):
                print(f"SKIPPED {case['case']}: {done.stderr.strip()}")
                return
            if done.returncode != code:
                yield f"{name}: exit code {done.returncode}, expected {code}: {done.stderr or done.stdout[:300]}"
                return
            if asked or run.get("json"):
                names[name] = parsed(done.stdout)
            elif run.get("out"):
                names[name] = done.stdout
            if not asked:
                if "to" in run:
                    (folder / run["to"]).write_text(done.stdout)
                if "error" in run and (done.stdout or not done.stderr.startswith("moesim: ") or done.stderr.count("\n") != 1):
                    yield f"{name}: found '{done.stdout}{done.stderr}', expected one line on standard error"
                both = done.stdout + done.stderr
                for key, printed in (("error", done.stderr), ("warns", done.stderr), ("says", done.stdout), ("prints", both)):
                    for pattern in listed(run.get(key)):
                        if not like(printed, pattern.replace("$ROOT", root)):
                            yield f"{name}: {key} '{pattern}': found '{printed}'"
                for pattern in listed(run.get("never")):
                    if like(both, pattern):
                        yield f"{name}: never '{pattern}': found '{both}'"
        for expression, expected in case.get("expect", {}).items():
            try:
                found = eval(expression, names)
                right, wanted = holds(found, expected, names)
                if not right:
                    yield f"{expression}: found {found}, expected {wanted}"
            except Exception as error:
                yield f"{expression}: {error.__class__.__name__}: {error}"


def variants(case):
    """The case for all combinations of its "each"."""
    text, each = json.dumps({k: v for k, v in case.items() if k != "each"}), case.get("each", {})
    for values in itertools.product(*each.values()):
        one = text
        for name, value in zip(each, values):
            one = re.sub(rf"\${name}\b", lambda _: json.dumps(str(value))[1:-1], one)
        yield json.loads(one)


def main():
    arguments = sys.argv[1:]
    wanted = arguments.pop(arguments.index("--only") + 1) if "--only" in arguments else ""
    moesim, root, *files = [word for word in arguments if word != "--only"]
    moesim, root = os.path.abspath(moesim), os.path.abspath(root)
    ran, broken = 0, 0
    for path in files:
        file = json.loads(pathlib.Path(path).read_text(), object_pairs_hook=unique)
        for case in file["cases"]:
            if wanted not in case["case"]:
                continue
            for one in variants(case):
                ran += 1
                try:
                    failures = list(run_case(one, file, moesim, root))
                except subprocess.TimeoutExpired as error:
                    failures = [str(error)]
                if failures:
                    broken += 1
                    print(f"{path}: {json.dumps(one, indent=1)}")
                for failure in failures:
                    print(f"{path}: {one['case']}: {failure}")
    print(f"{ran} cases, {broken} do not hold")
    return 1 if broken or not ran else 0


if __name__ == "__main__":
    sys.exit(main())

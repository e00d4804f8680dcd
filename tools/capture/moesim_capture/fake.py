"""One rank of a bigger job, or several in turn, on this machine's one device: the command that starts the job runs as it is,
with torch's fake process group, which sends nothing.

    python3 -m moesim_capture fake --world 16 -- torchrun ... pretrain_gpt.py ...

This half starts the command once for each rank that is needed and needs no torch; fake_rank.py is what runs inside it.
"""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from .layout import Coordinates, Layout
from .recorder import write_json

VARIABLE = "MOESIM_CAPTURE_FAKE"  # holds the task of a started command, as JSON
REFUSED_CODE = 33  # of a command that the recorder ended without a recording


class FakeError(RuntimeError):
    """A recording that was not made, said in one line."""


class _Job:
    """The command, and where `python3` and `torchrun` in it, or in a shell script that it runs, lead to fake_rank.py."""

    def __init__(self, options, scratch: str):
        self.options, self.scratch = options, scratch
        self.out = os.path.abspath(options.out)
        programs = os.path.join(scratch, "bin")
        os.mkdir(programs)
        for name in ("python3", "python", "torchrun"):
            self._lead(programs, name, name)
        self.words = list(options.command)
        kind = os.path.basename(self.words[0])
        if os.path.dirname(self.words[0]) and (kind.startswith("python") or kind == "torchrun"):
            self._lead(programs, kind, self.words[0])
            self.words[0] = kind
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.environment = dict(os.environ, PATH=programs + os.pathsep + os.environ.get("PATH", ""))
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))

    def _lead(self, programs: str, name: str, real: str):
        found = shutil.which(real)
        if name.startswith("python"):
            python = found or sys.executable
        else:
            beside = os.path.join(os.path.dirname(found or ""), "python3")
            python = beside if os.access(beside, os.X_OK) else sys.executable
        path = pathlib.Path(programs, name)
        path.write_text('#!/bin/sh\nexec %s -m moesim_capture _rank %s "$@"\n' % (
            shlex.quote(python), "torchrun" if name == "torchrun" else "python"))
        path.chmod(0o755)

    def play(self, rank: int) -> dict:
        """Runs the command as `rank`; returns what was recorded (fake_rank.py's report), or {"problem": one line}."""
        options = self.options
        report = os.path.join(self.scratch, "report%d.json" % rank)
        os.makedirs(self.out, exist_ok=True)
        log = os.path.join(self.out, "fake_rank%d.log" % rank)
        task = {"rank": rank, "out": self.out, "report": report, "iterations": options.iterations,
                "warmup": options.warmup, "command": " ".join(map(shlex.quote, options.command)),
                "routing": options.routing if options.routing == "balanced" else os.path.abspath(options.routing),
                "sizes": {name: getattr(options, name) for name in ("world", "tp", "ep", "pp")}}
        with open(log, "w", encoding="utf-8") as output:
            try:
                process = subprocess.Popen(self.words, env=dict(self.environment, **{VARIABLE: json.dumps(task)}),
                                           stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            except OSError as error:
                return {"problem": "%s: %s" % (options.command[0], error.strerror)}
            try:
                code = process.wait()
            finally:  # it may have left workers
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if os.path.exists(report):
            return json.loads(pathlib.Path(report).read_text())
        said = [row.strip() for row in pathlib.Path(log).read_text(errors="replace").splitlines() if row.strip()]
        if code == REFUSED_CODE:
            return {"problem": said[-1].replace("moesim-capture: ", "")}
        # What the program said last, rather than that its iteration was not whole.
        said = [row for row in said if code == 0 or not row.startswith("moesim-capture: nothing is")] or said
        return {"problem": "the command ended with exit code %d and nothing recorded (%s): %s" % (
            code, log, said[-1] if said else "no message")}


def needed(layout: Layout, balanced: bool, asked: str):
    """The ranks to play, and why these."""
    one_expert = balanced or asked == "pipeline"
    experts = range(1 if one_expert else layout.ep)
    ranks = [layout.rank(Coordinates(0, exp, 0, pp)) for pp in range(layout.pp) for exp in experts]
    why = "one for each of %d pipeline stages" % layout.pp
    if not one_expert:
        why += " and %d expert ranks" % layout.ep
    elif layout.ep > 1:
        why += "; with balanced routing" if balanced else "; as --ranks pipeline says"
        why += " one of %d expert ranks stands for all" % layout.ep
    return ranks, why + "; tensor- and data-parallel ranks do the same work"


def _asked(text: str):
    """Ranks of --ranks; None where they follow from the job."""
    if text in ("", "pipeline"):
        return None
    try:
        ranks = [int(word) for word in text.split(",")]
    except ValueError:
        ranks = [-1]
    if min(ranks) < 0:
        raise ValueError("found --ranks %s, expected pipeline or ranks like 0,8" % text)
    return ranks


def record(options) -> int:
    """The verb `fake`."""
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    if not options.command:
        raise ValueError("found no command, expected: fake [OPTIONS] -- COMMAND")
    if options.routing != "balanced" and not os.path.exists(options.routing):
        raise ValueError("found --routing %s, expected balanced, a dispatching file, or a folder of routing_rank<N>.jsonl" %
                         options.routing)
    asked = _asked(options.ranks)
    with tempfile.TemporaryDirectory(prefix="moesim-capture-") as scratch:
        return _record_all(_Job(options, scratch), asked)


def _record_all(job: _Job, asked) -> int:
    ranks, done, problems = asked or [0], {}, []
    layout = None
    try:
        while ranks:
            rank = ranks.pop(0)
            report = job.play(rank)
            if "problem" in report:
                problems.append("rank %d: %s" % (rank, report["problem"]))
            else:
                done[rank] = report
                print("rank %d: %d iterations, peak memory %.2f GB%s" % (
                    rank, len(report["files"]), report["peak_bytes"] / 1e9, "".join("; " + one for one in report["said"])),
                      flush=True)
                if report["failure"]:
                    problems.append("rank %d: the command failed after %d recorded iterations (%s)" % (
                        rank, len(report["files"]), report["failure"]))
            if layout is None and done:
                layout = Layout(**report["layout"])
                if asked is None:
                    wanted, why = needed(layout, job.options.routing == "balanced", job.options.ranks)
                    print("ranks %s of %d: %s" % (", ".join(map(str, wanted)), layout.world, why), flush=True)
                    ranks = [one for one in wanted if one not in done]
    except KeyboardInterrupt:
        problems.append("interrupted; ranks %s were not played" % ", ".join(map(str, [rank] + ranks)))
    for rank, report in list(done.items()):
        gone = [path for path in report["files"] if not os.path.exists(path)]
        if gone:
            problems.append("rank %d: its recording %s is gone, did the command move it?" % (rank, gone[0]))
            del done[rank]
    if done:
        _finish(job, layout, done)
    if problems:
        raise FakeError("; ".join(problems) + ("; what there is: ranks %s" % ", ".join(map(str, done)) if done else
                                               "; nothing was recorded"))
    return 0


def _finish(job: _Job, layout: Layout, done: dict):
    """Writes the routing that others were given beside the recordings, and says what to do next."""
    from .routing import dispatching

    first = next(iter(done.values()))
    folder = os.path.dirname(first["files"][0])
    table = next((report["routing"] for report in done.values() if report["routing"]), None)
    if table is not None:
        tables, members, experts = table["tables"], table["members"], table["experts"]
        write_json(os.path.join(os.path.dirname(folder), "dispatching.json"),
                   dispatching(members, experts, tables, "put into a fake process group: " + job.options.routing), None)
    count = first["microbatches"]
    print("%s: %d of %d ranks; next: moesim replay %s --cluster NAME%s" % (
        folder, len(done), layout.world, folder, " --microbatches %d" % count if count > 1 else ""), flush=True)

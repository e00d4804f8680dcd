"""Runs moesim like an attacker and reports what did not hold. Python's standard library only."""

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEMORY = 6 << 30  # bytes of address space of a run that is not sanitized

JOB = {"model": "olmoe", "cluster": "dgx-h100x2", "parallel": {"ep": 8, "seq": 1024},
       "dispatcher": "allgather,alltoall", "routing": "zipf:1.2"}


class Result(namedtuple("Result", "code out err seconds peak")):
    def refused(self):
        """Whether it is one line and nothing else."""
        return (self.code == 2 and self.out == b"" and self.err.startswith(b"moesim: ")
                and self.err.count(b"\n") == 1 and self.err.endswith(b"\n"))


class Hostile:
    """One class of attacks: `with Hostile("dirt") as h:` and then h.run(), h.holds()."""

    def __init__(self, name):
        parser = argparse.ArgumentParser(description=f"hostile: {name}")
        parser.add_argument("moesim", help="the program to attack")
        parser.add_argument("--short", action="store_true", help="a tenth of the cases, as CI runs them")
        parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn [1]")
        parser.add_argument("--sanitized", action="store_true",
                            help="a sanitizer build: ten times the time and no limit of memory")
        self.options = parser.parse_args()
        self.moesim = os.path.abspath(self.options.moesim)
        self.name, self.cases, self.failures = name, 0, []
        self.random = random.Random(self.options.seed)
        self.patience = 600 if self.options.sanitized else 60
        self.started = time.monotonic()

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix=f"moesim-hostile-{self.name}-")
        return self

    def __exit__(self, kind, value, trace):
        subprocess.run(["chmod", "-R", "u+rwx", self.folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is not None:
            return False
        for failure in self.failures[:20]:
            print(f"{self.name}: {failure}")
        print(f"{self.name}: {self.cases} cases, {len(self.failures)} failures, "
              f"{time.monotonic() - self.started:.0f} s, seed {self.options.seed}")
        sys.exit(1 if self.failures else 0)

    def count(self, full):
        return max(1, full // 10) if self.options.short else full

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        pathlib.Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def remove(self, *names):
        for name in names:
            path = self.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.path.exists(path) and os.remove(path)

    def read(self, name):
        return pathlib.Path(self.path(name)).read_bytes()

    def start(self, words, **more):
        limit = None
        if not self.options.sanitized:
            def limit():
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        return subprocess.Popen([self.moesim, *words], cwd=self.folder, preexec_fn=limit, **more)

    def run(self, words, check=True, **more):
        """Runs a command to its end; with `check` it has to answer or to refuse in one line."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            begin = time.monotonic()
            more = {"stdout": out, "stderr": err, "stdin": subprocess.DEVNULL, **more}
            child = self.start(words, **more)
            late = False
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - begin > self.patience and not late:
                    late = True
                    child.kill()
                time.sleep(0.002)
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            result = Result(child.returncode, out.read(), err.read(), time.monotonic() - begin,
                            usage.ru_maxrss * 1024)
        if check:
            self.cases += 1
            shown = " ".join(repr(w) if not str(w).isprintable() else str(w) for w in words)[:300]
            if late:
                self.fail(f"hangs: {shown}")
            elif result.code not in (0, 1, 2):
                self.fail(f"exit {result.code}: {shown}: {result.err[-300:]!r}")
            elif result.code == 2 and not result.refused():
                self.fail(f"a refusal that is not one line: {shown}: {result.out[:100]!r} {result.err[:300]!r}")
        return result

    def fail(self, what):
        self.failures.append(what)

    def holds(self, what, truth):
        self.cases += 1
        if not truth:
            self.fail(what)

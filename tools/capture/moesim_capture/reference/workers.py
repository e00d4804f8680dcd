"""Processes of this machine that play ranks: started together, answered by one JSON line each, never left behind."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time


class RunError(RuntimeError):
    """A run that did not end as it should, said in one line."""


def start(task: dict, **streams) -> subprocess.Popen:
    """A process that does `task` (moesim_capture.__main__._worker) with this package and gloo on the loopback device."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = dict(os.environ, GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    return subprocess.Popen([sys.executable, "-m", "moesim_capture", "_worker", json.dumps(task)], env=environment,
                            stdout=subprocess.PIPE, text=True, **streams)


def end(process: subprocess.Popen):
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stdout.close()


def run_world(world: int, task_of, timeout: float) -> dict:
    """Starts a process per rank for task_of(rank, rendezvous); returns {rank: answer}. Raises RunError when one fails or
    `timeout` seconds are over."""
    with tempfile.TemporaryDirectory(prefix="moesim-capture-") as scratch, contextlib.ExitStack() as open_:
        workers = []
        for rank in range(world):
            log = open_.enter_context(open(os.path.join(scratch, "log%d" % rank), "w+", encoding="utf-8"))
            process = start(task_of(rank, os.path.join(scratch, "rendezvous")), stderr=log)
            open_.callback(end, process)
            workers.append((process, log))
        return _answers(workers, timeout)


def _answers(workers, timeout: float) -> dict:
    deadline = time.monotonic() + timeout
    while any(process.poll() is None for process, _ in workers):
        for rank, (process, log) in enumerate(workers):
            if process.poll() not in (None, 0):
                log.seek(0)
                last = [row for row in log.read().splitlines() if row.strip()]
                raise RunError("rank %d ended with exit code %d: %s" % (rank, process.returncode,
                                                                       last[-1] if last else "no message"))
        if time.monotonic() > deadline:
            raise RunError("found ranks still running after %g s, expected the run to end (--timeout)" % timeout)
        time.sleep(0.05)
    answers = {}
    for rank, (process, log) in enumerate(workers):
        log.seek(0)
        sys.stderr.write(log.read())
        if process.returncode != 0:
            raise RunError("rank %d ended with exit code %d" % (rank, process.returncode))
        answers[rank] = json.loads(process.stdout.read().splitlines()[-1])
    return answers

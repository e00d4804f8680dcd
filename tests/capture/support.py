"""Shared parts of the tests: the moesim binary, the data folder, a scratch folder per test."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

BINARY = os.environ.get("MOESIM_BINARY", "")
DATA = os.environ.get("MOESIM_DATA_DIR", "")
SOURCE = os.environ.get("MOESIM_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


# torch 1.13 at times aborts while the interpreter ends, its threads still running.
LEAVE = """
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""


class ScratchTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="moesim-capture-test-")
        self.addCleanup(shutil.rmtree, self.scratch)

    def path(self, *parts):
        return os.path.join(self.scratch, *parts)

    def write(self, name, content):
        pathlib.Path(self.path(name)).write_bytes(content)
        return self.path(name)

    def moesim(self, *arguments):
        """The finished process; skips the test where the binary was not built."""
        if not os.path.exists(BINARY):
            self.skipTest("no moesim binary at %r" % BINARY)
        return subprocess.run([BINARY] + list(arguments), capture_output=True, text=True)

    def answered(self, *arguments):
        done = self.moesim(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def run_ranks(self, script, world, *arguments):
        """Returns the output of each rank. `script` imports os, sys and torch.distributed as dist, makes a process group and finds
        its rank and `arguments` in sys.argv[1:]."""
        environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo")
        command = [sys.executable, "-c", textwrap.dedent(script) + LEAVE]
        workers = [subprocess.Popen(command + [str(rank), *arguments], env=environment, stdout=subprocess.PIPE, text=True)
                   for rank in range(world)]
        try:
            outs = [worker.communicate(timeout=180)[0] for worker in workers]
            self.assertEqual([worker.returncode for worker in workers], [0] * world)
        finally:
            for worker in workers:
                worker.kill()
        return outs

    def assert_round_trip(self, folder):
        """moesim reads the recording and writes the same bytes."""
        out = self.path("converted%d" % len(os.listdir(self.scratch)))
        done = self.moesim("trace", "convert", folder, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".txt"))
        self.assertTrue(names)
        converted = sorted(os.path.join(root, name) for root, _, files in os.walk(out) for name in files)
        self.assertEqual(len(converted), len(names), converted)
        for name, other in zip(sorted(os.path.join(folder, n) for n in names), converted):
            self.assertEqual(pathlib.Path(name).read_bytes(), pathlib.Path(other).read_bytes(), name)

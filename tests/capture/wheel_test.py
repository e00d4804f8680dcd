"""The wheel: built without a network, installed into an environment of its own, it records."""
import glob
import os
import subprocess
import sys

import moesim_capture
from support import SOURCE, ScratchTest

SCRIPT = """
import sys
import moesim_capture
assert moesim_capture.__file__.startswith(sys.argv[1]), moesim_capture.__file__
print(moesim_capture.__version__)
from moesim_capture import Recorder
with Recorder(sys.argv[1] + "/rank0.txt", 0) as recorder:
    with recorder.operation("forward_step"):
        pass
"""


class Wheel(ScratchTest):
    def test_build_install_record(self):
        done = subprocess.run([os.path.join(SOURCE, "tools", "capture", "wheel.sh"), self.path("wheels")],
                              capture_output=True, text=True)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        wheel, = glob.glob(self.path("wheels", "*.whl"))
        self.assertEqual(os.path.basename(wheel), "moesim_capture-%s-py3-none-any.whl" % moesim_capture.__version__)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        place = self.path("site")
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                               "--no-deps", "--target", place, wheel], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([sys.executable, "-c", SCRIPT, place], capture_output=True, text=True, cwd=self.scratch,
                              env=dict(environment, PYTHONPATH=place))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), moesim_capture.__version__)
        done = subprocess.run([sys.executable, "-m", "moesim_capture", "check", os.path.join(place, "rank0.txt")],
                              capture_output=True, text=True, cwd=self.scratch, env=dict(environment, PYTHONPATH=place))
        self.assertIn("1 operations", done.stdout, done.stderr)

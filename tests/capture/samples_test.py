"""The recordings in traces/samples/host: moesim reads, checks, replays them, and puts the other dispatcher into them."""
import glob
import json
import os
import unittest

from support import SOURCE, ScratchTest

HOST = os.path.join(SOURCE, "traces", "samples", "host")


class Samples(ScratchTest):
    def job(self, name):
        folder, = glob.glob(os.path.join(HOST, name, "pp*"))
        return folder

    def replay(self, name, *options):
        job = self.job(name)
        return self.moesim("replay", os.path.join(job, "scaling"), "--cluster", "dgx-h100x1", "--microbatches", "4",
                           "--model", os.path.join(HOST, "model.json"), "--draws", "0", "--format", "json", *options)

    def iteration_us(self, name, *options):
        done = self.replay(name, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["iteration_us"]["value"]

    def test_moesim_reads_checks_and_replays_all(self):
        folders = sorted(glob.glob(os.path.join(HOST, "*", "*", "*", "")))
        self.assertEqual(len(folders), 8)  # two dispatchers, two routings, real and scaling
        for folder in folders:
            with self.subTest(folder):
                self.assert_round_trip(folder)
                done = self.moesim("trace", "check", folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("no backward collectives", done.stderr)
                done = self.moesim("replay", folder, "--cluster", "dgx-h100x1")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_another_dispatcher_in_either_direction(self):
        for routing in ("balanced", "zipf1.2"):
            iterations = {d: self.iteration_us(d + "-" + routing) for d in ("allgather", "alltoall")}
            for recorded, wanted in (("allgather", "alltoall"), ("alltoall", "allgather")):
                name = recorded + "-" + routing
                table = ("--routing", os.path.join(self.job(name), "dispatching.json"))
                same = self.iteration_us(name, "--dispatcher", recorded + "-legacy", *table)
                self.assertAlmostEqual(same / iterations[recorded], 1, delta=0.02)
                # Computing is nearly all of these jobs and is the recorded one; what was recorded of the other
                # dispatcher differs by the machine's noise.
                other = self.iteration_us(name, "--dispatcher", wanted + "-legacy", *table)
                self.assertAlmostEqual(other / iterations[recorded], 1, delta=0.05)
                self.assertAlmostEqual(other / iterations[wanted], 1, delta=0.15)

    def test_an_allgather_recording_does_not_say_who_routed_what(self):
        done = self.replay("allgather-balanced", "--dispatcher", "alltoall")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected --routing", done.stderr)
        skewed = os.path.join(self.job("alltoall-zipf1.2"), "dispatching.json")
        done = self.replay("allgather-balanced", "--dispatcher", "alltoall", "--routing", skewed, "--seq", "128")
        self.assertEqual(done.returncode, 2)  # the file is of the recorded job's sizes
        self.assertIn("dispatching.json", done.stderr)


if __name__ == "__main__":
    unittest.main()

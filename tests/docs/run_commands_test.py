"""Tests of run_commands.py and of tools/refresh_examples.py."""
import pathlib
import re
import sys
import unittest

import run_commands as docs

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import refresh_examples  # noqa: E402

REAL = ["rank  computing ms  transfer ms  straggler wait ms  bubble ms",
        "   0        143.36        76.05             153.49      45.67",
        "   1        150.00        70.00             100.00      45.00",
        "",
        "alltoall wins by 12 us."]


class Commands(unittest.TestCase):
    def test_with_and_without_prompt(self):
        page = ["```", "moesim list \\", "  models   # all", "```", "<!-- output varies: times -->", "```",
                "$ moesim a", "one", "moesim two", "$ ls", "b", "$ build/moesim c \\", "   d", "", "```"]
        found = docs.commands("\n".join(page))
        self.assertEqual([(c.line, c.text, c.prompted, c.note, c.shown_at, c.shown) for c in found],
                         [(2, "moesim list models", False, "", 4, []),
                          (7, "moesim a", True, "output varies", 8, ["one", "moesim two"]),
                          (12, "build/moesim c d", True, "output varies", 14, [])])

    def test_rows_of_a_table(self):
        page = ["```", "moesim a", "```", "<!-- output -->", "| job | ms |", "|---|---:|", "| pp2 ep4 | 1.5 |", "",
                "Mean 1 %.", "<!-- /output -->", "| other |"]
        command, = docs.commands("\n".join(page))
        self.assertEqual(command.rows, [(7, "| pp2 ep4 | 1.5 |"), (9, "Mean 1 %.")])
        self.assertEqual(list(docs.missing_rows(command.rows, ["pp2_tp1_ep4  scaling  1.5", "mean 1 %"])), [])
        wrong, = docs.missing_rows(command.rows, ["pp2_tp1_ep4  scaling  1.6", "mean 1 %"])
        self.assertEqual(wrong[0], 7)


class Difference(unittest.TestCase):
    def test_the_output_and_extracts_of_it(self):
        cut = REAL[0][:42]
        for shown in (REAL, ["..."], ["..."] + REAL[1:], REAL[:2] + ["  ..."], [cut, "..."], ["..."] + REAL[3:],
                      ["...", REAL[1], "...", REAL[4]], [REAL[0] + "  ", "...", *REAL[3:]]):
            self.assertIsNone(docs.difference(shown, REAL), shown)

    def test_what_is_not(self):
        other = REAL[1].replace("143", "142")
        for shown, index, line in (
                ([], -1, REAL[0]), (REAL[:4], 3, REAL[4]), (REAL[1:], 0, REAL[0]), ([*REAL[:2], *REAL[3:]], 2, REAL[2]),
                ([REAL[0], other, "..."], 1, REAL[1]), (["...", other, "..."], 1, REAL[1]),
                ([*REAL, "more"], 5, docs.END), ([REAL[0][:30], "..."], 0, REAL[0]), (["...", REAL[2]], 1, REAL[3])):
            found = docs.difference(shown, REAL)
            self.assertIsNotNone(found, shown)
            self.assertEqual(found[:2], (index, line), shown)
        self.assertIsNotNone(docs.difference(["...", REAL[2], "...", REAL[1], "..."], REAL))


class WithoutReports(unittest.TestCase):
    def test_every_reason_of_the_build_is_known(self):
        script = (ROOT / "cmake/BuildReport.cmake").read_text()
        reasons = re.findall(r'write_missing\("(.*)"\)', script)
        self.assertEqual(len(reasons), script.count("write_missing("))
        for reason in reasons:
            self.assertRegex(f"moesim: --report: {reason}\n", docs.WITHOUT_REPORTS)


class Extract(unittest.TestCase):
    def test_is_cut_out_anew(self):
        shown = [REAL[0][:42], "...", "   1        149.00        71.00       ", "...", "alltoall wins by 11 us."]
        self.assertEqual(refresh_examples.extract(shown, REAL),
                         ["rank  computing ms  transfer ms  straggler", "...", REAL[2], "...", REAL[4]])

    def test_is_left_where_two_places_are_alike(self):
        self.assertIsNone(refresh_examples.extract(["...", "value 3", "..."], ["value 1", "", "value 2"]))

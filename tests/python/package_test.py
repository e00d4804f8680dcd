"""import moesim: the numbers, the refusals and the texts of the command line; threads; what a notebook does with results.

python3 package_test.py BUILD/python BUILD/moesim
"""

import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

package, program = (os.path.abspath(one) for one in sys.argv[1:3])
sys.path.insert(0, package)
import moesim  # noqa: E402

BASE = {"model": "mixtral-8x7b", "cluster": "dgx-h100x4", "ep": 8}
SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "traces/samples"
WORDS = ["--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "8"]


def said(*words, cwd=None):
    """Returns the JSON that the program prints."""
    out = subprocess.run([program, *words, "--format", "json", "--quiet"], capture_output=True, text=True, cwd=cwd, check=True)
    return json.loads(out.stdout)


def refused(*words):
    """The line with which the program refuses."""
    out = subprocess.run([program, *words, "--quiet"], capture_output=True, text=True)
    assert out.returncode == 2 and out.stderr.startswith("moesim: "), out
    return out.stderr[len("moesim: "):].rstrip("\n")


def without_command(result):
    result = copy.deepcopy(result)
    del result["inputs"]["command"]
    return result


class SameAnswers(unittest.TestCase):
    def test_keywords_are_options(self):
        for options, words in (
            ({}, []),
            ({"dispatcher": ["allgather", "alltoall", "flex-deepep"], "routing": "zipf:1.2", "draws": 8, "micro_batch": 2},
             ["--dispatcher", "allgather,alltoall,flex-deepep", "--routing", "zipf:1.2", "--draws", "8", "--micro-batch", "2"]),
            ({"inference": True, "seed": 7, "routing": "dirichlet:0.5"}, ["--inference", "--seed", "7", "--routing", "dirichlet:0.5"]),
            ({"inference": False, "topk": None}, []),
            ({"scope": "step", "pp": 2, "microbatches": 4, "detail": "memory", "draws": 4},
             ["--scope", "step", "--pp", "2", "--microbatches", "4", "--detail", "memory", "--draws", "4"]),
        ):
            with self.subTest(options=options):
                self.assertEqual(without_command(moesim.compare(**BASE, **options).to_dict()),
                                 without_command(said("compare", *WORDS, *words)))

    def test_a_recording_is_compared_or_refused(self):
        scaling = f"{SAMPLES}/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling"
        two = moesim.compare(scaling, dispatcher=["allgather", "alltoall-legacy", "alltoall"], draws=0)
        self.assertEqual(two.scenario, {})
        self.assertEqual({one.dispatcher for one in two}, {"alltoall-legacy", "allgather", "alltoall"})
        for ask in (lambda: moesim.compare(scaling, draws=0), lambda: moesim.whatif(scaling, {"seq": 4096}, draws=0)):
            with self.assertRaisesRegex(moesim.InputError, "found the replay of a recording"):
                ask()
        with self.assertRaisesRegex(TypeError, "expected the name of a verb"):
            moesim.run(["replay", scaling])

    def test_a_dict_is_a_scenario_file(self):
        scenario = {"model": "mixtral-8x7b", "cluster": {"base": "dgx-h100x4", "nic": {"bandwidth": "20GBps"}},
                    "parallel": {"ep": 8}, "dispatcher": [{"name": "alltoall"}, "allgather"]}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "scenario.json")
            file.write_text(json.dumps(scenario))
            by_file = moesim.compare(file)
            self.assertEqual(list(by_file.to_dict()["inputs"]["files"]), [str(file)])
            self.assertEqual(without_command(by_file.to_dict()), without_command(said("compare", str(file))))
            ours, theirs = (without_command(one) for one in (moesim.compare(scenario).to_dict(), by_file.to_dict()))
            for one in (ours, theirs):
                del one["inputs"]["files"], one["inputs"]["settings"]  # which say where they stand
            self.assertEqual(ours, theirs)
        self.assertEqual(moesim.compare(json.dumps(scenario)).rows(), moesim.compare(scenario).rows())
        # Keywords change what the scenario says.
        self.assertEqual(moesim.compare(scenario, topk=1).scenario["topk"], 1)

    def test_the_scenario_of_an_answer_asks_it_again(self):
        first = moesim.compare(**BASE, routing="zipf:0.8")
        self.assertEqual(moesim.compare(first.scenario).rows(), first.rows())
        self.assertEqual(moesim.scenario(**BASE, routing="zipf:0.8"), first.scenario)

    def test_a_run_that_was_measured(self):
        asked = {**BASE, "dispatcher": "allgather,alltoall"}
        free = moesim.compare(**asked)
        self.assertIsNone(free.anchor)
        slower_us = 1.1 * free["alltoall"].time_us.value
        a = moesim.compare(**asked, measured={"alltoall": f"{slower_us}us"}, tolerance=0.05)
        words = [*WORDS, "--dispatcher", "allgather,alltoall", "--measured", f"alltoall={slower_us}us", "--tolerance", "5%"]
        theirs = said("compare", *words)
        self.assertEqual(without_command(a.to_dict()), without_command(theirs))
        self.assertEqual(a.recommendation.tolerance, 0.05)
        self.assertTrue(a.anchor.explained)
        self.assertAlmostEqual(a["alltoall"].time_us.value, slower_us, delta=1)
        # The anchor applies to the other one as well.
        self.assertGreater(a["allgather"].time_us.value, free["allgather"].time_us.value)
        self.assertLess(a["allgather"].time_us.high - a["allgather"].time_us.low,
                        free["allgather"].time_us.high - free["allgather"].time_us.low)
        lost = moesim.compare(**asked, measured={"alltoall": "1s"})
        self.assertFalse(lost.anchor.explained)
        # The forecast of a run that has nothing of it stands beside the sentence.
        self.assertGreater(len(lost), 0)
        self.assertIn("too slow", lost.answer)
        change = moesim.whatif(free.scenario, {"topk": 1}, measured={"alltoall": f"{slower_us}us"})
        self.assertEqual(change.anchor.measured[0]["time_us"], a.anchor.measured[0]["time_us"])
        self.assertIsNone(moesim.whatif(free.scenario, {"topk": 1}, measured={"alltoall": "1s"}).ratio)

    def test_a_plan_with_its_choices_and_its_gap(self):
        words = ["plan", "--model", "olmoe", "--tokens", "100B", "--clusters", "h100,h200", "--gpus", "8", "--draws", "4",
                 "--no-upgrades", "--most", "60", "--buy", "h200=40000", "--deadline", "900d"]
        theirs = said(*words)
        a = moesim.plan(model="olmoe", tokens="100B", clusters=["h100", "h200"], gpus=8, draws=4, no_upgrades=True, most=60,
                        buy="h200=40000", deadline="900d")
        self.assertEqual(without_command(a.to_dict()), without_command(theirs))
        self.assertEqual(str(a), theirs["answer"])
        self.assertEqual(a.gap, theirs["searched"]["gap"])
        self.assertEqual(len(a), len(theirs["plans"]))
        for name, at in theirs["choices"].items():
            self.assertEqual(getattr(a, name), None if at is None else a.plans[at])
        self.assertEqual(moesim.compare(a.plans[0].scenario, draws=0).scenario["parallel"], a.plans[0].parallel)
        meet = [one for one in a if one.meets and not one.lower_precision]
        self.assertEqual(a.cheapest.cost.value, min(one.cost.value for one in meet))
        self.assertEqual(a.shortest.days.value, min(one.days.value for one in meet))
        self.assertEqual(a.fewest_gpus.gpus, min(one.gpus for one in meet))
        for one in a:
            self.assertEqual(one.purchase is not None, one.cluster.startswith("dgx-h200"))
        self.assertEqual([row["days.value"] for row in a.rows()], [one.days.value for one in a])
        self.assertIsNone(moesim.plan(model="olmoe", tokens="100B", cluster="h100", gpus=8, draws=4, no_upgrades=True, most=60,
                                      budget="1$").cheapest)

    def test_without_draws_no_probability_is_said(self):
        a = moesim.compare({"model": "qwen3-30b-a3b", "cluster": "dgx-h100x4", "parallel": {"ep": 8}}, draws=0)
        self.assertIsNone(a.winner.probability)
        self.assertIsNone(a.recommendation.loss_at_most)
        self.assertEqual(a.recommendation.verdict, "open")
        self.assertIsNone(a.scenarios[0].fastest_probability)

    def test_lists_of_changes_are_lists(self):
        changes = ["cluster.nic.bandwidth=20GBps", "dispatcher=allgather,alltoall"]
        asked = {**BASE, "draws": 0, "each": True}
        ranking = moesim.run("whatif", set=changes, **asked)["ranking"]
        self.assertEqual(ranking, said("whatif", *WORDS, "--draws", "0", "--each", "--set", changes[0], "--set", changes[1])["ranking"])
        self.assertEqual(len(ranking), 2)
        with self.assertRaisesRegex(moesim.InputError, "nobody"):
            moesim.run("whatif", set=["dispatcher=nobody"], **asked)

    def test_whatif(self):
        scenario = moesim.compare(**BASE, draws=0).scenario
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "s.json").write_text(json.dumps(scenario))
            words = ["whatif", "s.json", "--set", "cluster.nic.bandwidth=20GBps", "--set", "parallel.seq=x2"]
            theirs = said(*words, cwd=folder)
        a = moesim.whatif(scenario, {"cluster.nic.bandwidth": "20GBps", "parallel.seq": "x2"})
        ours = a.to_dict()
        for one in (ours, theirs):
            del one["inputs"]
        self.assertEqual(ours, theirs)
        self.assertEqual(a.because, theirs["because"])
        self.assertEqual([one["path"] for one in a.changes], ["cluster.nic.bandwidth", "parallel.seq"])
        self.assertGreater(a.ratio.value, 1.5)
        self.assertLessEqual({"allgather", "alltoall"}, {row["dispatcher"] for row in a.rows()})

    def test_other_verbs(self):
        self.assertEqual({one.name: one.description for one in moesim.list("models")},
                         {one["name"]: one["description"] for one in said("list", "models")["models"]})
        self.assertIn("alltoall", [one.name for one in moesim.list()["dispatchers"]])
        scenario = moesim.compare(**BASE, draws=0).scenario
        crossing = moesim.run("whatif", scenario, crossover="topk=1..4", draws=0)
        self.assertEqual(len(crossing["points"]), 4)


class Dirt(unittest.TestCase):
    def test_what_is_no_text_is_refused_as_on_the_command_line(self):
        for bad in ("\udcff", "\ud800", "a\0b", os.fsdecode(b"/tmp/\xff")):
            with self.assertRaisesRegex(moesim.InputError, "found .*, expected text in UTF-8"):
                moesim.compare(model=bad)
        for bad in ({"seq": 10 ** 5000}, {"capacity": float("nan")}, {"parallel": {"ep": float("nan")}}):
            with self.assertRaises(moesim.InputError):
                moesim.compare({**BASE, **bad} if "parallel" in bad else None, **({} if "parallel" in bad else bad))


class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.answer = moesim.compare(**BASE, routing="zipf:1.2")

    def test_fields_are_those_of_the_json(self):
        a, data = self.answer, self.answer.to_dict()
        self.assertEqual(a.answer, data["answer"])
        self.assertEqual(a.because, data["because"])
        self.assertEqual(a.winner.dispatcher, data["winner"]["dispatcher"])
        self.assertEqual(a.winner.probability, data["winner"]["probability"])
        recommended = data["recommendation"]
        self.assertEqual({name: getattr(a.recommendation, name) for name in recommended},
                         {**recommended, "alike": tuple(recommended["alike"])})
        self.assertAlmostEqual(sum(one.fastest_probability or 0 for one in a), 1)
        self.assertEqual(a.warnings, data["warnings"])
        self.assertEqual(len(a), len(data["scenarios"]))
        for one, json_one in zip(a, data["scenarios"]):
            self.assertEqual([one.time_us.low, one.time_us.value, one.time_us.high],
                             [json_one["time_us"][key] for key in ("low", "value", "high")])
            self.assertLessEqual(one.time_us.low, one.time_us.high)
            self.assertAlmostEqual(sum(one.breakdown_us.values()), one.time_us.value, places=3)
            self.assertEqual(one.peak_memory_bytes, json_one["peak_memory_bytes"]["max"])
            self.assertEqual(one.to_dict(), json_one)
            self.assertEqual([key for key in json_one if not hasattr(one, key)], [])
            self.assertEqual((one.tx_bytes_per_rank, one.gpus), (json_one["tx_bytes_per_rank"], json_one["gpus"]))
            self.assertIs(a[one.dispatcher], one)
        with self.assertRaises(KeyError):
            a["nobody"]

    def test_rows_are_flat(self):
        for row, one in zip(self.answer.rows(), self.answer):
            self.assertEqual(row["time_us.value"], one.time_us.value)
            self.assertEqual(row["breakdown_us.expert"], one.breakdown_us["expert"])
            self.assertFalse([key for key, value in row.items() if isinstance(value, dict)])

    def test_copies_are_copies(self):
        before = self.answer.to_dict()
        changed = self.answer.to_dict()
        changed["scenarios"][0]["time_us"]["value"] = -1
        changed["warnings"].append("mine")
        self.assertEqual(self.answer.to_dict(), before)

    def test_pickle_and_equality(self):
        again = pickle.loads(pickle.dumps(self.answer))
        self.assertEqual(again, self.answer)
        self.assertEqual(again.to_dict(), self.answer.to_dict())
        self.assertNotEqual(moesim.compare(**BASE), self.answer)
        error = pickle.loads(pickle.dumps(moesim.InputError("one line")))
        self.assertIsInstance(error, moesim.InputError)

    def test_text(self):
        self.assertEqual(str(self.answer), self.answer.answer)
        self.assertNotIn("_data", repr(self.answer))

    def test_keywords_are_listed(self):
        known = moesim.keywords()
        self.assertIn("ep", known)
        self.assertIn("router_dtype", known)
        self.assertTrue(all(known.values()))
        for name in known:
            self.assertTrue(name.isidentifier(), name)

    def test_pandas(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("no pandas here")
        frame = self.answer.frame()
        self.assertEqual(len(frame), len(self.answer))
        self.assertEqual(frame["time_us.value"].min(), min(one.time_us.value for one in self.answer))


class Refusals(unittest.TestCase):
    def refuses(self, words, question):
        with self.assertRaises(moesim.InputError) as caught:
            question()
        self.assertEqual(str(caught.exception), refused(*words))
        self.assertIsInstance(caught.exception, ValueError)

    def test_texts_are_those_of_the_command_line(self):
        compare = moesim.compare
        self.refuses(["compare", "--model", "mixtral-8x7", "--ep", "8"], lambda: compare(model="mixtral-8x7", ep=8))
        for name, value in (("topk", "nine"), ("topk", 1.5), ("seq", float("nan")), ("seed", -1), ("overlap", "none"), ("draws", 10**8)):
            self.refuses(["compare", *WORDS, f"--{name}", str(value)], lambda: compare(**BASE, **{name: value}))
        self.refuses(["compare", "no_such_file.json"], lambda: compare("no_such_file.json"))
        self.refuses(["compare", '{"model": "mixtral-8x7b", "parallel": {"epp": 8}}'],
                     lambda: compare({"model": "mixtral-8x7b", "parallel": {"epp": 8}}))

    def test_an_unknown_keyword_names_the_nearest(self):
        for question, near in ((lambda: moesim.compare(modle="mixtral-8x7b"), "--model"),
                               (lambda: moesim.compare(**BASE, micro_bach=2), "--micro-batch"),
                               (lambda: moesim.list("model"), "models")):
            with self.assertRaisesRegex(moesim.InputError, f"did you mean '{near}'"):
                question()

    def test_an_empty_list_takes_no_other_option_for_its_value(self):
        with self.assertRaisesRegex(moesim.InputError, "^clusters: found nothing, expected a value"):
            moesim.plan(model="qwen3-30b-a3b", tokens="2T", clusters=[], gpus=64)

    def test_what_a_scenario_does_not_know(self):
        with self.assertRaisesRegex(moesim.InputError, r"^scenario:\d+: .*epp.*did you mean 'ep'"):
            moesim.compare({"model": "mixtral-8x7b", "parallel": {"epp": 8}})
        with self.assertRaisesRegex(moesim.InputError, "training.overlap"):
            moesim.compare({"model": "mixtral-8x7b", "training": {"overlap": "none"}})

    def test_what_a_caller_cannot_choose(self):
        for name in ("format", "quiet", "help", "version"):
            with self.assertRaisesRegex(moesim.InputError, name):
                moesim.compare(**BASE, **{name: True})
        with self.assertRaisesRegex(moesim.InputError, "no JSON result"):
            moesim.run("completion", "bash")
        with self.assertRaisesRegex(moesim.InputError, "no change"):
            moesim.whatif(dict(BASE), {})
        with self.assertRaises(TypeError):
            moesim.compare(**BASE, topk=object())
        with self.assertRaises(ValueError):
            moesim.compare({"model": float("nan")})

    def test_the_interpreter_goes_on_after_a_refusal(self):
        for _ in range(50):
            with self.assertRaises(moesim.InputError):
                moesim.compare(model="nobody")
        self.assertTrue(moesim.compare(**BASE, draws=0).winner)


class Threads(unittest.TestCase):
    def test_many_threads_give_the_answers_of_one(self):
        questions = [dict(BASE, ep=ep, draws=8, routing=routing) for ep in (2, 4, 8) for routing in ("balanced", "zipf:1.2")]
        alone = [without_command(moesim.compare(**question).to_dict()) for question in questions]
        found = {}

        def work(first):
            for i in range(len(questions)):
                at = (first + i) % len(questions)
                found[first, at] = without_command(moesim.compare(**questions[at]).to_dict())
                try:
                    moesim.compare(model=f"nobody-{first}")
                except moesim.InputError as error:
                    assert f"nobody-{first}" in str(error)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        self.assertEqual(len(found), 4 * len(questions))
        for (_, at), result in found.items():
            self.assertEqual(result, alone[at])

    def test_each_thread_names_the_files_that_it_read(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder, f"s{n}.json") for n in range(4)]
            for n, file in enumerate(files):
                file.write_text(json.dumps({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "topk": n + 1}))

            def work(file):
                return [list(moesim.compare(file, draws=0).to_dict()["inputs"]["files"]) for _ in range(3)]

            with ThreadPoolExecutor(4) as pool:
                self.assertEqual(list(pool.map(work, files)), [[[str(file)]] * 3 for file in files])

    def test_the_interpreter_lock_is_released(self):
        """While one thread computes, this one goes on: with the lock held it would count next to nothing."""
        done = threading.Event()

        def work():
            moesim.compare(model="deepseek-v3", cluster="dgx-h100x32", ep=64, dispatcher="all", draws=200)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        turns = 0
        while not done.wait(0.002):
            turns += 1
        thread.join()
        self.assertGreater(turns, 10)


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    unittest.main(argv=[sys.argv[0], "-v"])

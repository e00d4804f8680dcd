"""The program of selftest.sh: see there, and docs/replay.md for what the numbers mean."""
import argparse
import functools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SIZES = ["--hidden", "256", "--ffn", "512", "--heads", "8", "--layers", "2", "--vocab", "1024", "--seq", "256", "--experts",
         "8", "--topk", "2", "--microbatches", "4"]
JOBS = [(dispatcher, routing) for dispatcher in ("alltoall", "allgather") for routing in ("balanced", "zipf:1.2")]
COMPONENTS = ("forward", "backward", "loss", "optimizer", "dp_allreduce", "exp_dp_allreduce")
# Largest errors of a forecast. Computing: its time on a core, which the load of the machine does not change. Iteration:
# beyond the bounds of an undisturbed one, which is not shorter than the work of its busiest rank and not longer than the
# fastest pass.
MOST_COMPUTING, MOST_ITERATION = 0.20, 0.15


say = functools.partial(print, flush=True)


def call(words, quiet: bool = False, folder: str = None) -> str:
    """The standard output of a command, which is shown so that it can be repeated by hand."""
    if not quiet:
        say("$ " + " ".join(os.path.relpath(w) if w.startswith(ROOT) else w for w in words))
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    if done.returncode != 0:
        raise SystemExit("selftest: %s ended with exit code %d: %s" % (os.path.basename(words[0]), done.returncode,
                                                                      done.stderr.strip()[-500:]))
    return done.stdout


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def capture(*words: str, folder: str = None) -> str:
    return call([sys.executable, "-m", "moesim_capture", *words], folder=folder)


def folders(out: str, mode: str, passes: int):
    """The recordings of a job by pass."""
    sizes = next(name for name in sorted(os.listdir(out)) if name.startswith("pp"))
    return [os.path.join(out, sizes, mode + (str(n) if n else "")) for n in range(passes)]


def record(out: str, ranks: int, dispatcher: str, routing: str, passes: int):
    """Real and scaling recordings of one job; {kind: folders} and the summaries."""
    job = ["--world", str(ranks), "--ep", str(ranks), "--dispatcher", dispatcher, "--routing", routing, *SIZES]
    kinds = {"real": "realistic", "alone": "scaling"}
    recordings, summaries = {}, {}
    for kind, mode in kinds.items():
        place = "%s-%s-%d-%s" % (dispatcher, routing.replace(":", ""), ranks, kind)
        # Run inside `out`: the command stands in the recordings, and should say nothing about this machine's folders.
        capture("run", "--mode", mode, "--passes", str(passes), "--out", place, *job, folder=out)
        recordings[kind] = folders(os.path.join(out, place), mode, passes)
        summaries[kind] = json.loads((pathlib.Path(recordings[kind][0]).parent / ("run_%s.json" % mode)).read_text())
    return recordings, summaries


def calibrate(moesim: str, out: str, ranks: int):
    """Measurement files of this host: products and copies of one core, and gloo's collectives."""
    raw = os.path.join(out, "raw")
    single = os.path.join(raw, "moesim-bench-host-1.measurements.json")
    if not os.path.exists(single):
        call([moesim, "calibrate", "measure", "--bench", "host", "--out", raw, "--min-time", "0.05", "--quiet"])
    log = os.path.join(raw, "gloo-%d.json" % ranks)
    capture("measure", "--world", str(ranks), "--out", log)
    rows = os.path.join(raw, "gloo-%d.measurements.json" % ranks)
    call([moesim, "calibrate", "import", "google-benchmark", log, "--out", rows, "--quiet"])
    return [single, rows]


def cluster(moesim: str, out: str, name: str, rows, scaling, ranks: int) -> str:
    """A cluster file of this host, whose profile knows the collectives `rows` and the gaps and jitter of `scaling`."""
    constants, profile = os.path.join(out, name + ".constants.json"), os.path.join(out, name + ".profile.json")
    call([sys.executable, "-m", "moesim_capture", "constants", *scaling, "--out", constants], quiet=True)
    call([moesim, "calibrate", "fit", *rows, "--constants", constants, "--out", profile, "--quiet"], quiet=True)
    path = pathlib.Path(out, name + ".cluster.json")
    path.write_text(json.dumps({"profile": profile, "nodes": 1, "gpus_per_node": ranks}))
    return str(path)


def forecasts(words, flag: str, scaling):
    return words + [word for one in scaling for word in ((flag, one) if flag else (one,))]


def validated(moesim: str, scaling, measured: str, where: str, quiet: bool):
    """The forecast of all scaling passes together against one measured pass, as `moesim validate` has it."""
    words = [moesim, "validate", "--measured", measured, "--cluster", where, "--format", "json", "--quiet"]
    result = json.loads(call(forecasts(words, "--forecast", scaling), quiet=quiet))
    return {"iteration": result["iteration"], **result["components"]}


def computing(moesim: str, scaling, where: str, microbatches: int):
    """Milliseconds that every rank computes in the forecast, with what launches and loads on its host."""
    words = [moesim, "replay", "--cluster", where, "--microbatches", str(microbatches), "--format", "json", "--quiet"]
    ranks = json.loads(call(forecasts(words, "", scaling), quiet=True))["ranks"]
    return [(rank["busy_us"] + rank["host_us"]) / 1e3 for rank in ranks]


class Judged:
    """One job: what was measured, what was forecast, and whether the two agree."""

    def __init__(self, name: str, ranks: int, real: dict, results, busy):
        self.name, self.ranks = name, ranks
        self.walls, self.rows = real["recorded_ms"], real["cores"]
        self.cost = real["overhead"]
        self.results = results
        self.fair = ranks <= cores()
        self.forecast = results[0]["iteration"]["forecast_us"] / 1e3
        self.fastest = min(self.walls)
        self.known = all(row is not None for ranks_ in self.rows for row in ranks_)
        if not self.known:
            return
        # By rank, the median over passes of the time on a core.
        self.worked = [statistics.median(row[rank]["on_core"] for row in self.rows) for rank in range(ranks)]
        self.error_of_computing = statistics.mean(busy) / statistics.mean(self.worked) - 1
        best = self.walls.index(self.fastest)
        self.parts = {key: statistics.mean(row[key] for row in self.rows[best]) for key in self.rows[best][0]}
        self.parts["blocked"] = max(0.0, self.fastest - self.parts["on_core"] - self.parts["waiting"])

    def verdict(self) -> str:
        if not self.known:
            return "not judged: this kernel does not say who had a core"
        out = []
        if abs(self.error_of_computing) > MOST_COMPUTING:
            out.append("computing is off by %+.0f %%, more than %.0f %%" % (100 * self.error_of_computing,
                                                                          100 * MOST_COMPUTING))
        low, high = max(self.worked), self.fastest
        if self.fair and not (1 - MOST_ITERATION) * low <= self.forecast <= (1 + MOST_ITERATION) * high:
            out.append("the iteration, %.0f ms, lies beyond %.0f .. %.0f ms by more than %.0f %%" % (
                self.forecast, low, high, 100 * MOST_ITERATION))
        if out:
            return "FAILED: " + "; ".join(out)
        return "agrees" if self.fair else "computing agrees; more ranks than cores: the iteration is not judged"

    def failed(self) -> bool:
        return self.verdict().startswith("FAILED")


def spread(values, form: str) -> str:
    return "%s (%s .. %s)" % tuple(form % v for v in (statistics.median(values), min(values), max(values)))


def report(judged):
    say()
    say("Iterations in ms, of one thread per rank on %d cores; of measured ones the median of all passes with least and most," % (
        cores()))
    say("and where the time of the fastest went, mean of its ranks:")
    form = "%-32s %-22s %8s %9s %8s %8s   %-14s %9s %8s"
    say(form % ("job", "measured", "on core", "no core", "blocked", "gloo no core", "forecast", "error", "computing"))
    for one in judged:
        parts = ["-"] * 4
        if one.known:
            parts = ["%.0f" % one.parts[key] for key in ("on_core", "waiting", "blocked", "others_waiting")]
        interval = one.results[0]["iteration"]
        error = one.forecast / one.fastest - 1
        say(form % (one.name, spread(one.walls, "%.0f"), *parts, "%.0f (%.0f..%.0f)" % (
            one.forecast, interval["low_us"] / 1e3, interval["high_us"] / 1e3), "%+.0f %%" % (100 * error),
                    "%+.0f %%" % (100 * one.error_of_computing) if one.known else "-"))
    say("error: of the forecast against the fastest pass; computing: of its computing against the time on a core")
    say()
    say("Medians of the components' errors over all passes, and what recording costs:")
    say("%-32s " % "" + "".join("%-18s" % name for name in COMPONENTS) + "recording")
    for one in judged:
        cells = []
        for key in COMPONENTS:
            values = [100 * result[key]["error"] for result in one.results if key in result]
            cells.append("%-18s" % ("%+.0f %%" % statistics.median(values) if values else "-"))
        say("%-32s %s%+.1f %% (%+.1f .. %+.1f)" % (one.name, "".join(cells), 100 * one.cost["median"],
                                                  100 * one.cost["low"], 100 * one.cost["high"]))
    say()
    for one in judged:
        say("%-32s %s" % (one.name, one.verdict()))


def keep_samples(recordings, summaries, name: str, target: str):
    """The middle pass of each kind as a sample; headers say where they come from."""
    sizes = os.path.basename(os.path.dirname(recordings["real"][0]))
    place = os.path.join(target, name, sizes)
    shutil.rmtree(place, ignore_errors=True)
    for kind, mode in (("real", "realistic"), ("alone", "scaling")):
        times = summaries[kind]["recorded_ms"]
        middle = times.index(sorted(times)[len(times) // 2])
        os.makedirs(os.path.join(place, mode))
        for file in sorted(os.listdir(recordings[kind][middle])):
            if file.endswith(".txt"):
                shutil.copy(os.path.join(recordings[kind][middle], file), os.path.join(place, mode))
    shutil.copy(os.path.join(os.path.dirname(recordings["real"][0]), "dispatching.json"), place)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="selftest.sh", description="Records, calibrates and validates here.")
    arguments.add_argument("--quick", action="store_true", help="one job, two passes")
    arguments.add_argument("--out", help="folder for everything that is made (default: a temporary one)")
    arguments.add_argument("--samples", action="store_true", help="replace traces/samples/host by these recordings")
    options = arguments.parse_args()
    moesim = os.environ.get("MOESIM_BINARY") or os.path.join(ROOT, "build", "moesim")
    if not os.access(moesim, os.X_OK):
        raise SystemExit("selftest: found no %s, expected it built (tools/quickstart.sh)" % moesim)
    passes = 3 if options.quick else 5
    # A core per rank, as moesim gives every rank a device; and the samples' four ranks, who share cores where there are two.
    fair = 4 if cores() >= 4 else 2
    jobs = [(fair, *job) for job in (JOBS[:1] if options.quick else JOBS)]
    if not options.quick and fair != 4:
        jobs += [(4, *job) for job in (JOBS if options.samples else [job for job in JOBS if job[1] == "balanced"])]
    with tempfile.TemporaryDirectory(prefix="moesim-selftest-") as scratch:
        out = os.path.abspath(options.out or scratch)
        os.makedirs(out, exist_ok=True)
        if os.listdir(out):
            raise SystemExit("selftest: found %s with files, expected a new or empty folder" % out)
        loads, judged, measurements = [os.getloadavg()[0]], [], {}
        for ranks, dispatcher, routing in jobs:
            if ranks not in measurements:
                measurements[ranks] = calibrate(moesim, out, ranks)
            recordings, summaries = record(out, ranks, dispatcher, routing, passes)
            name = "%s-%s-%d" % (dispatcher, routing.replace(":", ""), ranks)
            where = cluster(moesim, out, name, measurements[ranks], recordings["alone"], ranks)
            results = [validated(moesim, recordings["alone"], one, where, one != recordings["real"][0])
                       for one in recordings["real"]]
            busy = computing(moesim, recordings["alone"], where, summaries["real"]["job"]["microbatches"])
            judged.append(Judged("%d ranks, %s, %s" % (ranks, dispatcher, routing), ranks, summaries["real"], results, busy))
            loads.append(os.getloadavg()[0])
            if options.samples and ranks == 4:
                keep_samples(recordings, summaries, "%s-%s" % (dispatcher, routing.replace(":", "")),
                             os.path.join(ROOT, "traces", "samples", "host"))
        report(judged)
        say("load of the machine meanwhile: %.1f .. %.1f (1 minute averages, this test's own processes included)" % (
            min(loads), max(loads)))
        jobs = [{**vars(one), "verdict": one.verdict()} for one in judged]
        pathlib.Path(out, "selftest.json").write_text(json.dumps({"loads": loads, "jobs": jobs}, indent=1))
    return 1 if any(one.failed() for one in judged) else 0


if __name__ == "__main__":
    sys.exit(main())

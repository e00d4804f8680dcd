"""What selftest.sh runs: see there, and docs/capture.md for what the numbers mean."""
import argparse
import json
import os
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


def say(text: str = ""):
    print(text, flush=True)


def call(words, quiet: bool = False, folder: str = None) -> str:
    """The standard output of a command, which is shown so that it can be repeated by hand."""
    if not quiet:
        say("$ " + " ".join(os.path.relpath(w) if w.startswith(ROOT) else w for w in words))
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    if done.returncode != 0:
        raise SystemExit("selftest: %s ended with exit code %d: %s" % (os.path.basename(words[0]), done.returncode,
                                                                      done.stderr.strip()[-500:]))
    return done.stdout


def load() -> float:
    return os.getloadavg()[0]


def capture(*words: str, folder: str = None) -> str:
    return call([sys.executable, "-m", "moesim_capture", *words], folder=folder)


def folders(out: str, mode: str, passes: int):
    """The recordings of a job by pass."""
    sizes = next(name for name in sorted(os.listdir(out)) if name.startswith("pp"))
    return [os.path.join(out, sizes, mode + (str(n) if n else "")) for n in range(passes)]


def record(out: str, ranks: int, dispatcher: str, routing: str, passes: int):
    """Real and scaling recordings of one job, the latter by one process alone and in a crowd; {kind: folders} and the
    summaries."""
    job = ["--world", str(ranks), "--ep", str(ranks), "--dispatcher", dispatcher, "--routing", routing, *SIZES]
    kinds = {"real": ("realistic", []), "alone": ("scaling", []), "crowd": ("scaling", ["--crowd", str(ranks)])}
    recordings, summaries = {}, {}
    for kind, (mode, extra) in kinds.items():
        place = "%s-%s-%d-%s" % (dispatcher, routing.replace(":", ""), ranks, kind)
        # Run inside `out`: the command stands in the recordings, and should say nothing about this machine's folders.
        capture("run", "--mode", mode, "--passes", str(passes), "--out", place, *job, *extra, folder=out)
        recordings[kind] = folders(os.path.join(out, place), mode, passes)
        with open(os.path.join(os.path.dirname(recordings[kind][0]), "run_%s.json" % mode)) as file:
            summaries[kind] = json.load(file)
    return recordings, summaries


def calibrate(moesim: str, out: str, ranks: int):
    """Measurement files of this host: products and copies, and the collectives of MPI and of gloo."""
    raw = os.path.join(out, "raw")
    call([moesim, "calibrate", "measure", "--bench", "host", "--out", raw, "--min-time", "0.05", "--quiet"])
    call([moesim, "calibrate", "measure", "--bench", "host", "--ranks", str(ranks), "--out", raw, "--min-time", "0.05",
          "--quiet"])
    log = os.path.join(raw, "gloo-%d.json" % ranks)
    capture("measure", "--world", str(ranks), "--out", log)
    rows = os.path.join(raw, "gloo-%d.measurements.json" % ranks)
    call([moesim, "calibrate", "import", "google-benchmark", log, "--out", rows, "--quiet"])
    single = os.path.join(raw, "moesim-bench-host-1.measurements.json")
    return {"mpi": [single, os.path.join(raw, "moesim-bench-host-%d.measurements.json" % ranks)], "gloo": [single, rows]}


def cluster(moesim: str, out: str, name: str, rows, scaling, ranks: int) -> str:
    """A cluster file of this host, whose profile knows the collectives `rows` and the gaps and jitter of `scaling`."""
    constants, profile = os.path.join(out, name + ".constants.json"), os.path.join(out, name + ".profile.json")
    call([sys.executable, "-m", "moesim_capture", "constants", *scaling, "--out", constants], quiet=True)
    call([moesim, "calibrate", "fit", *rows, "--constants", constants, "--out", profile, "--quiet"], quiet=True)
    path = os.path.join(out, name + ".cluster.json")
    with open(path, "w") as file:
        json.dump({"profile": profile, "nodes": 1, "gpus_per_node": ranks}, file)
    return path


def validate(moesim: str, forecast, measured, where: str):
    """Every measured pass against the forecast of all scaling passes together: iteration and component triples."""
    out = []
    for folder in measured:
        words = [moesim, "validate", "--measured", folder, "--cluster", where, "--format", "json", "--quiet"]
        for one in forecast:
            words += ["--forecast", one]
        result = json.loads(call(words, quiet=folder != measured[0]))
        out.append({"iteration": result["iteration"], **result["components"]})
    return out


def spread(values, form: str) -> str:
    return "%s (%s .. %s)" % tuple(form % v for v in (statistics.median(values), min(values), max(values)))


def errors(results, key: str):
    return [100 * one[key]["error"] for one in results if key in one]


def report(ranks: int, rows):
    say()
    say("%d ranks of one thread on %d cores; all times ms, medians over passes with least and most" % (
        ranks, os.cpu_count() or 1))
    say("%-22s %-26s %-30s %-30s %-30s" % ("dispatcher, routing", "measured iteration", "error: one process, gloo",
                                           "error: one process, MPI", "error: in a crowd, gloo"))
    for row in rows:
        measured = [one["iteration"]["measured_us"] / 1e3 for one in row["alone-gloo"]]
        say("%-22s %-26s %-30s %-30s %-30s" % (
            row["name"], spread(measured, "%.1f"), spread(errors(row["alone-gloo"], "iteration"), "%+.1f %%"),
            spread(errors(row["alone-mpi"], "iteration"), "%+.1f %%"),
            spread(errors(row["crowd-gloo"], "iteration"), "%+.1f %%")))
    say()
    say("Medians of the components' errors, in a crowd with gloo's collectives, and what recording costs:")
    say("%-22s " % "" + "".join("%-18s" % name for name in COMPONENTS) + "recording")
    for row in rows:
        cells = []
        for key in COMPONENTS:
            values = errors(row["crowd-gloo"], key)
            cells.append("%-18s" % ("%+.1f %%" % statistics.median(values) if values else "-"))
        cost = row["overhead"]
        say("%-22s %s%+.1f %% (%+.1f .. %+.1f)" % (row["name"], "".join(cells), 100 * cost["median"], 100 * cost["low"],
                                                  100 * cost["high"]))


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
    jobs, passes = (JOBS[:1], 2) if options.quick else (JOBS, 5)
    with tempfile.TemporaryDirectory(prefix="moesim-selftest-") as scratch:
        out = os.path.abspath(options.out or scratch)
        os.makedirs(out, exist_ok=True)
        if os.listdir(out):
            raise SystemExit("selftest: found %s with files, expected a new or empty folder" % out)
        loads, everything = [load()], {}
        # Two ranks have a core each here; four share them.
        for ranks in (4,) if options.quick else (4, 2):
            measurements, rows = calibrate(moesim, out, ranks), []
            everything["%d ranks" % ranks] = rows
            for dispatcher, routing in jobs if ranks == 4 else [job for job in jobs if job[1] == "balanced"]:
                recordings, summaries = record(out, ranks, dispatcher, routing, passes)
                name = "%s-%s-%d" % (dispatcher, routing.replace(":", ""), ranks)
                row = {"name": dispatcher + ", " + routing, "overhead": summaries["real"]["overhead"]}
                for kind, library in (("alone", "gloo"), ("alone", "mpi"), ("crowd", "gloo")):
                    where = cluster(moesim, out, "%s-%s-%s" % (name, kind, library), measurements[library],
                                    recordings[kind], ranks)
                    row["%s-%s" % (kind, library)] = validate(moesim, recordings[kind], recordings["real"], where)
                rows.append(row)
                loads.append(load())
                if options.samples and ranks == 4:
                    keep_samples(recordings, summaries, "%s-%s" % (dispatcher, routing.replace(":", "")),
                                 os.path.join(ROOT, "traces", "samples", "host"))
            report(ranks, rows)
        say()
        say("load of the machine meanwhile: %.1f .. %.1f (1 minute averages, this test's own processes included)" % (
            min(loads), max(loads)))
        with open(os.path.join(out, "selftest.json"), "w") as file:
            json.dump({"loads": loads, **everything}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

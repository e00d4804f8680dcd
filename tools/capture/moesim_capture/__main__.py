"""moesim-capture: runs and records the reference job, checks recordings, merges routing. Exit codes: 0 done, 1 a run that
failed, 2 bad input or usage."""
import argparse
import json
import os
import shlex
import sys
from dataclasses import fields

from . import fake
from .cmd_format import FormatError, Operation, format_text, read_rank_file
from .layout import Layout
from .recorder import write_json
from .reference.config import JobConfig


def _files_of(paths):
    """Files as given, and the rank files of folders."""
    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith(".txt") and "rank" in name)
        if not names:
            raise FormatError("%s: found a folder without rank files, expected files like rank00.txt" % path)
        found += [os.path.join(path, name) for name in names]
    return found


def check(options) -> int:
    """Reads every file and writes it again in memory: the same bytes, or the place of the first difference."""
    for path in _files_of(options.files):
        content = read_rank_file(path)
        with open(path, encoding="utf-8", newline="") as file:
            if format_text(content) != file.read():
                raise FormatError("%s: found bytes that would be written differently" % path)
        subs = sum(len(line.subs) for line in content.lines)
        print("%s: rank %d, %d operations, %d calls inside them" % (path, content.lines[0].rank, len(content.lines), subs))
    return 0


def overhead(options) -> int:
    """Prints the recorder's own time by rank: the sum over all lines against the span of the file."""
    worst = 0.0
    for path in _files_of(options.files):
        lines = [line for line in read_rank_file(path).lines if isinstance(line, Operation)]
        own = 0.0
        for line in lines:
            _, said, rest = line.description.partition("; recording took ")
            if not said:
                raise FormatError("%s: found the description %r, expected one of moesim-capture" % (path, line.description))
            own += float(rest.split()[0])
        measured = [line for line in lines if line.timestamp != "0"]
        span = float(measured[-1].timestamp) - float(measured[0].timestamp) + float(measured[0].duration)
        worst = max(worst, own / span if span > 0 else 0.0)
        print("%s: recording took %.3f of %.2f ms, %.2f %%" % (path, own, span, 100 * own / span if span > 0 else 0.0))
    print("at most %.2f %%" % (100 * worst))
    return 0


def merge_routing(options) -> int:
    from . import routing

    layout = Layout(options.world, options.tp, options.ep, options.pp)
    merged = routing.merge(options.folder, layout, options.group)
    write_json(options.out, merged)
    print("%s: %d tables of %d ranks and %d experts" % (options.out, len(merged.get("tables", [0])), merged["ep"],
                                                        merged["experts"]))
    return 0


def _limit_threads(threads: int):
    """Before torch is loaded: the BLAS under it reads these once, and torch.set_num_threads does not reach all of them."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def run(options) -> int:
    config = JobConfig(**{one.name: value for one in fields(JobConfig) if (value := getattr(options, one.name)) is not None})
    _limit_threads(config.threads)
    from .reference import runner

    command = "moesim-capture " + " ".join(map(shlex.quote, options.command_line))
    runner.require_device(config)
    runner.refuse_to_overwrite(options.out, config, options.mode, options.passes)
    runner.write_routing(options.out, config)
    if options.mode == "realistic":
        timings = runner.run_realistic(config, options.out, options.passes, options.warmup, command, options.cmd_version,
                                       options.timeout)
    else:
        timings = runner.run_scaling(config, options.out, options.passes, options.warmup, command, options.cmd_version)
    result = runner.summary(config, options.mode, timings, command)
    runner.write_summary(options.out, config, result)
    cost = result["overhead"]
    print("%s: %d passes, iteration %.2f ms (%.2f .. %.2f), recording costs %+.2f %% (%+.2f .. %+.2f), load %.1f" % (
        runner.pass_folder(options.out, config, options.mode, 0), options.passes,
        sorted(result["recorded_ms"])[options.passes // 2], min(result["recorded_ms"]), max(result["recorded_ms"]),
        100 * cost["median"], 100 * cost["low"], 100 * cost["high"], result["load"] or 0.0))
    return 0


def measure(options) -> int:
    _limit_threads(1)
    from .reference import transfers

    rows = transfers.measure(options.world, options.timeout)
    write_json(options.out, rows)
    print("%s: %d rows" % (options.out, len(rows["benchmarks"])))
    return 0


def constants(options) -> int:
    from .constants import from_scaling

    value = from_scaling(options.folders, options.profile)
    write_json(options.out, value)
    for name, one in value["profiles"][options.profile].items():
        print("%-24s %10.4g %s" % (name, one["value"], one["unit"]))
    return 0


def _worker(task_json: str):
    from .reference import runner, transfers

    task = json.loads(task_json)
    if "transfers" in task:
        out = transfers.worker(**task["transfers"])
    else:
        task["config"] = JobConfig(**task["config"])
        out = runner.run_worker(**task)
    print(json.dumps(out), flush=True)
    sys.stderr.flush()
    os._exit(0)  # gloo's threads make torch 1.13 abort at the interpreter's end now and then


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print("moesim-capture: %s (--help shows what there is)" % message, file=sys.stderr)
        raise SystemExit(2)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("found %s, expected at least 1" % text)
    return value


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="moesim-capture", description="Records training as CMD traces that moesim replays.")
    verbs = top.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    one = verbs.add_parser("run", help="run and record the reference MoE job")
    one.add_argument("--mode", choices=("realistic", "scaling"), required=True,
                     help="realistic: a process per rank; scaling: one process plays every rank in turn")
    one.add_argument("--out", required=True, help="folder for the recordings")
    one.add_argument("--passes", type=_positive, default=3, help="recorded iterations (default 3)")
    one.add_argument("--warmup", type=_positive, default=2, help="unrecorded iterations before them (default 2)")
    one.add_argument("--timeout", type=float, default=600, help="seconds for all of a realistic run (default 600)")
    one.add_argument("--cmd-version", type=int, choices=(1, 2), default=2, help="format of the lines (default 2)")
    for job in fields(JobConfig):
        kind = {"action": "store_true"} if job.type is bool else {"type": job.type}
        one.add_argument("--" + job.name.replace("_", "-"), help=job.metadata["help"], **kind)
    one.set_defaults(act=run)
    one = verbs.add_parser("fake", help="record some ranks of a bigger job here, by the command that starts it")
    one.add_argument("--ranks", default="", metavar="pipeline|N,N",
                     help="ranks to play (default: one for each pipeline stage and expert rank whose work differs)")
    one.add_argument("--routing", default="balanced", metavar="FILE|DIR",
                     help="balanced, a dispatching file, or a folder of recorded routing")
    for name, text in (("world", "ranks (default: torchrun's, or WORLD_SIZE)"), ("tp", "tensor-parallel size"),
                       ("ep", "expert-parallel size"), ("pp", "pipeline stages")):
        one.add_argument("--" + name, type=_positive, help=text + ("" if name == "world" else " (default: as the command says)"))
    one.add_argument("--out", default="moesim-recording", help="folder for the recordings (default moesim-recording)")
    one.add_argument("--iterations", type=_positive, default=3, help="recorded iterations (default 3)")
    one.add_argument("--warmup", type=int, default=2, help="unrecorded iterations before them (default 2)")
    one.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command that starts the job")
    one.set_defaults(act=fake.record)
    one = verbs.add_parser("check", help="read recordings and write them again, byte for byte")
    one.add_argument("files", nargs="+", metavar="FILE|DIR")
    one.set_defaults(act=check)
    one = verbs.add_parser("overhead", help="what recording took, as the recordings say")
    one.add_argument("files", nargs="+", metavar="FILE|DIR")
    one.set_defaults(act=overhead)
    one = verbs.add_parser("merge-routing", help="routing_rank<N>.jsonl of all ranks into one dispatching file")
    one.add_argument("folder")
    one.add_argument("--out", required=True)
    one.add_argument("--group", type=int, default=0, help="which replica of the experts (default 0)")
    for name in ("world", "ep"):
        one.add_argument("--" + name, type=_positive, required=True)
    for name in ("tp", "pp"):
        one.add_argument("--" + name, type=_positive, default=1)
    one.set_defaults(act=merge_routing)
    one = verbs.add_parser("measure", help="time torch.distributed's collectives here, for moesim calibrate fit")
    one.add_argument("--world", type=_positive, required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--timeout", type=float, default=600)
    one.set_defaults(act=measure)
    one = verbs.add_parser("constants", help="what scaling recordings say about gaps and jitter, for calibrate fit")
    one.add_argument("folders", nargs="+", metavar="DIR")
    one.add_argument("--profile", default="host")
    one.add_argument("--out", required=True)
    one.set_defaults(act=constants)
    return top


def main(arguments=None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["_worker"]:
        _worker(arguments[1])
    if arguments[:1] == ["_rank"]:
        from .fake_rank import main as play

        return play(arguments[1:]) or 0
    options = parser().parse_args(arguments)
    options.command_line = arguments
    try:
        return options.act(options)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        code, said = 2, "found no torch, expected it installed (Debian: apt-get install python3-torch)"
    except OSError as error:
        code, said = 2, "%s: %s" % (error.filename or "output", error.strerror)
    except (ValueError, RuntimeError) as error:
        code, said = 2 if isinstance(error, ValueError) else 1, " ".join(str(error).split())
    print("moesim-capture: " + said, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

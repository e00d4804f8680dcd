"""Scores "is my run normal, and if not, why": normal_score.py MOESIM SHARED [--verbose]

Asks about runs whose verdict is known: rows of public threads (threads/threads.tsv), published rows as they are and made slow by a
known factor, and jobs whose forecast is made slow by a known change. Prints the shares; exits 1 where one is below its floor, 77 where
the data is not there. The floors are what was reached, not the goals."""
import csv
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile

MODELS = {"Mixtral 8x7B": "mixtral-8x7b", "Qwen3-30B-A3B": "qwen3-30b-a3b", "Qwen3-235B-A22B": "qwen3-235b-a22b",
          "DeepSeek-V3, 14 layers": {"base": "deepseek-v3", "layers": 14}, "DeepSeek-V3 16B": "deepseek-v2-lite"}
GPUS = {"H100": "H100-SXM5-80GB", "H200": "H200-SXM5-141GB", "H800": "H800-SXM5-80GB", "A100": "A100-SXM4-80GB", "H20": "H20-SXM5-96GB",
        "B200": "B200-SXM6-180GB", "GB200": "GB200", "B300": "B300-SXM6"}
COLLECTIVE = "op,gpu,nodes,gpus_per_node,bytes,bytes_meaning,time_us,algbw_GBps,busbw_GBps,datatype,library_version,source"
KERNEL = "gpu,kernel,ep,nodes,tokens,hidden,topk,topk_groups,dtype,bottleneck_GBps,latency_us,source,experts,sms,note"
MEANS = {"all_gather": "recv_total_per_rank", "reduce_scatter": "send_total_per_rank", "alltoall": "send_total_per_rank"}


class Asked:
    def __init__(self, moesim):
        self.moesim = moesim
        self.folder = pathlib.Path(tempfile.mkdtemp())

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def json(self, *words):
        done = subprocess.run([self.moesim, *map(str, words), "--format", "json", "--quiet"], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return {"error": done.stderr.strip()}


def busbw_factor(op, ranks):
    return 2 * (ranks - 1) / ranks if op == "all_reduce" else (ranks - 1) / ranks if op in MEANS else 1


def size_of(text):
    words = text.replace("up to", "").split()
    unit = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
    return int(float(words[0]) * unit[words[1]]) if len(words) == 2 and words[1] in unit else 8 << 30


def ask_collective(asked, row):
    op = row["op"].split(" ")[0]
    gpu, nodes = GPUS.get(row["gpu"]), int(row["nodes"] or 1)
    if not gpu or row["unit"] != "GB/s" or op not in ("all_reduce", "alltoall", "all_gather", "reduce_scatter"):
        return None
    per_node = int(row["gpus"]) // nodes
    busbw, size = float(row["measured"]), size_of(row["size"])
    algbw = busbw / busbw_factor(op, nodes * per_node)
    line = [op, gpu, nodes, per_node, size, MEANS.get(op, "buffer_per_rank"), f"{size / algbw / 1e3:.3f}", f"{algbw:.4f}", f"{busbw:.4f}",
            "float", "NCCL", "a thread"]
    words = ["validate", asked.file("row.csv", COLLECTIVE + "\n" + ",".join(map(str, line)) + "\n")]
    return words + network_words(row["network"], row["words"])


def network_words(network, words):
    """The ports that a row states: "8 x 400G", "RoCE 8 x 2 x 200G", "RoCE 200G" with "one ... NIC used"."""
    said = []
    if "RoCE" in network:
        said += ["--network", "roce-pollara"]
    parts = network.replace("x", " x ").replace(",", " ").split()
    rates = [int(part[:-1]) for part in parts if part.endswith("G") and part[:-1].isdigit()]
    counts = [int(part) for part in parts if part.isdigit()]
    if rates:
        said += ["--nic-rate", f"{rates[0]}Gbps"]
        if counts or "one " in words:
            said += ["--nics", math.prod(counts)]
    return said


def ask_kernel(asked, row):
    gpu = GPUS.get(row["gpu"])
    op = "dispatch" if "dispatch" in row["op"] else "combine"
    if not gpu or not row["ep"] or "+" in row["op"] or "low_latency" in row["op"] or row["unit"] not in ("GB/s", "ms"):
        return None
    rate, time = (row["measured"], "") if row["unit"] == "GB/s" else ("", float(row["measured"]) * 1e3)
    dtype = (row["precision"] or ("FP8" if op == "dispatch" else "BF16")).lower()
    line = [gpu, f"deepep_v1_normal_{op}", row["ep"], row["nodes"], 4096, 7168, 8, 4, dtype, rate, time, "a thread", 256, "", ""]
    words = ["validate", asked.file("row.csv", KERNEL + "\n" + ",".join(map(str, line)) + "\n")]
    return words + (["--network", "roce-pollara"] if "RoCE" in row["network"] else [])


def ask_step(asked, row):
    model = MODELS.get(row["model"])
    units = {"TFLOP/s/GPU": "TFLOP/s/GPU", "tokens/s/GPU": "tokens/s/GPU", "s": "s", "%": "%MFU"}
    if not model or not row["gpu"] or not row["gpus"] or row["unit"] not in units:
        return None
    scenario = {"model": model, "scope": "step", "cluster": row["gpu"].lower(), "gpus": int(row["gpus"]), "dispatcher": "alltoall", "parallel": {},
                "training": {}}
    for column, key in (("tp", "tp"), ("pp", "pp"), ("ep", "ep"), ("mbs", "micro_batch"), ("seq", "seq"), ("gbs", "global_batch")):
        if row[column]:
            scenario["parallel"][key] = int(row[column])
    scenario["parallel"].setdefault("seq", 4096)
    if row["precision"] == "MXFP8":
        scenario["training"]["precision"] = "mxfp8"
    return ["compare", asked.file("job.json", json.dumps(scenario)), "--measured", row["measured"] + units[row["unit"]]]


def score_threads(asked, shared, verbose):
    alarms, normals, causes = [], [], []
    ask = {"collective": ask_collective, "ep_kernel": ask_kernel, "step": ask_step}
    for row in csv.DictReader(open(shared / "threads/threads.tsv"), delimiter="\t"):
        if row["sure"] == "guess" or not row["measured"] or row["kind"] not in ask:
            continue
        words = ask[row["kind"]](asked, row)
        if not words:
            continue
        verdict = asked.json(*words).get("verdict")
        ids = [cause["ids"] for cause in verdict["causes"][:3]] if verdict else []
        (normals if row["verdict"] == "normal" else alarms).append(bool(verdict) and verdict["normal"] == (row["verdict"] == "normal"))
        if row["verdict"] == "slow":
            causes.append(any(row["cause_id"] in one for one in ids))
        if verbose:
            print(row["n"], row["kind"], row["verdict"], row["speed"], row["cause_id"], "->",
                  verdict and (verdict["normal"], round(verdict["ratio"], 2), ids) or asked.json(*words))
    return {"threads alarmed": alarms, "threads normal": normals, "threads cause": causes}


def judged(asked, table):
    return [row["normal"] for row in asked.json("validate", table).get("rows", [])]


def score_tables(asked, shared):
    """Rows as they are; and of a half of them, every eighth row of those between nodes, with one port of eight."""
    tables = sorted(path for kind in ("collectives", "ep_dispatch_combine") for path in (shared / "published").glob(f"{kind}_*.csv"))
    as_they_are, beyond, slow = [], [], []
    for table in tables:
        as_they_are += judged(asked, table)
        checked = subprocess.run([asked.moesim, "calibrate", "check", "--all", "--against", table, "--rows", "--format", "csv", "--quiet"],
                                 capture_output=True, text=True).stdout
        for row in csv.DictReader(io.StringIO(checked)):
            beyond.append(float(row["measured_us"]) <= 1.1 * float(row["high_us"]))
        if "collectives_multinode" not in table.name:
            continue
        rows = csv.DictReader(line for line in table.read_text().splitlines() if not line.startswith("#"))
        out = io.StringIO()
        writer = csv.DictWriter(out, rows.fieldnames, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            if int(row["nodes"]) > 1 and float(row["bytes"]) >= 1 << 28:
                slower = {rate: row[rate] and str(float(row[rate]) / 8) for rate in ("algbw_GBps", "busbw_GBps")}
                writer.writerow({**row, "time_us": str(8 * float(row["time_us"])), **slower})
        slow += [not normal for normal in judged(asked, asked.file("slow.csv", out.getvalue()))]
    return {"rows as they are, normal": as_they_are, "rows within 1.1 x the interval": beyond, "one port of eight, alarmed": slow}


JOBS = (["--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x2", "--ep", "8", "--dispatcher", "alltoall"],
        ["--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "8", "--pp", "2", "--dispatcher", "alltoall"],
        ["--model", "deepseek-v3", "--cluster", "h200", "--gpus", "256", "--ep", "32", "--pp", "8", "--dispatcher", "flex-deepep"],
        ["--model", "qwen3-235b-a22b", "--cluster", "dgx-h100x16", "--ep", "16", "--pp", "8", "--dispatcher", "alltoall"])
CHANGES = {"host_bound": "training.launch=eager", "recompute": "training.recompute=full", "token_imbalance": "routing=gini:0.5",
           "one_nic": "cluster.nic.bandwidth=x0.125"}


def score_jobs(asked, verbose):
    alarms, causes = [], []
    for job in JOBS:
        plan = [*job, "--scope", "step", "--launch", "graphs"]
        for cause, change in CHANGES.items():
            changed = asked.json("whatif", *plan, "--set", change, "--draws", "0")
            if "error" in changed or "difference" not in changed:
                if verbose:
                    print(job, cause, changed.get("error", list(changed)))
                continue
            ratio = changed["difference"]["ratio"]["value"]
            if ratio < 1.1:
                continue
            one = asked.json("compare", *plan, "--measured", "1s")["verdict"]
            verdict = asked.json("compare", *plan, "--measured", f"{ratio / one['ratio']}s")["verdict"]
            ids = [one["ids"] for one in verdict["causes"][:3]]
            alarms.append(not verdict["normal"])
            causes.append(any(cause in one for one in ids))
            if verbose:
                print(job[1], cause, round(ratio, 2), verdict["normal"], ids)
    return {"jobs made slow, alarmed": alarms, "jobs made slow, cause": causes}


def main(moesim, shared, *options):
    shared, verbose = pathlib.Path(shared), "--verbose" in options
    if not (shared / "threads/threads.tsv").exists():
        print(f"SKIP: {shared}/threads is not there")
        return 77
    asked = Asked(moesim)
    parts = score_threads(asked, shared, verbose) | score_tables(asked, shared) | score_jobs(asked, verbose)
    low = []
    for name, hits in parts.items():
        share = sum(hits) / max(len(hits), 1)
        print(f"{name:32} {sum(hits):6} of {len(hits):6}  {100 * share:5.1f} %")
        if share < FLOORS.get(name, 0):
            low.append(name)
    print("below the floor: " + ", ".join(low) if low else "no share is below its floor")
    return 1 if low else 0


FLOORS = {"threads normal": 0.85, "threads cause": 0.7, "rows as they are, normal": 0.95, "one port of eight, alarmed": 0.9,
          "jobs made slow, alarmed": 0.6, "jobs made slow, cause": 0.7}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

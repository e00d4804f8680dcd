#!/usr/bin/env python3
"""Checks the schemas of results and files against what moesim prints and reads: schemas.py SOURCE_DIR MOESIM

Every result is made by its command and has to match its schema; and the schema has to notice a key that is gone and a
value of another type, or it would check nothing. Every file schema has to take the files that moesim takes and to refuse
what moesim refuses. Exit code 77 (skipped) where python3-jsonschema is not installed.
"""
import copy
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is not installed")
    sys.exit(77)

SOURCE, MOESIM = pathlib.Path(sys.argv[1]), sys.argv[2]
# Written there by the program, which has those of docs/schemas and makes the others.
SCHEMAS = pathlib.Path(tempfile.mkdtemp(prefix="moesim_schemas_"))
SAMPLE = SOURCE / "traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024"
SCENARIO = str(SOURCE / "docs/examples/scenario.json")
JOB = str(SOURCE / "tests/fuzz/corpus/training_job/megatron.sh")
FAST = ["--draws", "4"]
SWEEP_KINDS = {
    "replay": [str(SAMPLE / "scaling"), str(SAMPLE / "realistic"), "--grid", "cluster=echo-h800x2,nobody", "--prices",
               '{"gpu_hour": 2}'],
    "plan": ["--model", "mixtral-8x7b", "--tokens", "1T", "--cluster", "h100", "--grid", "gpus=1,64", "--most", "10", *FAST],
}
FAILURES = []

# Schema: commands without --format json.
RESULTS = {
    "compare": [["compare", SCENARIO, *FAST], ["compare", SCENARIO, "--dispatcher", "all", *FAST],
                ["compare", SCENARIO, "--detail", "messages", *FAST], ["compare", SCENARIO, "--timing", "flow", *FAST],
                ["compare", SCENARIO, "--scope", "step", *FAST],
                # A run that the forecast explains, and one that it does not.
                ["compare", SCENARIO, "--measured", "alltoall=16ms"], ["compare", SCENARIO, "--measured", "alltoall=1s"],
                ["compare", "--model", "mixtral-8x7b", "--cluster", "h100", *FAST],
                ["compare", SCENARIO, "--dispatcher",
                 "allgather,alltoall:balance=least-loaded,alltoall:balance=eplb:slots=144", *FAST],
                # Counters differ from option to option.
                ["compare", SCENARIO, "--dispatcher", "torchtitan-force-balance,torchtitan-equal-split", *FAST],
                ["compare", SCENARIO, "--ep", "1", "--inference", "--dispatcher", "torchtitan-local", *FAST]],
    "compare-machines": [["compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4,dgx-h200x4,dgx-h100x1",
                          "--ep", "16", *FAST]],
    "whatif": [["whatif", SCENARIO, "--set", "nic.bandwidth=x2", *FAST],
               ["whatif", SCENARIO, "--each", "--set", "topk=4", "--set", "ep=7", *FAST],
               ["whatif", SCENARIO, "--sensitivity", *FAST], ["whatif", SCENARIO, "--crossover", "topk=1..8", *FAST],
               ["whatif", SCENARIO, "--map", "topk=1..2", "ep=7,8", *FAST],
               ["whatif", SCENARIO, "--best", "dispatcher", "--draws", "0"]],
    "plan": [["plan", "--model", "qwen3-30b-a3b", "--tokens", "1T", "--clusters", "h100,gb200", "--gpus", "60", "--most",
              "40", "--deadline", "90d", *FAST]],
    "sweep-pareto": [["sweep", SCENARIO, "--grid", "ep=8,16", "--out", "pareto.csv", "--overwrite", "--pareto",
                      "time_us.value,cost_per_million_tokens"]],
    "replay": [["replay", str(SAMPLE / "scaling"), "--cluster", "echo-h800x2"],
               ["replay", str(SAMPLE / "scaling"), "--cluster", "echo-h800x2", "--dispatcher", "allgather"],
               ["replay", str(SAMPLE / "scaling"), "--cluster", "echo-h800x2", "--timing", "flow"]],
    "validate": [["validate", "--forecast", str(SAMPLE / "scaling"), "--measured", str(SAMPLE / "realistic"), "--cluster",
                  "echo-h800x2"]],
    "validate-all": [["validate", "--all", str(SAMPLE.parent), "--cluster", "echo-h800x2"]],
    "trace-info": [["trace", "info", str(SAMPLE / "scaling")]],
    "trace-check": [["trace", "check", str(SAMPLE / "scaling")]],
    "trace-convert": [["trace", "convert", str(SAMPLE / "scaling"), "converted"]],
    "trace-synthesize": [["trace", "synthesize", "--out", "synthetic", "--routing", "zipf:1.2"]],
    "validate-log": [["validate", "--log", str(SOURCE / "tests/fuzz/corpus/training_log/megatron.log"), "--cluster",
                      "dgx-h100x2", *FAST]],
    "validate-known": [["validate", "--known", str(SOURCE / "calibration/known")]],
    "scenario-from": [["scenario", "from", "megatron", JOB, "--detail"]],
    "scenario-to": [["scenario", "to", "megatron", SCENARIO, "--scope", "step", "--dispatcher", "alltoall"],
                    ["scenario", "to", "torchtitan", SCENARIO, "--scope", "step", "--dispatcher", "torchtitan-alltoall"]],
    "list": [["list"], ["list", "models"], ["list", "models", "--detail"], ["list", "profiles"]],
}
# With the public measurements, where they are.
PUBLISHED = SOURCE.parent / "shared/data/published"
if PUBLISHED.is_dir():
    RESULTS["validate-training"] = [["validate", "--training", str(PUBLISHED / "moe_training_e2e.csv")]]
    RESULTS["validate-memory"] = [["validate", "--memory", str(SOURCE.parent / "shared/data/memory/simumax.csv")],
                                  ["validate", "--memory", str(PUBLISHED / "moe_training_e2e.csv"), "--detail", "causes"]]
    RESULTS["calibrate-check"] = [["calibrate", "check", "h100-sxm", "--against",
                                   str(PUBLISHED / "collectives_intranode.csv"), "--groups"]]

    RESULTS["calibrate-refine"] = [["calibrate", "refine", "h100-sxm", "--with",
                                    str(PUBLISHED / "collectives_multinode_2.csv"),
                                    "--out", "mine.json"]]
RESULTS["calibrate-node"] = [["calibrate", "node", "--with", str(SOURCE / "tests/fuzz/corpus/measurement/google.json")]]
RESULTS["calibrate-next"] = [["calibrate", "next", SCENARIO, "--draws", "32"]]

DECISIONS = SOURCE.parent / "shared/data/decisions"
if DECISIONS.is_dir():
    RESULTS["validate-decisions"] = [["validate", "--decisions", str(DECISIONS / "moe_layer_decisions.csv"), "--draws", "4"]]

# Scenario files that moesim refuses for their form, and their schema has to.
BAD_SCENARIOS = [{"modl": "x"}, {"parallel": {"ep": 0}}, {"parallel": {"ep": 1.5}}, {"parallel": {"epp": 2}},
                 {"scope": "laier"}, {"train": "yes"}, {"model": {"hidden": 4}}, {"cluster": {"nodes": 2}},
                 {"faults": {"slow_gpus": [{"gpu": 1, "factor": 0.5}]}}, {"placement": [-1]}, {"routing": {"name": 3}},
                 {"prices": {"gpu_hour": -1}}, {"prices": {"gpu_hour": 1, "node_hour": 2}}, {"prices": {}},
                 {"cluster": {"base": "dgx-h100x2", "nic": {"ports": 2}}}, {"training": {"gradient_bytes": 8}},
                 {"ownership": {"buy": {"gpu": 1, "node": 2}}}, {"ownership": {"pue": 0.5}}]
GOOD_SCENARIOS = [
    {}, {"model": {"base": "mixtral-8x7b", "layers": 8}}, {"model": {"hidden_size": 4096, "anything": 1}},
    {"model": {"base": "mixtral-8x7b", "layers": 2, "mixers": "**", "ffns": "EE", "zero_experts": 8}},
    {"dispatcher": [{"name": "alltoall"}, "allgather"]}, {"routing": {"name": "zipf", "exponent": 1.2}},
    {"cluster": {"profile": "h100-sxm", "nodes": 2, "nic": {"bandwidth": "100GBps", "latency": 2e-6}}},
    {"prices": {"gpu_hour": {"h100-sxm": 2.5}, "currency": "EUR"}},
    {"ownership": {"buy": {"node": 300000}, "kwh": 0.08}}, {"ownership": {"buy": "h100=35000,b200=50000", "years": 4}},
    {"training": {"precision": "bf16", "overlap": {"gradients": True}}, "scope": "step"},
    {"training": {"overlap": "gradients+parameters", "schedule": "interleaved"}, "scope": "step"},
    {"recompute": "full", "sharding": "hsdp:shard=8", "placement": [0, 1], "seed": "18446744073709551615"},
    {"faults": "slow.json", "routing": {"path": "routing.json"}}, {"prices": "2.10"}, {"parallel": {"global_batch": 512}},
    {"faults": {"slow_gpus": [{"gpu": 3, "factor": 1.5}], "nics": [{"gpu": 0, "bandwidth": 0}], "jitter": 0.1}}]


def write_schemas():
    subprocess.run([MOESIM, "schema", "--into", str(SCHEMAS)], check=True)
    for path in (SOURCE / "docs" / "schemas").glob("*.schema.json"):
        if json.loads(path.read_text()) != json.loads((SCHEMAS / path.name).read_text()):
            print("FAILED: moesim schema prints another", path.name)
            sys.exit(1)


write_schemas()


def fail(text):
    FAILURES.append(text)
    print("FAILED:", text)


def validator(name):
    schema = json.loads((SCHEMAS / (name + ".schema.json")).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    # References are to files beside it.
    return jsonschema.Draft202012Validator(schema, resolver=jsonschema.RefResolver(SCHEMAS.as_uri() + "/", schema))


def errors(check, value):
    return ["%s: %s" % ("/".join(map(str, e.absolute_path)), e.message[:200]) for e in check.iter_errors(value)]


def has_to_match(name, value, what):
    found = errors(validator(name), value)
    if found:
        fail("%s does not match %s.schema.json: %s" % (what, name, "; ".join(found[:3])))


def run(folder, words):
    return subprocess.run([MOESIM, *words], cwd=folder, capture_output=True, text=True)


# Every result has these keys.
COMMON = json.loads((SCHEMAS / "result.schema.json").read_text())["properties"]


def check_results(folder):
    for name, commands in RESULTS.items():
        check = validator(name)
        noticed = 0
        for words in commands:
            done = run(folder, [*words, "--format", "json", "--quiet"])
            what = "moesim " + " ".join(words)
            if done.returncode not in (0, 1):
                fail("%s: exit code %d: %s" % (what, done.returncode, done.stderr))
                continue
            result = json.loads(done.stdout)
            has_to_match(name, result, what)
            if "scenario" in result["inputs"]:
                has_to_match("scenario", result["inputs"]["scenario"], "inputs.scenario of " + what)
            elif name in ("compare", "whatif"):
                fail("no inputs.scenario in the result of " + what)
            for key in result:
                without, other = copy.deepcopy(result), copy.deepcopy(result)
                del without[key]
                other[key] = {"of": "another type"} if not isinstance(result[key], dict) else "text"
                noticed += bool(errors(check, without))
                if key not in {**COMMON, **check.schema["properties"]}:
                    fail("%s.schema.json does not name %s" % (name, key))
                elif not errors(check, other):
                    fail("%s.schema.json takes anything for %s" % (name, key))
        if noticed < 4 * len(commands):
            fail("%s.schema.json misses keys that are gone" % name)


def check_sweeps(folder):
    for extra in ([], ["--draws", "4", "--breakdown"], ["--grid", "scope=step"]):
        run(folder, ["sweep", SCENARIO, "--grid", "ep=8,7", "--out", "rows.jsonl", "--overwrite", "--quiet", *extra])
        for line in (folder / "rows.jsonl").read_text().splitlines():
            has_to_match("sweep-row", json.loads(line), "a row of a sweep")
        record = json.loads((folder / "rows.jsonl.json").read_text())
        has_to_match("sweep", record, "the record of a sweep")
        has_to_match("scenario", record["inputs"]["scenario"], "inputs.scenario of the record of a sweep")
    if not errors(validator("sweep-row"), {"scenario": 1, "dispatcher": "allgather"}):
        fail("sweep-row.schema.json takes a row without a time and without an error")
    for kind, words in SWEEP_KINDS.items():
        run(folder, ["sweep", kind, *words, "--out", kind + ".jsonl", "--quiet"])
        schema = "sweep-%s-row" % kind
        for line in (folder / (kind + ".jsonl")).read_text().splitlines():
            has_to_match(schema, json.loads(line), "a row of sweep " + kind)
        if not errors(validator(schema), {"scenario": 1}):
            fail(schema + ".schema.json takes a row without an answer and without an error")
        has_to_match("sweep", json.loads((folder / (kind + ".jsonl.json")).read_text()), "the record of sweep " + kind)
    again = run(folder, ["rerun", "rows.jsonl.json", "--format", "json"])
    has_to_match("rerun", json.loads(again.stdout), "moesim rerun")


def check_serve(folder):
    """Checks the output of `moesim serve` before it serves, and that it ends on request."""
    child = subprocess.Popen([MOESIM, "serve", "--port", "0", "--format", "json"], cwd=folder, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    text = ""
    for line in child.stdout:
        text += line
        if line == "}\n":
            break
    child.terminate()
    code, said = child.wait(), child.stderr.read()
    if code == 2 and ("without cpp-httplib" in said or "without Node" in said or "could not be bundled" in said):
        print("SKIPPED: " + said)
        return
    if code != 0:
        fail("moesim serve ends with %d: %s" % (code, said))
    has_to_match("serve", json.loads(text), "moesim serve")


def check_files(folder):
    for file in (SOURCE / "calibration/profiles/gpu").glob("*.json"):
        has_to_match("profile", json.loads(file.read_text()), file.name)
    for file in (SOURCE / "docs/examples").glob("*.json"):
        value = json.loads(file.read_text())
        has_to_match("model" if "hidden" in value else "scenario", value, file.name)
    scenario = validator("scenario")
    for value in GOOD_SCENARIOS:
        has_to_match("scenario", value, json.dumps(value))
    for value in BAD_SCENARIOS:
        (folder / "bad.json").write_text(json.dumps(value))
        refused = run(folder, ["compare", "bad.json"])
        if refused.returncode != 2 or "bad.json:1" not in refused.stderr:
            fail("moesim takes %s: %s" % (json.dumps(value), refused.stderr))
        if not errors(scenario, value):
            fail("scenario.schema.json takes %s" % json.dumps(value))
    # Every path that can be set is in the schema.
    for path in (line.split()[0] for line in run(folder, ["whatif", "--paths", "--format", "csv"]).stdout.split("\n")[1:]
                 if line):
        path = path.split(",")[0]
        key = path.split(".")
        if key[0] in ("dispatcher", "routing"):
            continue
        value = {key[-1]: ["no type that a path has"]}
        for part in reversed(key[:-1]):
            value = {part: value}
        found = " ".join(errors(scenario, value))
        if "unexpected" in found:
            fail("scenario.schema.json does not know %s" % path)
    # Written values are read back.
    run(folder, ["trace", "synthesize", "--out", "routed", "--routing", "zipf:1.2"])
    dispatching = {"ep": 2, "experts": 4, "per_rank_results": {"0": {"num_local_tokens_per_expert": [3, 1, 2, 2]},
                                                              "1": {"num_local_tokens_per_expert": [4, 1, 3, 0]}}}
    has_to_match("dispatching", dispatching, "a dispatching file")
    (folder / "routing.json").write_text(json.dumps(dispatching))
    (folder / "s.json").write_text(json.dumps({"model": {"hidden": 64, "experts": 4, "topk": 2, "expert_ffn": 64},
                                               "parallel": {"ep": 2}, "routing": "routing.json"}))
    taken = run(folder, ["compare", "s.json", "--dispatcher", "alltoall", "--draws", "0"])
    if taken.returncode != 0:
        fail("moesim refuses a dispatching file: " + taken.stderr)
    dispatching["per_rank_results"]["0"]["rows"] = 3
    if not errors(validator("dispatching"), dispatching):
        fail("dispatching.schema.json takes unknown keys")
    fabric = {"preset": "fat-tree", "nodes": 4, "oversubscription": 2, "node": {"gpus": 8, "nic_bandwidth": "50GBps"}}
    has_to_match("fabric", fabric, "a fabric")
    has_to_match("fabric", {"nodes": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}],
                            "links": [{"from": "a", "to": "b", "bandwidth": 1e9}]}, "an own fabric")
    for name in ("cluster", "model", "measurements"):
        validator(name)
    has_to_match("cluster", {"base": "dgx-h100x4", "nic": {"bandwidth": "100GBps"}, "fabric": fabric}, "a cluster")
    if (PUBLISHED / "gemm_dense.csv").exists():
        run(folder, ["calibrate", "import", "csv", str(PUBLISHED / "gemm_dense.csv"), "--out", "gemms.json"])
        has_to_match("measurements", json.loads((folder / "gemms.json").read_text()), "a measurement file")


with tempfile.TemporaryDirectory() as temporary:
    here = pathlib.Path(temporary)
    check_results(here)
    check_sweeps(here)
    check_serve(here)
    check_files(here)
shutil.rmtree(SCHEMAS)
sys.exit(1 if FAILURES else 0)

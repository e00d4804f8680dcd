"""moesim-layer-host writes what others read: moesim's reader, the recorder's own, and the routing beside the recording."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, MOESIM, LAYER = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:4])
SMALL = ["--tokens", "32", "--hidden", "32", "--ffn", "16", "--experts", "8", "--topk", "2", "--iterations", "2", "--warmup", "0"]


def check(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def run(words, code=0, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    check(done.returncode == code, "%s ended with %d: %s" % (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done


def check_recording(folder, ep):
    recording = next(pathlib.Path(folder).glob("pp1_tp1_exp%d_*" % ep))
    check("no problems" in run([MOESIM, "trace", "check", str(recording / "scaling")]).stdout, "trace check finds problems")
    environment = dict(os.environ, PYTHONPATH=SOURCE + "/tools/capture")
    run([sys.executable, "-m", "moesim_capture", "check", str(recording / "scaling")], env=environment)
    info = json.loads(run([MOESIM, "trace", "info", str(recording / "scaling"), "--format", "json"]).stdout)
    check("scaling" in json.dumps(info), "no scaling recording: %s" % info)
    routing = json.loads((recording / "dispatching.json").read_text())
    matrix = routing["num_global_tokens_per_expert"]
    for rank, choices in routing["topk_indices"].items():
        counts = [sum(row.count(e) for row in choices) for e in range(8)]
        check(len(choices) == 32 and counts == matrix[int(rank)] ==
              routing["per_rank_results"][rank]["num_local_tokens_per_expert"], "counts are not those of the choices")
    layer = json.loads((recording / "layer.json").read_text())
    check(len(layer["ranks"]) == ep and layer["checked"], "ranks or findings are missing")
    for rank in layer["ranks"]:
        # Rows that a rank receives: in the routing, in what was measured, and in the shape of its combine.
        local = range(rank["rank"] * 8 // ep, (rank["rank"] + 1) * 8 // ep)
        rows = sum(sent[e] for sent in matrix for e in local)
        check(rank["rows"] == rows, "%s rows, the routing has %d" % (rank["rows"], rows))
        text = next((recording / "scaling").glob("*rank%d_*" % rank["rank"])).read_text()
        check("# device: cpu, " in text and "# a step without marks took" in text, "the header does not say what it was")
        shapes = re.findall(r"input__shape=\[(\d+), 32\]", text)
        check(shapes == ([] if ep == 1 else ["64", str(rows), "64", str(rows)]), "exchanges of %s" % shapes)
    check(not (recording / "constants.json").exists(), "constants of no profile")
    # Whatever GPU made it, it can be replayed there.
    for gpu in ("cuda, NVIDIA H200", "cuda, NVIDIA A100-SXM4-80GB", "cuda, NVIDIA Unheard 9000"):
        for file in (recording / "scaling").iterdir():
            file.write_text(re.sub("^# device: .*$", "# device: " + gpu, file.read_text(), flags=re.MULTILINE))
        run([MOESIM, "trace", "check", str(recording / "scaling")])


def main():
    with tempfile.TemporaryDirectory() as folder:
        for element, ep in (("fp32", 1), ("fp32", 4), ("bf16", 2)):
            run([LAYER, "--out", folder, "--ep", str(ep), "--element", element, *SMALL])
            check_recording(folder, ep)
        for words, expected in ((["--out", folder, "--ep", "3"], "found --experts 8, expected a multiple of --ep 3"),
                                (["--out", folder, "--topk", "9"], "found --topk 9, expected"),
                                (["--out", folder, "--hidden", "12"], "found --hidden 12, expected a multiple of 8"),
                                (["--out", folder, "--tokens", "many"], "found --tokens many, expected a number"),
                                (["--out", folder, "--tokens"], "found --tokens without a value"),
                                (["--out", folder, "--element", "fp8"], "found --element fp8, expected bf16 or fp32"),
                                (["--out", folder, "--skew", "-1"], "expected 0 to 10"),
                                (["--out", folder, "--speed", "1"], "found --speed, expected an option of --help"),
                                (["--out", folder, "--ep", "2"], "found a recording, expected a new folder"), ([], "found no --out")):
            # The words come last, so that they win; an option without a value has to be the very last.
            done = run([LAYER, *SMALL, *words], 2)
            check(expected in done.stderr and done.stderr.count("\n") == 1, "%s: %s" % (words, done.stderr))
        blocked = pathlib.Path(folder) / "file"
        blocked.write_text("")
        check("expected a folder that can be made" in run([LAYER, *SMALL, "--ep", "1", "--out", str(blocked)], 1).stderr,
              "a file in the place of a folder")
        check("--experts N" in run([LAYER, "--help"]).stdout, "no help")
    print("layer_program: ok")


main()

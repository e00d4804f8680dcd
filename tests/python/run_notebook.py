"""Runs the code cells of a notebook in order, as Jupyter does, and compares what they print with the outputs that it holds.
Cells with the tag "pandas" run where pandas is installed; their output is not kept.

python3 run_notebook.py BUILD/python NOTEBOOK            compares; with nbclient and ipykernel, a kernel runs it besides
python3 run_notebook.py BUILD/python NOTEBOOK --write    puts what is printed into the notebook
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys


def printed(source, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "cell", "exec"), names)
    return out.getvalue()


def in_a_kernel(path):
    import nbclient
    import nbformat

    nbclient.NotebookClient(nbformat.read(path, 4), timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()


def installed(*modules):
    return all(importlib.util.find_spec(name) for name in modules)


def main(package, path, *flags):
    path = pathlib.Path(path).resolve()
    sys.path.insert(0, os.path.abspath(package))
    text = path.read_text()
    notebook = json.loads(text)
    os.chdir(path.parent)
    names, ran, failed = {"__name__": "__main__"}, 0, 0
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        pandas = "pandas" in cell["metadata"].get("tags", [])
        if pandas and not installed("pandas"):
            print(f"cell {number}: SKIPPED: no pandas")
            continue
        out = printed("".join(cell["source"]), names)
        ran += 1
        held = "".join(line for one in cell["outputs"] for line in one.get("text", []))
        if not pandas and out != held:
            failed += 1
            print(f"cell {number} prints\n{out}and the notebook holds\n{held}")
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": out.splitlines(True)}]
    if "--write" in flags:
        fresh = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        if fresh != text:
            path.write_text(fresh)
        return 0
    if installed("nbclient", "nbformat", "ipykernel"):
        os.environ["PYTHONPATH"] = os.pathsep.join([os.path.abspath(sys.path[0]), os.environ.get("PYTHONPATH", "")])
        in_a_kernel(path)
        print("a kernel ran it, too")
    else:
        print("SKIPPED: no nbclient and ipykernel to run it in a kernel")
    print(f"{ran} cells, {failed} failed")
    return 1 if failed or ran < 5 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

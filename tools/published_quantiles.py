#!/usr/bin/env python3
"""Writes calibration/rows/published_quantiles.json: published rows of communication as quantiles of their speed.

  tools/published_quantiles.py MOESIM DATA > calibration/rows/published_quantiles.json

DATA holds the tables (../shared/data). MOESIM reads them, tells which rows are of one kind (GPU, network, operation, class
of sizes; GPU and model of steps), forecasts each and leaves out rows that the data set suspects. The rows themselves are not shipped."""
import collections
import csv
import io
import json
import pathlib
import subprocess
import sys

LEAST = 4  # rows of a cell
SHARES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)


def quantile(values, share):
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def main(moesim, folder):
    cells = collections.defaultdict(lambda: ([], set()))
    folder = pathlib.Path(folder)
    tables = sorted(path for kind in ("collectives", "ep_dispatch_combine") for path in folder.glob(f"published/{kind}_*.csv"))
    steps = [folder / "published/moe_training_e2e.csv", folder / "published/moe_training_e2e_2.csv",
             folder / "decisions/training_decisions.csv", folder / "decisions/training_decisions_3.csv", folder / "decisions/steps_4.csv"]
    for table in tables:
        done = subprocess.run([moesim, "calibrate", "check", "--all", "--against", table, "--rows", "--format", "csv", "--quiet"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(f"left out: {done.stderr.strip()}", file=sys.stderr)
            continue
        for row in csv.DictReader(io.StringIO(done.stdout)):
            if row["cell"]:
                values, sources = cells[row["cell"]]
                values.append(float(row["forecast_us"]) / float(row["measured_us"]))
                sources.add(row["source"])
    seen = set()
    done = subprocess.run([moesim, "validate", "--training", *steps, "--draws", "0", "--format", "json", "--quiet"],
                          capture_output=True, text=True)
    for row in json.loads(done.stdout)["rows"]:
        speed = row["forecast_us"] / row["measured_us"]
        if (row["cell"], row["gpus"], row["plan"], speed) in seen:  # a row of two tables
            continue
        seen.add((row["cell"], row["gpus"], row["plan"], speed))
        for cell in (row["cell"], "step, any, " + row["cell"].split(", ", 2)[2]):
            values, sources = cells[cell]
            values.append(speed)
            sources.add(row["source"].split(" ")[0])
    cells = {cell: rows for cell, rows in cells.items() if len(rows[0]) >= LEAST}
    names = sorted({source for _, sources in cells.values() for source in sources})
    lines = []
    for cell, (values, sources) in sorted(cells.items()):
        values.sort()
        quantiles = [float(f"{quantile(values, share):.4g}") for share in SHARES]
        lines.append("  " + json.dumps([cell, len(values), quantiles, sorted(map(names.index, sources))]))
    about = ("Published rows of communication and steps (" + ", ".join(table.name for table in tables + steps) + "), by tools/published_quantiles.py. "
             "Cells: [GPU, network, operation, element type, class of sizes], rows, speed against the forecast of each row (of its size and "
             "ranks) of the slowest, of 5, 25, 50, 75, 95 %, of the fastest, sources.")
    print("{\n " + f'"about": {json.dumps(about)},\n "sources": {json.dumps(names)},\n "cells": [\n' + ",\n".join(lines) + "\n ]\n}")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env bash
# `pip install` of the clone into an empty environment, from what its build folder holds, answers.
#   wheel_test.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python=$(sed -n 's/^Python3_EXECUTABLE:[A-Z]*=//p; s/^_Python3_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt" | head -1)
"${python:-python3}" -c 'import ensurepip' 2>/dev/null || { echo "SKIPPED: no ensurepip for ${python:-python3} (Debian: python3-venv)"; exit 77; }
"${python:-python3}" -m venv "$out/venv"
pip=("$out/venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --quiet --no-index --config-settings "build-dir=$build" "$source"
cd "$out"
"$out/venv/bin/python" - <<'PYTHON'
import moesim
assert "venv" in moesim.__file__, moesim.__file__
a = moesim.compare(model="mixtral-8x7b", cluster="dgx-h100x4", ep=8, draws=0)
print(moesim.__version__, a.answer)
PYTHON
# Another Python's package, and a folder without one, are refused by name.
mkdir "$out/empty" && : >"$out/empty/CMakeCache.txt"
! "${pip[@]}" install --no-index --force-reinstall --config-settings "build-dir=$out/empty" "$source" >"$out/refused" 2>&1
grep -q "$out/empty" "$out/refused" || { cat "$out/refused"; exit 1; }

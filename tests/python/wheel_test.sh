#!/usr/bin/env bash
# The wheel of tools/python/build_wheel.sh, unpacked into an empty folder, answers.   wheel_test.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
"$source/tools/python/build_wheel.sh" --build "$build" "$out/wheels" || status=$?
((status == 77)) && exit 77
((status == 0)) || exit 1
wheel=("$out"/wheels/moesim-*.whl)
[[ -f ${wheel[0]} ]]
python=$(sed -n 's/^Python3_EXECUTABLE:[A-Z]*=//p; s/^_Python3_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt" | head -1)
"${python:-python3}" -c 'import ensurepip' 2>/dev/null || { echo "SKIPPED: no ensurepip for ${python:-python3} (Debian: python3-venv)"; exit 77; }
"${python:-python3}" -m venv "$out/venv"
"$out/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "${wheel[0]}"
cd "$out"
"$out/venv/bin/python" - <<'PYTHON'
import moesim
assert "venv" in moesim.__file__, moesim.__file__
a = moesim.compare(model="mixtral-8x7b", cluster="dgx-h100x4", ep=8, draws=0)
print(moesim.__version__, a.answer)
PYTHON

#!/usr/bin/env bash
# Builds the wheel of moesim-capture for any Python from 3.8 on; needs pip, setuptools and wheel, and no network.
#
#   tools/capture/wheel.sh [FOLDER]      writes FOLDER/moesim_capture-*.whl (default: build/wheels)
#   pip install FOLDER/moesim_capture-*.whl
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/wheels}
mkdir -p "$out"
for python in "${MOESIM_PYTHON:-}" python3 /usr/bin/python3; do
  [[ -n $python ]] && command -v "$python" >/dev/null || continue
  "$python" -c 'import setuptools, wheel, pip' 2>/dev/null || continue
  # In a copy: setuptools leaves build/ and *.egg-info beside what it builds.
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  cp -r "$here/pyproject.toml" "$here/moesim_capture" "$copy"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --wheel-dir "$out" "$copy"
  ls "$out"/moesim_capture-*.whl
  exit 0
done
echo "SKIPPED: no Python of this machine has pip, setuptools and wheel; Debian: apt-get install python3-pip python3-setuptools python3-wheel" >&2
exit 77

#!/usr/bin/env bash
# Usage: tools/test.sh [REGEX]
# Installs what is missing (apt, as root or with sudo), builds everything and runs every test, or only those whose names
# match the regular expression: tools/test.sh '^replay\.'
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/arguments.sh
at_most_arguments 1 "$@"

tools/setup.sh -DMOESIM_BUILD_TESTS=ON
printf '== building\n'
cmake --build build
# The recorder's tests use torch: this machine's, or on CI one that pip installs within five minutes. Without it they are
# skipped, and say so.
find_torch() {
  local python
  for python in "${MOESIM_PYTHON:-}" "$PWD/build/torch/bin/python" python3 /usr/bin/python3; do
    if [[ -n $python ]] && "$python" -c 'import sys, torch; print("torch", torch.__version__, "of", sys.executable)' 2>/dev/null
    then
      MOESIM_PYTHON=$(command -v "$python")
      export MOESIM_PYTHON
      return
    fi
  done
  return 1
}
printf '== torch\n'
if ! find_torch && [[ -n ${CI:-} ]]; then
  { python3 -m venv build/torch && timeout 300 build/torch/bin/pip install torch==2.13.0 numpy; } >/dev/null 2>&1 || true
  find_torch || echo "none could be installed: the recorder's tests that need it are skipped"
fi
printf '== testing\n'
ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" ${1:+-R "$1"}

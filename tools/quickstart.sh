#!/usr/bin/env bash
# Usage: tools/quickstart.sh
# From a clone to a first answer: installs what is missing (apt, as root or with sudo), builds build/moesim, replays a
# recording and compares two dispatchers.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/arguments.sh
at_most_arguments 0 "$@"

say() { printf '\n== %s\n' "$*"; }

tools/setup.sh -DMOESIM_BUILD_TESTS=OFF
say "building build/moesim"
cmake --build build --target moesim
# Where Python and pybind11 are, `import moesim`, too.
if cmake --build build --target help | grep -q '^moesim_python[: ]'; then
  say "building build/python"
  cmake --build build --target moesim_python moesim_python_files
fi

run() {
  say "$*"
  "$@"
}
run build/moesim trace info traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling
run build/moesim replay traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling --cluster echo-h800x2 --microbatches 8
run build/moesim compare --model mixtral-8x7b --cluster dgx-h200x4 --ep 8 --dispatcher allgather,alltoall --routing zipf:1.2
if [[ -d ../shared/data/echo ]]; then
  run build/moesim validate --all ../shared/data/echo --only expn --cluster echo-h800x2
fi

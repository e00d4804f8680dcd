#!/usr/bin/env bash
# From a training run to a recording to a forecast and back, on this machine: a real run of gloo processes is
# recorded, the same job is recorded in scaling mode by one process, this host is calibrated, and `moesim validate`
# compares. Prints the errors and what they are made of, and exits 1 beyond their limits; docs/replay.md explains them.
#
#   tools/capture/selftest.sh [--quick] [--out FOLDER] [--samples]
#
# Needs a built moesim (tools/quickstart.sh) and a Python with torch. Debian's is 600 MB with what it needs, and slow
# without a fast BLAS:
#   apt-get install --no-install-recommends python3-torch libopenblas0-pthread
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

for python in "${MOESIM_PYTHON:-}" python3 /usr/bin/python3; do
  [[ -n $python ]] && command -v "$python" >/dev/null || continue
  if "$python" -c 'import torch' 2>/dev/null; then
    # The BLAS under torch reads these once; one core per process, as in the real run.
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
    PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "$python" "$here/selftest.py" "$@"
  fi
done
echo "SKIPPED: no Python of this machine has torch; Debian: apt-get install --no-install-recommends python3-torch libopenblas0-pthread" >&2
exit 77

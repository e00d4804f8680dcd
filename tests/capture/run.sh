#!/bin/sh
# run.sh TEST [torch]: runs the tests of one file; with "torch" on a Python that has torch, or exits 77 (skipped).
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../../tools/capture:$here" PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
for python in "$MOESIM_PYTHON" python3 /usr/bin/python3; do
  [ -n "$python" ] && command -v "$python" >/dev/null || continue
  if [ "$2" != torch ] || "$python" -c 'import torch' 2>/dev/null; then
    exec "$python" -m unittest -v "$1"
  fi
done
echo "SKIPPED: $1 needs ${2:-python3}, which no Python of this machine has (Debian: apt-get install python3-torch)"
exit 77

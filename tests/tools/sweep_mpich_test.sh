#!/usr/bin/env bash
# Sweeps under MPICH: sweep_mpich_test.sh SOURCE_DIR MOESIM SCRATCH. Builds moesim's MPI library with mpicxx.mpich beside
# a copy of the program; skipped (77) without MPICH.
set -euo pipefail
source=$1 moesim=$2 scratch=$3
for needed in mpicxx.mpich mpiexec.mpich; do
  command -v $needed >/dev/null || { echo "SKIPPED: no $needed (Debian: libmpich-dev, mpich)"; exit 77; }
done
rm -rf "$scratch" && mkdir -p "$scratch" && cd "$scratch"
cp "$moesim" moesim
mpicxx.mpich -std=c++20 -O1 -Wall -Wextra -Werror -shared -fPIC -DMPICH_SKIP_MPICXX -I"$source" \
  "$source/tools/moesim/mpi/sweep_mpi_transport.cc" -o libmoesim_mpi.so
[[ $(ldd libmoesim_mpi.so) == *libmpich* ]] || { echo "FAILED: not linked with MPICH"; exit 1; }
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} TSAN_OPTIONS=${TSAN_OPTIONS:-detect_deadlocks=0}

fail() { echo "FAILED: $*"; cat err 2>/dev/null || true; exit 1; }
sweep=(./moesim sweep "$source/docs/examples/scenario.json" --grid topk=1..8 --grid routing.gini=0..0.6:0.05)
"${sweep[@]}" --out threads.csv >out 2>err || fail "threads"
for ranks in 2 3 16; do
  timeout 120 mpiexec.mpich -n $ranks "${sweep[@]}" --out r.csv --overwrite >out 2>err || fail "$ranks ranks"
  cmp threads.csv r.csv || fail "other bytes on $ranks ranks"
  ! grep -q WARN err || fail "$ranks ranks: MPICH complains"
  rm r.csv
done
echo "2, 3 and 16 ranks: the same bytes"

# Bad input ends all ranks and writes nothing.
if timeout 120 mpiexec.mpich -n 2 "${sweep[@]}" --grid paralel.ep=8 --out r.csv >out 2>err; then fail "bad input"; fi
grep -q "did you mean 'parallel.ep'?" err || fail "bad input: another message"
[[ ! -e r.csv && ! -e r.csv.partial ]] || fail "bad input: something was written"

# A rank is killed: Hydra ends the others, and --resume goes on.
long=("${sweep[@]}" --grid seed=1..30)
"${long[@]}" --out threads.csv --overwrite >out 2>err || fail "threads"
timeout 120 mpiexec.mpich -n 3 "${long[@]}" --out r.csv >out 2>err &
job=$!
for ((i = 0; i < 6000; ++i)); do
  (($(stat -c %s r.csv.partial 2>/dev/null || echo 0) > 20000)) && break
  sleep 0.01
done
for environ in /proc/[0-9]*/environ; do
  if grep -qzx PMI_RANK=2 "$environ" 2>/dev/null &&
     [[ $(readlink "${environ%/environ}/exe" 2>/dev/null) == "$PWD/moesim" ]]; then
    kill -KILL "$(basename "${environ%/environ}")"
  fi
done
if wait $job; then echo "no rank was killed in time"; else
  [[ ! -e r.csv && -e r.csv.partial ]] || fail "a killed rank: no rows are left"
  timeout 120 mpiexec.mpich -n 2 "${long[@]}" --out r.csv --resume >out 2>err || fail "resumed"
  cmp threads.csv r.csv || fail "other bytes after --resume"
  echo "a killed rank: the rest with --resume, the same bytes"
fi

# The launcher of another MPI.
if command -v mpirun.openmpi >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  if timeout 120 mpirun.openmpi --oversubscribe -n 2 "${sweep[@]}" --out o.csv >out 2>err; then fail "OpenMPI's mpirun"; fi
  grep -q "found one process in MPI where the launcher started 2" err || fail "OpenMPI's mpirun: another message"
  [[ ! -e o.csv ]] || fail "OpenMPI's mpirun: something was written"
fi

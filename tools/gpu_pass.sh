#!/bin/sh
# Everything that one bare GPU machine can tell moesim, in steps of under eight minutes that can be resumed.
#   tools/gpu_pass.sh [--out FOLDER] [--base PROFILE] [--bench PROGRAM] [--moesim PROGRAM] [--scale S]
#                     [--packed FILE] [--only STEP]
#   tools/gpu_pass.sh --pack FILE.tar.gz [--moesim PROGRAM]
# The second form runs where moesim was built: FILE takes moesim, the libraries it needs and Google Benchmark to a machine
# that has none of them (the same processor, a C library at least as new). The same command goes on where it stopped: a step that is done has a file in FOLDER/done. Nothing is locked or reset.
#   state     the machine: clocks, power, temperature, driver, toolkit, commit
#   build     the bench, where --bench names none and none is in build/bench
#   list      what the bench would measure, and about how long
#   costs     what profiles guess: launches, memory-bound kernels, products beside copies and beside kernels (4 min)
#   collectives  those of all GPUs of the node, one process each (4 min; said and skipped where there is one GPU)
#   ep_kernels  DeepEP's and HybridEP's dispatch and combine, where they are installed (7 min; said and skipped where not)
#   products  products of experts and dense ones, but for the shape that is left out (7 min)
#   sustained the same on a hot GPU (5 min)
#   capture   a small training step recorded by moesim_capture and replayed (2 min; said and skipped where no PyTorch has CUDA)
#   fit       a profile of its own, and the base refined with the rows
#   predict   what the refined profile says of the shape that is left out, before it is measured
#   held      that shape measured (3 min)
#   check     the refined profile and its base on those rows
#   report    all of it in one page, FOLDER/report.md
# Needs on the machine: the CUDA toolkit with NCCL and CMake for `build`; Google Benchmark and a moesim that runs there, or
# --packed. --scale multiplies every time limit (tests use a small one).
set -eu
out=gpu-pass base='' bench='' moesim='' pack='' packed='' scale=1 only='' root=$(dirname "$0")/..
while [ $# -gt 0 ]; do
  case $1 in
    --out | --base | --bench | --moesim | --pack | --packed | --scale | --only) name=${1#--} ;;
    *)
      echo "gpu_pass.sh: found '$1', expected --out, --base, --bench, --moesim, --pack, --packed, --scale or --only" >&2
      exit 2
      ;;
  esac
  [ $# -ge 2 ] || { echo "gpu_pass.sh: found $1 without a value, expected one" >&2; exit 2; }
  eval "$name=\$2"
  shift 2
done
steps="state build list costs collectives ep_kernels products sustained capture fit predict held check report"
case " $steps " in *" ${only:-state} "*) ;; *)
  echo "gpu_pass.sh: found --only '$only', expected one of: $steps" >&2
  exit 2
  ;;
esac
# The files packed with this script, unpacked once.
if [ -n "$packed" ]; then
  [ -f "$packed" ] || { echo "gpu_pass.sh: found no file $packed, expected what --pack wrote" >&2; exit 2; }
  here=build/packed
  [ -x "$here/moesim" ] || { mkdir -p "$here" && tar -xzf "$packed" -C "$here"; }
  [ -n "$moesim" ] || moesim=$here/moesim
fi
[ -n "$moesim" ] || moesim=build/moesim
[ -x "$moesim" ] || { echo "gpu_pass.sh: found no program $moesim, expected moesim (--moesim)" >&2; exit 2; }

# Packs the files of the pass that a machine with a GPU may lack. The C library and the loader stay that machine's own.
make_pack() { # FOLDER TRIPLET
  mkdir -p "$1/lib" "$1/usr/include" "$1/usr/lib/$2/cmake"
  cp "$moesim" "$1/program"
  strip "$1/program" 2>/dev/null || true
  ldd "$moesim" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libpthread|libdl|librt)\.so/ { print $3 }' | xargs -I{} cp -L {} "$1/lib/"
  cp -r /usr/include/benchmark "$1/usr/include/"
  cp -P "/usr/lib/$2"/libbenchmark* "$1/usr/lib/$2/"
  cp -r "/usr/lib/$2/cmake/benchmark" "$1/usr/lib/$2/cmake/"
  # shellcheck disable=SC2016  # for the other machine
  printf '#!/bin/sh\nhere=$(dirname "$0")\nLD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/program" "$@"\n' >"$1/moesim"
  chmod +x "$1/moesim"
}
if [ -n "$pack" ]; then
  [ -d /usr/include/benchmark ] || { echo "gpu_pass.sh: found no Google Benchmark here, expected libbenchmark-dev" >&2; exit 2; }
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  make_pack "$folder" "$(uname -m)-linux-gnu"
  tar -czf "$pack" -C "$folder" .
  echo "gpu_pass.sh: $pack, $(du -sm "$pack" | cut -f1) MB; there: tools/gpu_pass.sh --packed $pack"
  exit
fi
mkdir -p "$out/done" "$out/raw" "$out/held"
held_shape='^gemm/.*/n:7168/k:2048/.*clocks:burst'
minutes() { awk "BEGIN { print $1 * $scale }"; }
limit() { awk "BEGIN { print int(480 * ($scale > 1 ? $scale : 1)) }"; }

# The profile of this GPU, as moesim knows its driver's name.
nearest() {
  [ -z "$base" ] || { echo "$base"; return; }
  found=$("$moesim" list profiles --gpu "$(cat "$out/gpu.txt" 2>/dev/null)" --format csv) || {
    echo "gpu_pass.sh: expected --base with the profile nearest to this GPU" >&2
    return 1
  }
  echo "$found" | awk -F, 'NR == 2 { print $2 }'
}

state() { # FILE
  {
    date -u +%Y-%m-%dT%H:%M:%SZ
    nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC 2>/dev/null || echo "nvidia-smi: not there"
  } >"$out/$1"
}

step_state() {
  state state_before.txt
  { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | head -1 >"$out/gpu.txt"
  {
    nvidia-smi --query-gpu=name,driver_version,vbios_version,memory.total,power.limit --format=csv 2>/dev/null || echo "no nvidia-smi"
    nvcc --version 2>/dev/null | tail -2 || true
    uname -a
    git -C "$root" rev-parse HEAD 2>/dev/null || echo "no git"
  } >"$out/machine.txt"
}

step_build() {
  if [ -n "$bench" ]; then
    [ -x "$bench" ] || { echo "gpu_pass.sh: found no program $bench, expected one of the bench" >&2; return 1; }
  else
    cmake -S "$root/calibration/bench" -B build/bench -DCMAKE_CUDA_ARCHITECTURES=native \
      ${packed:+-DCMAKE_PREFIX_PATH="$PWD/build/packed/usr"} >"$out/build.log" 2>&1
    cmake --build build/bench -j "$(nproc)" --target moesim-bench-cuda >>"$out/build.log" 2>&1
  fi
}

program() { echo "${bench:-build/bench/bench/moesim-bench-cuda}"; }

step_list() { "$(program)" --dry-run >"$out/list.txt"; }

# measure FOLDER FILTER MINUTES
measure() {
  "$moesim" calibrate measure --program "$(program)" --out "$out/$1" --filter "$2" --minutes "$(minutes "$3")" \
    >"$out/$1/measure.log"
}

step_costs() { measure raw '^(latency/|overlap/(product|copies)|kernel/)' 4; }
step_collectives() { measure raw '^(all_gather|reduce_scatter|all_reduce|all_to_all|send_recv|overlap/uneven)' 4; }
# Kernels in runs of their own: NVSHMEM starts once in a process, and ends it where the network is not as it wants.
step_ep_kernels() {
  driver=$root/calibration/bench/ep_kernels.py said=$out/ep_kernels.txt
  gpus=$(python3 -c 'import torch, deep_ep; print(torch.cuda.device_count())' 2>/dev/null) || gpus=0
  if [ "$gpus" -lt 2 ]; then
    python3 "$driver" >"$said" 2>&1 || echo "ep_kernels: skipped, no Python here" >>"$said"
    return
  fi
  : >"$said"
  for kernels in normal hybrid low-latency; do
    table=$out/raw/ep_$kernels.csv
    rm -f "$table"
    timeout "$(awk "BEGIN { print 140 * $scale }")" python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$driver" --kernels "$kernels" \
      --out "$table" >>"$said" 2>&1 || echo "ep_kernels: $kernels failed or took too long, its table ends early" >>"$said"
    # A header alone is no row.
    if [ -f "$table" ] && [ "$(wc -l <"$table")" -gt 1 ]; then
      "$moesim" calibrate import csv "$table" --out "$out/raw/ep_$kernels.measurements.json" >>"$said" 2>&1
    fi
  done
}
step_products() {
  # Most informative first: the products of experts, then dense ones of every shape but the one that is left out.
  measure raw '^grouped_gemm/.*/skew:none' 4
  measure raw '^gemm/(?!.*/n:7168/k:2048/).*clocks:burst' 3
}
step_sustained() { measure raw '^gemm/(?!.*/n:7168/k:2048/).*clocks:sustained' 5; }

rows() { ls "$out/$1"/*.measurements.json; }

say() { echo "$*" >>"$out/capture.txt"; }
off() { awk "BEGIN { printf \"%+.1f %%\", 100 * ($1 / $2 - 1) }"; }  # of the first number from the second

# replayed RECORDING PROFILE NAME: computing of the busiest rank and the iteration, in us.
replayed() {
  echo "{\"profile\": \"$2\", \"nodes\": 1, \"gpus_per_node\": 8}" >"$out/capture/$3.cluster.json"
  "$moesim" replay "$1" --cluster "$out/capture/$3.cluster.json" --microbatches 1 --format json -q >"$out/capture/$3.json" &&
    awk '/"iteration_us"/ { here = 1 } here && /"value"/ { gsub(/[^0-9.e+-]/, "", $2); iteration = $2; here = 0 }
         /"busy_us"/ { gsub(/[^0-9.e+-]/, "", $2); if ($2 > busy) busy = $2 }
         END { printf "%.1f %.1f\n", busy, iteration }' "$out/capture/$3.json"
}

# compare RECORDING CONSTANTS STEP_US: moesim's forecast from a recording, against the step without the recorder.
compare() {
  "$moesim" trace check "$1" >>"$out/capture.log" 2>&1 || { say "moesim trace check refuses the recording, see capture.log"; return 1; }
  say "a step took $3 us without marks between its operations"
  # shellcheck disable=SC2046  # one file for each number of ranks, without blanks
  if "$moesim" calibrate fit $(rows raw) --complete --quick --constants "$2" --out "$out/capture/own.profile.json" -q >>"$out/capture.log" 2>&1; then
    own=$(replayed "$1" "$out/capture/own.profile.json" own 2>>"$out/capture.log") || return 1
    say "  moesim replay with the constants of this recording: computing ${own% *} us ($(off "${own% *}" "$3")), iteration ${own#* } us ($(off "${own#* }" "$3"))"
  else
    say "  no rows yet for a profile with the constants of this recording, see capture.log"
  fi
  name=$(nearest) || return 1
  base_says=$(replayed "$1" "$name" base 2>>"$out/capture.log") || return 1
  say "  with those of $name, read off other hosts: computing ${base_says% *} us ($(off "${base_says% *}" "$3")), iteration ${base_says#* } us ($(off "${base_says#* }" "$3"))"
}

# One rank has no peers, so that a replay contains only recorded work.
capture() {
  say "capture: a small model of two layers by moesim_capture, $(python3 -c 'import torch; print("torch", torch.__version__)')"
  PYTHONPATH="$root/tools/capture${PYTHONPATH:+:$PYTHONPATH}" && export PYTHONPATH
  timeout 180 python3 -m moesim_capture run --mode scaling --out "$out/capture/torch" --device cuda --dtype bfloat16 --world 1 --ep 1 \
    --grouped --hidden 2048 --ffn 768 --heads 16 --layers 2 --vocab 32768 --seq 4096 --experts 64 --topk 4 --warmup 5 --passes 10 \
    >>"$out/capture.log" 2>&1 || return 1
  recording=$(echo "$out"/capture/torch/pp*)
  python3 -m moesim_capture constants "$recording/scaling" --profile "$(nearest)" --out "$recording/constants.json" \
    >>"$out/capture.log" 2>&1 || return 1
  step=$(python3 -c 'import json, statistics, sys; print(1e3 * statistics.median(json.load(open(sys.argv[1]))["plain_ms"]))' \
    "$recording/run_scaling.json") || return 1
  compare "$recording/scaling" "$recording/constants.json" "$step"
}

step_capture() {
  # Nothing is kept of a capture that was stopped: two in one folder would be read as one recording.
  rm -rf "$out/capture" "$out/capture.txt" "$out/capture.log"
  mkdir -p "$out/capture"
  : >"$out/capture.log"
  if python3 -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)' 2>/dev/null; then
    capture || say "capture: failed, see capture.log"
  else
    say "capture: skipped, no PyTorch with CUDA here"
  fi
}

step_fit() {
  name=$(nearest)
  # shellcheck disable=SC2046  # one file for each number of ranks, without blanks
  "$moesim" calibrate fit $(rows raw) --quick --out "$out/fitted.json" --provenance "$(date -u +%F), $(cat "$out/gpu.txt")" -q >"$out/fit.log" 2>&1 ||
    echo "fit: too few rows for a profile of its own, see fit.log" >"$out/fit.txt"
  # shellcheck disable=SC2046
  "$moesim" calibrate refine "$name" --with $(rows raw) --out "$out/mine.json" \
    --provenance "$(date -u +%F), $(cat "$out/gpu.txt")" >"$out/refine.txt"
}

step_predict() {
  [ -f "$out/held/measure.log" ] && { echo "gpu_pass.sh: the left-out shape was measured before its prediction" >&2; return 1; }
  "$moesim" calibrate measure --program "$(program)" --dry-run --forecast "$out/mine.json" --filter "$held_shape" \
    >"$out/prediction.csv"
  date -u +%Y-%m-%dT%H:%M:%SZ >"$out/prediction_made.txt"
}

step_held() { measure held "$held_shape" 3; }

step_check() {
  name=$(nearest)
  # shellcheck disable=SC2046
  "$moesim" calibrate check "$out/mine.json" --against $(rows held) --rows >"$out/check_mine.txt"
  # shellcheck disable=SC2046
  "$moesim" calibrate check "$name" --against $(rows held) >"$out/check_base.txt"
  state state_after.txt
}

# shellcheck disable=SC2016  # fences of Markdown
step_report() {
  {
    echo "# GPU pass of $(cat "$out/gpu.txt"), $(head -1 "$out/state_before.txt")"
    for part in machine:Machine ep_kernels:"Dispatch and combine" capture:Capture refine:"What moved" ; do
      printf '\n## %s\n\n```\n' "${part#*:}"
      cat "$out/${part%%:*}.txt"
      echo '```'
    done
    printf '\n## A prediction made before its measurement (%s)\n\n```\n' "$(cat "$out/prediction_made.txt")"
    cat "$out/check_mine.txt"
    printf '```\n\nThe same rows by the base:\n\n```\n'
    cat "$out/check_base.txt"
    printf '```\n\n## While measuring\n\n```\n'
    cat "$out/raw/measure.log" "$out/held/measure.log"
    echo '```'
  } >"$out/report.md"
}

if [ "${GPU_PASS_STEP:-}" ]; then
  "step_$GPU_PASS_STEP"
  exit
fi
for step in $steps; do
  [ -z "$only" ] || [ "$only" = "$step" ] || continue
  [ ! -f "$out/done/$step" ] || continue
  echo "gpu_pass.sh: $step" >&2
  begun=$(date +%s)
  # A step in a process of its own, so that it has a limit.
  if GPU_PASS_STEP=$step timeout "$(limit)" sh "$0" --out "$out" --moesim "$moesim" --scale "$scale" \
    ${base:+--base "$base"} ${bench:+--bench "$bench"} ${packed:+--packed "$packed"}; then
    echo "$(($(date +%s) - begun)) s" >"$out/done/$step"
  else
    echo "gpu_pass.sh: the step '$step' failed or took too long; the same command goes on from it" >&2
    exit 1
  fi
done
echo "gpu_pass.sh: $out/report.md"

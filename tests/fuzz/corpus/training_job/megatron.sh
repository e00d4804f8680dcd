#!/bin/bash
TP=${TP:-2}; PP=2
GPUS=8
ARGS=(
  --num-layers 4 --hidden-size 256 --num-attention-heads 4  # small
  --vocab-size 1000 --num-experts 4 --bf16 --disable-bias-linear
)
if [ "$TP" -gt 1 ] && [ -n "$TP" ]; then
  ARGS+=(--sequence-parallel)
fi
OPTIONS="--moe-layer-freq ([0]*2+[1]*2) \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP}"
torchrun --nproc_per_node $GPUS --nnodes $((1 + 0)) pretrain_gpt.py "${ARGS[@]}" $OPTIONS --micro-batch-size 1 \
  --global-batch-size 8 --seq-length 128 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall

#!/bin/bash
# Mixtral 8x7B with Megatron-LM, as docs/formats.md takes it in the place of a scenario.
EP=${EP:-8}
NODES=2
MODEL=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 1000000
  --vocab-size 32000 --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm
)
PLAN=(
  --pipeline-model-parallel-size 2 --expert-model-parallel-size $EP --use-distributed-optimizer
  --overlap-grad-reduce --overlap-param-gather --moe-token-dispatcher-type alltoall --moe-permute-fusion
)
if [ "$EP" -gt 1 ]; then
  PLAN+=(--moe-router-dtype fp32)
fi
torchrun --nproc_per_node 8 --nnodes $NODES --node_rank "$RANK" pretrain_gpt.py "${MODEL[@]}" "${PLAN[@]}" \
  --micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --max-position-embeddings 4096 --bf16 \
  --lr 1e-4 --train-iters 1000 --data-path "$DATA" --save "$OUT" --log-interval 10

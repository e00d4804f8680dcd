# Every dispatcher: models/dispatchers/NAME.cc, which defines `DispatcherEntry NAME()`. In the order of `moesim list`.
set(dispatchers
  megatron_allgather
  megatron_allgather_legacy
  megatron_alltoall
  megatron_alltoall_legacy
  megatron_flex_deepep
  megatron_flex_hybridep
  torchtitan_local
  torchtitan_alltoall
  torchtitan_equal_split
  torchtitan_force_balance
  torchtitan_torchao
  kempnerforge
  megablocks_moe
  megablocks_dmoe_sparse
  megablocks_dmoe_grouped
)

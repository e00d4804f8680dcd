# Every dispatcher: models/dispatchers/NAME.cc, which defines `DispatcherEntry NAME()`. In the order of `moesim list`.
set(dispatchers
  megatron_allgather
  megatron_alltoall
)

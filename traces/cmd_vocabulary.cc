#include "traces/cmd_vocabulary.h"

#include <algorithm>

namespace moesim::traces {

std::span<const std::string_view> cmd_operations() {
  static constexpr std::string_view kWords[] = {
      "get_batch",        "forward_step",  "loss_func",     "backward_step",  "send_forward",
      "recv_forward",     "send_backward", "recv_backward", "dp_allreduce",   "ep_dp_allreduce",
      "exp_dp_allreduce", "ep_allreduce",  "pep_allreduce", "optimizer_step", "ddp_grad_comm"};
  return kWords;
}

std::span<const std::string_view> cmd_states() {
  static constexpr std::string_view kWords[] = {"None", "warmup", "help", "steady", "cooldown", "finalize"};
  return kWords;
}

std::span<const std::string_view> cmd_groups() {
  static constexpr std::string_view kWords[] = {"None",   "tp",    "dp",  "pp",     "ep",   "pep",
                                                "exp_dp", "ep_dp", "exp", "tp_exp", "tp_ep"};
  return kWords;
}

std::span<const std::string_view> cmd_dtypes() {
  static constexpr std::string_view kWords[] = {"None",          "torch.bfloat16",      "torch.float16",
                                                "torch.float32", "torch.float64",       "torch.int64",
                                                "torch.int32",   "torch.int16",         "torch.int8",
                                                "torch.uint8",   "torch.float8_e4m3fn", "torch.float8_e5m2",
                                                "torch.bool"};
  return kWords;
}

std::span<const std::string_view> cmd_comm_functions() {
  static constexpr std::string_view kWords[] = {"allreduce",      "broadcast",  "allgather",
                                                "reduce_scatter", "all_to_all", "alltoall"};
  return kWords;
}

std::span<const std::string_view> cmd_op_semantics() {
  static constexpr std::string_view kWords[] = {"None", "wait_flush_only", "metadata_placeholder"};
  return kWords;
}

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace moesim::traces

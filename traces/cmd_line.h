// The words of CMD lines, and the parser of one line, key by key in the order of the grammar; inside traces/
// only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

// Words collected from every public writer (2025 and 2026). All lists but that of operations are closed: other
// words are refused, since their cost would be unknown.
inline constexpr std::string_view kCmdOperations[] = {
    "get_batch",        "forward_step",  "loss_func",     "backward_step",  "send_forward",
    "recv_forward",     "send_backward", "recv_backward", "dp_allreduce",   "ep_dp_allreduce",
    "exp_dp_allreduce", "ep_allreduce",  "pep_allreduce", "optimizer_step", "ddp_grad_comm"};
inline constexpr std::string_view kCmdStates[] = {"None", "warmup", "help", "steady", "cooldown", "finalize"};
// Of operations and of sub-operations.
inline constexpr std::string_view kCmdGroups[] = {"None",   "tp",    "dp",  "pp",     "ep",   "pep",
                                                  "exp_dp", "ep_dp", "exp", "tp_exp", "tp_ep"};
inline constexpr std::string_view kCmdDtypes[] = {"None",          "torch.bfloat16",      "torch.float16",
                                                  "torch.float32", "torch.float64",       "torch.int64",
                                                  "torch.int32",   "torch.int16",         "torch.int8",
                                                  "torch.uint8",   "torch.float8_e4m3fn", "torch.float8_e5m2",
                                                  "torch.bool"};
inline constexpr std::string_view kCmdCommFunctions[] = {"allreduce",      "broadcast",  "allgather",
                                                         "reduce_scatter", "all_to_all", "alltoall"};
inline constexpr std::string_view kCmdOpSemantics[] = {"None", "wait_flush_only", "metadata_placeholder"};

inline bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// Limits on the values of a line; generous for any real job, small enough that nothing downstream overflows.
inline constexpr std::int64_t kMaxRank = (1 << 24) - 1;
inline constexpr std::int64_t kMaxStage = 65535;
inline constexpr std::int64_t kMaxBatch = 999'999;
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 39;  // no device holds a tensor of 512 GiB

// Returns whether a tensor exceeds kMaxTensorBytes; elements of an unknown type count one byte.
bool too_large(std::int64_t elements, std::string_view dtype);
inline constexpr const char* kPossibleTensor = "a tensor of at most 512 GiB";

// Parses `line` (without its line break) and appends the operation with all it holds to `rank`. Sets
// rank.rank from the first line and refuses another rank later. Throws InputError with file, line and column.
void parse_cmd_line(std::string_view line, std::uint32_t line_number, RankRecording& rank, Pool& pool);

}  // namespace moesim::traces

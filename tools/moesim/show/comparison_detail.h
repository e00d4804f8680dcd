// The details of a comparison, on request: messages, operations, ranks, memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/answers/answer.h"
#include "models/programs/program.h"
#include "sim/graph/task_graph.h"
#include "tools/moesim/show/comparison.h"

namespace moesim::tools {

// Returns the memory of each dispatcher's fullest stage by cause, and how full the other stages are.
std::string memory_tree(const models::Comparison& comparison);
std::optional<Table> table_of_detail(const models::Comparison& comparison, Detail detail);

// A collective of a layer, with its bytes on every rank.
struct Message {
  bool forward = true;
  const models::Op* op = nullptr;
  const models::Program* program = nullptr;

  std::vector<std::int64_t> of_ranks(models::PerRank value) const;
};
Columns<Message> columns_of(Of<Message>);
std::vector<Message> messages_of(const models::Answer& answer);

// Work of a rank of the dispatch group in the dispatcher's part of the layer.
struct RankWork {
  std::size_t rank = 0;
  std::int64_t balanced = 0, computed = 0, sent = 0, received = 0;
  double expert_us = 0, transfer_us = 0, wait_us = 0;
};
Columns<RankWork> columns_of(Of<RankWork>);
std::vector<RankWork> ranks_of(const models::Answer& answer);

// The operations of a layer on the rank that ends last.

// Waiting is time in a collective before the last member arrives.
struct LayerOperation {
  bool forward = true, dense = false;
  const models::Op* op = nullptr;
  double start_us = 0, wait_us = 0, time_us = 0;
};

Columns<LayerOperation> columns_of(Of<LayerOperation>);

// "all_to_all", "permute", "gemm", ...
std::string_view kind_of(const models::Op& op);

// Returns operations in order, dense part included. Needs AnswerOptions::trace.
std::vector<LayerOperation> operations_of(const models::Answer& forecast);

// Bytes between pairs of ranks, for a layer under a dispatcher and for a simulated iteration.

// Total bytes from rank to rank: bytes[from * ranks + to].
struct TrafficMatrix {
  std::string title;
  int ranks = 0;
  std::vector<double> bytes;
};

// Returns the bytes that a member of a collective sends to the others, counted as in docs/spec.md 1.3.
double bytes_sent(const sim::CollectiveShape& shape, std::size_t member);

// Returns the matrix of one layer of a dispatcher, forward and backward. Exchanges follow their split
// matrices, other collectives are spread evenly over their members; rows add up to the bytes that ranks send.
TrafficMatrix traffic_matrix(const models::Answer& forecast);

// Likewise for all collectives of a graph.
TrafficMatrix traffic_matrix(std::string title, const sim::TaskGraph& graph);

}  // namespace moesim::tools

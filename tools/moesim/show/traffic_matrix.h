// Bytes between pairs of ranks, for a layer under a dispatcher and for a simulated iteration.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "sim/graph/task_graph.h"

namespace moesim::tools {

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

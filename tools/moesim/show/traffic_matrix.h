// Who sends how many bytes to whom: of a layer under a dispatcher, and of a simulated iteration.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "sim/graph/task_graph.h"

namespace moesim::tools {

// Bytes from rank to rank over the whole of what is shown: bytes[from * ranks + to].
struct TrafficMatrix {
  std::string title;
  int ranks = 0;
  std::vector<double> bytes;
};

// Bytes that a member of a collective sends to the others, as docs/spec.md 1.3 counts them.
double bytes_sent(const sim::CollectiveShape& shape, std::size_t member);

// One layer of a dispatcher, forward and backward. Exchanges follow their split matrices, every other
// collective is spread evenly over its members; rows add up to the bytes that ranks send.
TrafficMatrix traffic_matrix(const models::Answer& forecast);

// All collectives of a graph, in the same way.
TrafficMatrix traffic_matrix(std::string title, const sim::TaskGraph& graph);

}  // namespace moesim::tools

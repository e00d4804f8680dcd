// Passes of layers through the streams of the ranks of one dispatch group: in-order streams, a host that
// launches, rendezvous collectives. The recursion of the simulator followed operation by operation, for one
// pass after the other or for a forward and a backward pass that share the streams.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/costs/layer_costs.h"
#include "models/programs/program.h"
#include "models/step/faults.h"
#include "sim/graph/task_graph.h"

namespace moesim::models {

// What an operation's time is spent on, across all categories.
enum class Work : std::uint8_t { kKernel, kProduct, kAttentionCore, kTransfer };
inline constexpr std::size_t kWorks = 4;

struct TimedOp {
  enum class Kind : std::uint8_t { kDevice, kCollective, kHost, kNothing };
  Kind kind = Kind::kDevice;
  sim::Category category = sim::Category::other;
  Work work = Work::kKernel;
  Stream stream = Stream::kCompute;
  bool weight_gradient = false;
  bool network = false;    // a collective that leaves the NVLink domain
  bool ring = false;       // a collective that is as slow as its slowest member
  std::int8_t group = -1;  // of a collective: index into TimedPart::groups; -1: no rendezvous is followed
  std::int32_t launches = 1;
  std::array<std::int32_t, 2> after{-1, -1};  // of the same part
  std::uint32_t first = 0;                    // time of rank r: ps[first + step * r]
  std::uint32_t step = 0;
};

// A piece of a pass. A rank enters a part when it is done with the part before.
struct TimedPart {
  std::vector<TimedOp> ops;
  std::vector<std::int64_t> ps;
  // Group index of each rank, for every kind of group that collectives of this part meet in.
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<std::int32_t> group_counts;

  std::int64_t at(const TimedOp& op, std::size_t rank) const { return ps[op.first + op.step * rank]; }
  // Appends an operation with one time for all ranks, after the one before it in this part.
  TimedOp& add(TimedOp::Kind kind, sim::Category category, double seconds, int launches = 1);
};

// The pass of a dispatcher's program with its prices; `graphs`: launched by CUDA graphs, without blocking
// synchronisation. Otherwise the host launches `kernels_per_operation` kernels for an operation, and at least
// one for each local expert for a product over them. Memory-bound kernels take `traffic` times as long.
TimedPart timed_program(const Program& program, const std::vector<Op>& pass, const PricedPass& prices,
                        const GroupShapes& shapes, bool graphs, int kernels_per_operation = 1,
                        int local_experts = 1, double traffic = 1);

// Time that the parts' collectives occupy the network between NVLink domains, of the rank that it is most
// for.
std::int64_t network_ps(std::span<const TimedPart* const> parts);

// The part on ranks with faults. Where it has one time for all ranks, its collectives are those of `tp`
// neighbouring ranks. `salt` keeps the jitter of different parts apart.
TimedPart with_faults(const TimedPart& part, const RankFaults& faults, int tp, std::size_t salt);

// Only the operations that a split backward keeps: weight gradients, or everything else.
TimedPart only_weight_gradients(const TimedPart& part);
TimedPart without_weight_gradients(const TimedPart& part);

struct PassTime {
  std::int64_t total_ps = 0;
  std::int64_t exposed_ps = 0;                                // of it: transferring while not computing
  std::array<std::int64_t, sim::kCategories> breakdown_ps{};  // adds up to total_ps

  PassTime& operator+=(const PassTime& other);
  PassTime scaled(double factor) const;  // keeps the sum exact
};

struct PassOptions {
  int ranks = 1;
  std::int64_t launch_ps = 0;
  bool breakdown = true;
  double compute_slowdown = 1;            // of computing while another pass communicates (time_overlapped)
  double transfer_slowdown = 1;           // of communicating while another pass computes (time_overlapped)
  bool delayed_weight_gradients = false;  // time_overlapped: weight gradients run where computing would idle
};

// One pass through the parts, until the last rank is done.
PassTime time_pass(std::span<const TimedPart* const> parts, const PassOptions& options);
// What one more copy of the parts adds in a long row of them: no start-up, the host running ahead.
PassTime time_in_a_row(std::span<const TimedPart* const> parts, const PassOptions& options);
// The same for two passes that run together, each in its own order, sharing streams and host; whichever can
// start earlier goes first.
PassTime time_overlapped(std::span<const TimedPart* const> forward,
                         std::span<const TimedPart* const> backward, const PassOptions& options);

}  // namespace moesim::models

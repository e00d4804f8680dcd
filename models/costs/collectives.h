// What a collective takes, as NCCL performs it: closed forms fitted to measurements (calibrated timing).
//
// Bytes follow docs/spec.md 1.3: all_gather and reduce_scatter take the per-rank piece x, all_reduce
// the buffer y, an equal all_to_all the whole send buffer of a rank (own share included), send_recv and
// broadcast the message. Times are seconds from the arrival of the last member.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/hardware/estimate.h"
#include "models/hardware/group_shape.h"
#include "sim/graph/collective.h"

namespace moesim::models {

struct Cluster;

// The parts of a forecast, for flow timing and for explanations.
struct CollectiveParts {
  sim::Algorithm algorithm = sim::Algorithm::ring;
  double launch = 0;  // seconds before the first byte moves, once
  double step = 0;    // seconds of each sequential step
  int steps = 0;
  double wire_bytes = 0;  // bytes through the bottleneck resource
  double bandwidth = 0;   // of that resource, bytes/s, at large messages
  double efficiency = 1;  // share of `bandwidth` reached at this size
};

// What each member of an uneven all-to-all has to move, in rows of an equal exchange that would take as long:
// inside the NVLink domain and across domains (empty where the group lies in one). Does not depend on a
// profile.
struct UnevenLoad {
  std::vector<double> within;
  std::vector<double> across;
};

// Resolved from a cluster's profile once; then every call is a few floating-point operations.
class CollectiveModel {
 public:
  explicit CollectiveModel(const Cluster& cluster);
  ~CollectiveModel();
  CollectiveModel(CollectiveModel&&) noexcept;
  CollectiveModel& operator=(CollectiveModel&&) noexcept;

  // Seconds of an equal collective. A group of one takes no time. Bytes >= 0.
  double seconds(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;
  // The same with its 90 % interval: fit residual, parameter uncertainty, and the distance from what was
  // measured.
  Estimate estimate(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;
  // Bytes per second of a GPU's links to the other members of a group of `ranks` in its domain, one way.
  double links_within(int ranks) const;
  CollectiveParts parts(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;

  // Uneven all-to-all: `bytes` is shape.ranks x shape.ranks, row = sender, own share included but not on the
  // wire. Writes when each member is done (its own sends and receives) to `out`. Law of
  // docs/spec.md 1.3: a member is bound by the larger of what it sends and what it receives; across
  // domains also by its domain's ports.
  void all_to_all_v(const GroupShape& shape, std::span<const double> bytes, std::span<double> out) const;
  // The same from row counts (rows x `bytes_per_row`). The way back, of the transposed matrix, takes as long:
  // what a member sends there it receives here.
  void all_to_all_v(const GroupShape& shape, std::span<const std::uint32_t> rows, double bytes_per_row,
                    std::span<double> out) const;
  // The two halves of it, for callers who price the same rows many times: the load of a row matrix (it scales
  // with the bytes of a row), and the times from it.
  static UnevenLoad load_of(const GroupShape& shape, std::span<const std::uint32_t> rows);
  void all_to_all_v(const GroupShape& shape, const UnevenLoad& load, double bytes_per_row,
                    std::span<double> out) const;
  // Uneven pieces: grouped broadcasts / reduces, as PyTorch lowers them (docs/spec.md 1.3).
  double all_gather_v(const GroupShape& shape, std::span<const double> pieces) const;
  double reduce_scatter_v(const GroupShape& shape, std::span<const double> pieces) const;

  // What the profile did not measure of this operation, kind of group or size; none where it measured all.
  std::optional<OutsideDomain> outside(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;

 private:
  struct Resolved;
  std::unique_ptr<const Resolved> resolved_;
};

}  // namespace moesim::models

// Time of a collective as NCCL performs it: closed forms fitted to measurements (calibrated timing).
//
// Bytes follow docs/spec.md 1.3: all_gather and reduce_scatter take the per-rank piece x, all_reduce the
// buffer y, an equal all_to_all the whole send buffer of a rank (own share included), send_recv and broadcast
// the message. Times are seconds from the arrival of the last member.
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

// Terms of a forecast, for flow timing and explanations.
struct CollectiveParts {
  sim::Algorithm algorithm = sim::Algorithm::ring;
  double launch = 0;  // seconds before the first byte moves, once
  double step = 0;    // seconds of each sequential step
  int steps = 0;
  double wire_bytes = 0;  // bytes through the bottleneck resource
  double bandwidth = 0;   // bytes/s of that resource for large messages
  double efficiency = 1;  // share of `bandwidth` reached at this size
};

// Load of each member in an uneven all-to-all, in rows of an equal exchange that takes as long: inside the
// NVLink domain and across domains (empty where the group lies in one domain). Independent of the profile.
struct UnevenLoad {
  std::vector<double> within;
  std::vector<double> across;
};

// Resolved once from a cluster's profile; every later call is a few floating-point operations.
class CollectiveModel {
 public:
  explicit CollectiveModel(const Cluster& cluster);
  ~CollectiveModel();
  CollectiveModel(CollectiveModel&&) noexcept;
  CollectiveModel& operator=(CollectiveModel&&) noexcept;

  // Returns seconds of an equal collective; 0 for a group of one. Bytes >= 0.
  double seconds(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;
  // Returns the time with its 90 % interval: fit residual, parameter uncertainty, and distance from the
  // measured range.
  Estimate estimate(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;
  // Returns bytes/s, one way, of a GPU's links to the other members of a group of `ranks` in its domain.
  double links_within(int ranks) const;
  CollectiveParts parts(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;

  // Uneven all-to-all. `bytes` is shape.ranks x shape.ranks with one row per sender; the own share is
  // included but does not cross the wire. Writes to `out` when each member has finished its own sends and
  // receives. Law of docs/spec.md 1.3: the larger of sent and received bytes bounds a member; across domains
  // its domain's ports do as well.
  void all_to_all_v(const GroupShape& shape, std::span<const double> bytes, std::span<double> out) const;
  // Likewise from row counts of `bytes_per_row` each. The return exchange uses the transposed matrix and
  // takes as long: a member receives there what it sends here.
  void all_to_all_v(const GroupShape& shape, std::span<const std::uint32_t> rows, double bytes_per_row,
                    std::span<double> out) const;
  // Two steps of all_to_all_v for callers that price the same rows many times: the load of a row matrix (in
  // proportion to the bytes of a row), then the times from the load.
  static UnevenLoad load_of(const GroupShape& shape, std::span<const std::uint32_t> rows);
  void all_to_all_v(const GroupShape& shape, const UnevenLoad& load, double bytes_per_row,
                    std::span<double> out) const;
  // Uneven pieces, priced as grouped broadcasts or reduces, as PyTorch lowers them (docs/spec.md 1.3).
  // Seconds.
  double all_gather_v(const GroupShape& shape, std::span<const double> pieces) const;
  double reduce_scatter_v(const GroupShape& shape, std::span<const double> pieces) const;

  // Returns what the profile did not measure of this operation, kind of group or size; nullopt where it
  // measured all.
  std::optional<OutsideDomain> outside(sim::CollectiveOp op, const GroupShape& shape, double bytes) const;

 private:
  struct Resolved;
  std::unique_ptr<const Resolved> resolved_;
};

}  // namespace moesim::models

#include "models/costs/collectives.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "models/costs/network_law.h"
#include "models/costs/size_curve.h"
#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"

namespace moesim::models {
namespace {

using sim::CollectiveOp;

constexpr std::size_t kOps = 7;
constexpr double kPerOctave = 0.06;      // log standard deviation per octave of size beyond the data
constexpr double kPerRankOctave = 0.06;  // and per doubling of ranks or nodes
constexpr double kBetweenSizes =
    0.045;  // for a size between two measured ones (leave-one-size-out, docs/calibration.md)
constexpr double kDerived = 0.20;  // for a law derived from another operation or GPU

std::size_t index(CollectiveOp op) { return static_cast<std::size_t>(op); }

// nccl-tests "size" of a collective whose bytes follow docs/spec.md 1.3.
double nccl_size(CollectiveOp op, double ranks, double bytes) {
  return op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter ? bytes * ranks : bytes;
}

// Known error of a law.
struct Trust {
  bool derived = false;
  double residual = 0;
  double systematic = 0;
  double beyond = 0;  // ParameterSet::beyond
  DomainRange bytes, ranks, nodes;
  bool has_bytes = false, has_ranks = false, has_nodes = false;
  std::string source;

  static Trust of(const ParameterSet& set) {
    Trust trust{set.derived, set.residual, set.systematic, set.beyond, {},        {},
                {},          false,        false,          false,      set.source};
    const auto copy = [&](std::string_view quantity, DomainRange& range, bool& has) {
      if (const DomainRange* found = set.range(quantity)) {
        range = *found;
        has = true;
      }
    };
    copy("bytes", trust.bytes, trust.has_bytes);
    copy("ranks", trust.ranks, trust.has_ranks);
    copy("nodes", trust.nodes, trust.has_nodes);
    return trust;
  }

  double size_octaves(double size) const {
    return has_bytes ? octaves_outside(bytes, std::max(size, 1.0)) : 0;
  }
  double rank_octaves(double n) const { return has_ranks ? octaves_outside(ranks, n) : 0; }
  double node_octaves(double n) const { return has_nodes ? octaves_outside(nodes, n) : 0; }

  // Returns the error of an operation that was not measured itself (`direct`: it was), and of a group or size
  // outside of the measured range or between measured calls (`apart`: Corrections::sigma).
  double outside_sigma(double size, double n, double groups, bool direct, double apart) const {
    const double outside = kPerOctave * std::min(size_octaves(size), 4.0) +
                           kPerRankOctave * (rank_octaves(n) + node_octaves(groups));
    return std::sqrt(outside * outside + (derived ? kDerived * kDerived : 0) +
                     (direct ? 0 : kDerived * kDerived) + apart * apart);
  }
  // `measured`: the rank count was fitted, so no rank law is involved.
  double sigma(double outside, bool measured) const {
    const double law = systematic * (measured ? 0.25 : 1);
    return std::sqrt(residual * residual + law * law + kBetweenSizes * kBetweenSizes + outside * outside);
  }
};

struct ScaleupLaw {
  bool known = false;
  SizeCurve curve;
  Trust trust;
};

struct NetworkLaw {
  bool known = false;
  NetworkCurve curve;
  Trust trust;
};

// Returns the operation whose measured law replaces one that a profile lacks.
CollectiveOp substitute(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::broadcast:
      return CollectiveOp::all_gather;
    case CollectiveOp::all_gather:
      return CollectiveOp::reduce_scatter;
    case CollectiveOp::send_recv:
      return CollectiveOp::all_to_all;
    case CollectiveOp::barrier:
      return CollectiveOp::all_reduce;
    default:
      return op;
  }
}

}  // namespace

struct CollectiveModel::Resolved {
  std::array<ScaleupLaw, kOps> scaleup;
  std::array<NetworkLaw, kOps> network;
  double link = 0;           // bytes/s from a GPU to all others of its domain together, one way
  int mesh = 0;              // GPUs of a domain with a link between each pair; 0: a switch
  double scaleup_ratio = 1;  // link bandwidth of the profile over the cluster's: scales sizes
  std::string profile;

  // Returns seconds inside one domain of `n` ranks for nccl-tests size `size`.
  double inside(CollectiveOp op, double n, double size) const {
    const ScaleupLaw& law = scaleup[index(op)];
    const double seconds = inside_by_law(op, n, size);
    if (law.known && !law.trust.derived && law.curve.measured(n)) return seconds;
    return std::max(seconds, wire_seconds(op, n, size) + inside_by_law(op, n, 0));
  }

  // Faster links make messages behave like smaller ones.
  double inside_by_law(CollectiveOp op, double n, double size) const {
    const ScaleupLaw& law = scaleup[index(op)];
    if (!law.known) return by_other(substitute(op), op, n, size, scaleup_ratio);
    // Messages far below the measured sizes scale by a law that measured such: the substitute's, or of messages
    // between two the gather's.
    const double low = law.trust.has_bytes ? law.trust.bytes.low : 0;
    if (size * scaleup_ratio >= low || substitute(op) == op) return law.curve.seconds(n, size, scaleup_ratio);
    const auto measured = [&](CollectiveOp other) {
      const ScaleupLaw& one = scaleup[index(other)];
      return one.known && one.trust.bytes.low < low;
    };
    CollectiveOp other = substitute(op);
    if (!measured(other) && op == CollectiveOp::send_recv) other = CollectiveOp::all_gather;
    if (!measured(other)) return law.curve.seconds(n, size, scaleup_ratio);
    // Where the message would act like the smallest measured one.
    const double edge = std::max(size, low), at_edge = low / edge;
    return law.curve.seconds(n, edge, at_edge) * by_other(other, op, n, size, scaleup_ratio) /
           by_other(other, op, n, edge, at_edge);
  }

  // Prices a message on links `slower` than the measured ones by the law of `other`.
  double by_other(CollectiveOp other, CollectiveOp op, double n, double size, double slower) const {
    const ScaleupLaw& law = scaleup[index(other)];
    check(law.known, "a profile without any collective law was accepted");
    if (op == CollectiveOp::send_recv) {
      n = 2;
      size *= 2;  // a message both ways: half of the buffer goes to the peer
    } else if (op == CollectiveOp::broadcast) {
      size *= n / (n - 1);  // every link carries the whole message
    }
    return law.curve.seconds(n, size, slower);
  }

  // Lower bound from the bytes on a GPU's links, since rank counts and operations outside of measurements are
  // extrapolated. On a mesh a group of n uses n-1 of a GPU's links.
  double wire_seconds(CollectiveOp op, double n, double size) const {
    if (link <= 0) return 0;
    double bytes = size * (n - 1) / n;
    if (op == CollectiveOp::send_recv) {
      bytes = size;
      n = 2;
    } else if (op == CollectiveOp::broadcast) {
      bytes = size;
    } else if (op == CollectiveOp::all_reduce) {
      if (mesh == 0) return 0;  // switches reduce, which halves the bytes
      bytes *= 2;
    } else if (op == CollectiveOp::barrier) {
      return 0;
    }
    return bytes / links_within(n);
  }

  double links_within(double n) const { return mesh > 1 ? link * std::min(1.0, (n - 1) / (mesh - 1)) : link; }

  // Returns the law between domains; changes `size` to that of a substitute.
  const NetworkLaw& law_across(CollectiveOp op, const GroupShape& shape, double& size) const {
    const NetworkLaw& own = network[index(op)];
    if (own.known) return own;
    const NetworkLaw& other = network[index(substitute(op))];
    check(other.known, "a profile without any network law was accepted");
    if (op == CollectiveOp::send_recv) size *= 2;
    if (op == CollectiveOp::broadcast) size *= shape.ranks / (shape.ranks - 1.0);
    return other;
  }

  double across(CollectiveOp op, const GroupShape& shape, double size) const {
    double seconds = law_across(op, shape, size).curve.seconds(shape, size);
    if (shape.max_per_domain == 1 || op == CollectiveOp::send_recv) return seconds;
    // The part inside the domains runs at the same time and can be slower. A link between two members of a
    // ring carries all traffic around it, wherever the others are: no less than with all members in one
    // domain.
    if (op == CollectiveOp::all_to_all)
      return std::max(seconds, inside(op, shape.max_per_domain, size * shape.max_per_domain / shape.ranks));
    const bool reduce = op == CollectiveOp::all_reduce || op == CollectiveOp::barrier;
    seconds = std::max(seconds, inside(reduce ? CollectiveOp::all_reduce : op,
                                       reduce ? shape.max_per_domain : shape.ranks, size));
    return seconds;
  }

  const Trust& trust(CollectiveOp op, bool across_domains) const {
    if (across_domains) {
      const auto& law = network[index(op)];
      return law.known ? law.trust : network[index(substitute(op))].trust;
    }
    const auto& law = scaleup[index(op)];
    return law.known ? law.trust : scaleup[index(substitute(op))].trust;
  }
  bool direct(CollectiveOp op, bool across_domains) const {
    return across_domains ? network[index(op)].known : scaleup[index(op)].known;
  }

  double outside_sigma(CollectiveOp op, const GroupShape& shape, double size) const {
    const bool across = shape.across_domains();
    double acts = size, apart = 0;
    if (across) {
      const NetworkLaw& law = law_across(op, shape, acts);
      apart = law.curve.corrections.sigma(shape, acts);
    }
    return trust(op, across).outside_sigma(size, shape.ranks, shape.domains, direct(op, across), apart);
  }
};

CollectiveModel::CollectiveModel(const Cluster& cluster) {
  auto resolved = std::make_unique<Resolved>();
  const Profile& profile = cluster.profile;
  resolved->profile = profile.name();
  resolved->link = cluster.nvlink.bandwidth;
  if (links_are_mesh(cluster))
    resolved->mesh = static_cast<int>(std::min<std::int64_t>(cluster.nvlink.domain, cluster.ranks()));
  const double own = profile.device().scaleup_bandwidth;
  if (own > 0 && cluster.nvlink.bandwidth > 0) resolved->scaleup_ratio = own / cluster.nvlink.bandwidth;
  for (std::size_t i = 0; i < kOps; ++i) {
    const std::string op(sim::name(static_cast<CollectiveOp>(i)));
    const std::string inside = "collective/" + op + "/scaleup";
    const std::string across = "collective/" + op + "/network";
    if (const ParameterSet* set = profile.find(inside))
      resolved->scaleup[i] = {true, SizeCurve::from(*set, inside), Trust::of(*set)};
    if (const ParameterSet* set = profile.find(across))
      resolved->network[i] = {true, NetworkCurve::from(*set, across, cluster), Trust::of(*set)};
  }
  // An all-to-all of two that was measured on this GPU replaces send/recv that was measured on another one.
  ScaleupLaw& message = resolved->scaleup[index(CollectiveOp::send_recv)];
  const ScaleupLaw& exchange = resolved->scaleup[index(substitute(CollectiveOp::send_recv))];
  if (message.trust.derived && exchange.known && !exchange.trust.derived) message = {};
  for (const CollectiveOp op :
       {CollectiveOp::all_gather, CollectiveOp::all_to_all, CollectiveOp::all_reduce}) {
    const std::string key = "collective/" + std::string(sim::name(op));
    if (!resolved->direct(op, false) && !resolved->scaleup[index(substitute(op))].known)
      profile.at(key + "/scaleup");
    if (cluster.ranks() > cluster.nvlink.domain && !resolved->direct(op, true) &&
        !resolved->network[index(substitute(op))].known)
      profile.at(key + "/network");
  }
  resolved_ = std::move(resolved);
}

CollectiveModel::~CollectiveModel() = default;
CollectiveModel::CollectiveModel(CollectiveModel&&) noexcept = default;
CollectiveModel& CollectiveModel::operator=(CollectiveModel&&) noexcept = default;

double CollectiveModel::seconds(CollectiveOp op, const GroupShape& shape, double bytes) const {
  if (shape.ranks <= 1) return 0;
  const double size = nccl_size(op, shape.ranks, bytes);
  const bool across = shape.across_domains();
  const double seconds =
      across ? resolved_->across(op, shape, size) : resolved_->inside(op, shape.ranks, size);
  const Trust& trust = resolved_->trust(op, across);
  if (trust.beyond == 0) return seconds;
  return seconds * std::exp(trust.beyond * resolved_->outside_sigma(op, shape, size));
}

Estimate CollectiveModel::estimate(CollectiveOp op, const GroupShape& shape, double bytes) const {
  const double value = seconds(op, shape, bytes);
  if (shape.ranks <= 1) return Estimate::exact(value);
  const bool across = shape.across_domains();
  const ScaleupLaw& law = resolved_->scaleup[index(op)];
  const bool measured = !across && law.known && law.curve.measured(shape.ranks);
  const double outside = resolved_->outside_sigma(op, shape, nccl_size(op, shape.ranks, bytes));
  const double sigma = resolved_->trust(op, across).sigma(outside, measured);
  return Estimate::log_normal(value, sigma);
}

double CollectiveModel::links_within(int ranks) const { return resolved_->links_within(ranks); }

CollectiveParts CollectiveModel::parts(CollectiveOp op, const GroupShape& shape, double bytes) const {
  CollectiveParts parts;
  if (shape.ranks <= 1) return parts;
  const double n = shape.ranks;
  const double size = nccl_size(op, n, bytes);
  const double total = seconds(op, shape, bytes);
  parts.launch = std::min(seconds(op, shape, 0), total);
  switch (op) {
    case CollectiveOp::all_to_all:
      parts.algorithm = sim::Algorithm::direct;
      parts.steps = 1;
      parts.wire_bytes = size * (n - 1) / n;
      break;
    case CollectiveOp::all_reduce:
      parts.algorithm = shape.across_domains() && shape.max_per_domain > 1 ? sim::Algorithm::hierarchical
                                                                           : sim::Algorithm::ring;
      parts.steps = 2 * (shape.ranks - 1);
      parts.wire_bytes = 2 * size * (n - 1) / n;
      break;
    case CollectiveOp::send_recv:
      parts.algorithm = sim::Algorithm::direct;
      parts.steps = 1;
      parts.wire_bytes = size;
      break;
    case CollectiveOp::barrier:
      parts.steps = 1;
      break;
    case CollectiveOp::broadcast:
      parts.steps = shape.ranks - 1;
      parts.wire_bytes = size;
      break;
    default:
      parts.steps = shape.ranks - 1;
      parts.wire_bytes = size * (n - 1) / n;
  }
  // Rate of a message far beyond all regimes.
  constexpr double kLarge = 16.0 * (1u << 30);
  const double slope = (seconds(op, shape, 2 * kLarge) - seconds(op, shape, kLarge)) / kLarge;
  const double per_byte = bytes > 0 ? parts.wire_bytes / bytes : 0;
  if (slope > 0) parts.bandwidth = per_byte / slope;
  // Below the first measured size the law is flat: what moves there is not launched as well.
  if (parts.bandwidth > 0)
    parts.launch = std::clamp(total - parts.wire_bytes / parts.bandwidth, 0.0, parts.launch);
  const double moving = total - parts.launch;
  if (moving > 0 && parts.bandwidth > 0)
    parts.efficiency = std::min(1.0, parts.wire_bytes / parts.bandwidth / moving);
  return parts;
}

namespace {

// Computes when each member of an uneven exchange is done, in bytes of its busiest link.
//
// A link shared by messages of sizes s_k finishes the one of size s after sum_k min(s_k, s) bytes when all
// move at equal rates (NCCL posts all sends and receives of a member at once). A member waits for its own
// links and for each of its messages at the far end. `traffic(i, j)`: bytes from i to j, none to itself.
// Links are members, or domains for the network.
//
// No message ends after its link has moved everything, so links are processed by their totals: an emptier
// link cannot change waits caused by a fuller one. `traffic` is [from][to]; returns what each member sends,
// then what it receives.
std::vector<double> finish_bytes(std::size_t n, std::span<const double> traffic, std::span<double> out) {
  std::vector<double> totals(2 * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    double sent = 0;
    for (std::size_t j = 0; j < n; ++j) {
      sent += traffic[i * n + j];
      totals[n + j] += traffic[i * n + j];
    }
    totals[i] = sent;
  }
  std::vector<std::uint32_t> fullest_first(2 * n);
  std::iota(fullest_first.begin(), fullest_first.end(), 0u);
  std::sort(fullest_first.begin(), fullest_first.end(), [&](std::uint32_t a, std::uint32_t b) {
    return totals[a] != totals[b] ? totals[a] > totals[b] : a < b;
  });
  for (std::size_t i = 0; i < n; ++i) out[i] = std::max(totals[i], totals[n + i]);
  struct Message {
    double bytes;
    std::uint32_t peer;
  };
  std::vector<Message> messages(n);
  for (const std::uint32_t end : fullest_first) {
    if (totals[end] <= *std::min_element(out.begin(), out.end())) break;
    const bool receiving = end >= n;
    const double* bytes = traffic.data() + (receiving ? end - n : end * n);
    std::size_t count = 0;
    for (std::size_t peer = 0; peer < n; ++peer, bytes += receiving ? n : 1)
      if (*bytes > 0) messages[count++] = {*bytes, static_cast<std::uint32_t>(peer)};
    std::sort(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Message& a, const Message& b) { return a.bytes < b.bytes; });
    double before = 0;  // of the smaller messages
    for (std::size_t k = 0; k < count; ++k) {
      const Message& m = messages[k];
      out[m.peer] = std::max(out[m.peer], before + static_cast<double>(count - k) * m.bytes);
      before += m.bytes;
    }
  }
  return totals;
}

// The profile-independent half of an uneven all-to-all: the size of an equal exchange for each member to be
// done at the same time.
template <class Bytes>
UnevenLoad load_from(const GroupShape& shape, std::span<const Bytes> bytes) {
  const auto n = static_cast<std::size_t>(shape.ranks);
  UnevenLoad load;
  if (n <= 1) return load;
  const bool crosses = shape.across_domains();
  check(!crosses || shape.domain_of.size() == n, "a group across domains knows the domain of each member");
  std::vector<double> within(n * n, 0.0), across(crosses ? n * n : 0, 0.0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      const bool far = crosses && shape.domain_of[i] != shape.domain_of[j];
      (far ? across : within)[i * n + j] = static_cast<double>(bytes[i * n + j]);
    }
  load.within.resize(n);
  finish_bytes(n, within, load.within);
  if (!crosses) return load;
  // Network and scale-up parts run in parallel; each member waits for the slower. The network part is priced
  // as an equal exchange with the crossing bytes of the busiest member.
  load.across.resize(n);
  const std::vector<double> crossing = finish_bytes(n, across, load.across);
  // Members of a domain share ports: the domain's total over its members bounds all of them.
  std::vector<double> sends(static_cast<std::size_t>(shape.domains), 0.0), receives(sends);
  std::vector<int> members(sends.size(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    const auto domain = static_cast<std::size_t>(shape.domain_of[i]);
    ++members[domain];
    sends[domain] += crossing[i];
    receives[domain] += crossing[n + i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto domain = static_cast<std::size_t>(shape.domain_of[i]);
    load.across[i] = std::max(load.across[i], std::max(sends[domain], receives[domain]) / members[domain]);
  }
  return load;
}

}  // namespace

UnevenLoad CollectiveModel::load_of(const GroupShape& shape, std::span<const std::uint32_t> rows) {
  const auto n = static_cast<std::size_t>(shape.ranks);
  check(rows.size() == n * n, "an uneven all-to-all has ranks x ranks row counts");
  return load_from(shape, rows);
}

void CollectiveModel::all_to_all_v(const GroupShape& shape, const UnevenLoad& load, double bytes_per_row,
                                   std::span<double> out) const {
  const auto n = static_cast<std::size_t>(shape.ranks);
  check(out.size() == n, "one time per member");
  if (n <= 1) {
    std::fill(out.begin(), out.end(), 0.0);
    return;
  }
  if (!shape.across_domains()) {
    // Converts wire bytes to an equal exchange.
    const double full = static_cast<double>(n) / static_cast<double>(n - 1);
    for (std::size_t i = 0; i < n; ++i)
      out[i] = seconds(CollectiveOp::all_to_all, shape, load.within[i] * bytes_per_row * full);
    return;
  }
  const GroupShape inside = GroupShape::uniform(1, shape.max_per_domain);
  const double crossing_share = static_cast<double>(shape.ranks) / (shape.ranks - shape.min_per_domain);
  const double inside_share = shape.max_per_domain / std::max(1.0, shape.max_per_domain - 1.0);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = seconds(CollectiveOp::all_to_all, shape, load.across[i] * bytes_per_row * crossing_share);
    if (shape.max_per_domain > 1)
      out[i] = std::max(
          out[i], seconds(CollectiveOp::all_to_all, inside, load.within[i] * bytes_per_row * inside_share));
  }
}

void CollectiveModel::all_to_all_v(const GroupShape& shape, std::span<const double> bytes,
                                   std::span<double> out) const {
  const auto n = static_cast<std::size_t>(shape.ranks);
  check(bytes.size() == n * n, "an uneven all-to-all has ranks x ranks byte counts");
  all_to_all_v(shape, load_from(shape, bytes), 1.0, out);
}

void CollectiveModel::all_to_all_v(const GroupShape& shape, std::span<const std::uint32_t> rows,
                                   double bytes_per_row, std::span<double> out) const {
  all_to_all_v(shape, load_of(shape, rows), bytes_per_row, out);
}

double CollectiveModel::all_gather_v(const GroupShape& shape, std::span<const double> pieces) const {
  if (shape.ranks <= 1) return 0;
  check(pieces.size() == static_cast<std::size_t>(shape.ranks), "one piece per member");
  // Every link of the ring carries all pieces but one; the grouped broadcasts share one launch.
  const double total = std::accumulate(pieces.begin(), pieces.end(), 0.0);
  const double wire = total - *std::min_element(pieces.begin(), pieces.end());
  return seconds(CollectiveOp::all_gather, shape, wire / (shape.ranks - 1));
}

double CollectiveModel::reduce_scatter_v(const GroupShape& shape, std::span<const double> pieces) const {
  if (shape.ranks <= 1) return 0;
  check(pieces.size() == static_cast<std::size_t>(shape.ranks), "one piece per member");
  const double total = std::accumulate(pieces.begin(), pieces.end(), 0.0);
  const double wire = total - *std::min_element(pieces.begin(), pieces.end());
  return seconds(CollectiveOp::reduce_scatter, shape, wire / (shape.ranks - 1));
}

std::optional<OutsideDomain> CollectiveModel::outside(CollectiveOp op, const GroupShape& shape,
                                                      double bytes) const {
  if (shape.ranks <= 1 || op == CollectiveOp::barrier) return std::nullopt;
  const bool across = shape.across_domains();
  const auto price = [&] {
    return resolved_->profile + ": " + std::string(sim::name(op)) +
           (across ? " across nodes" : " inside a node");
  };
  if (!resolved_->direct(op, across))
    return OutsideDomain{
        price(), "was not measured, taken from " + std::string(sim::name(substitute(op))), {}, 0};
  const Trust& trust = resolved_->trust(op, across);
  if (trust.derived) return OutsideDomain::derived(price(), trust.source);
  const double size = nccl_size(op, shape.ranks, bytes);
  FarthestOutside farthest;
  if (trust.has_ranks) farthest.try_range(&trust.ranks, shape.ranks);
  if (across && trust.has_nodes) farthest.try_range(&trust.nodes, shape.domains);
  if (trust.has_bytes && size > 0) farthest.try_range(&trust.bytes, size);
  return farthest.of(price());
}

}  // namespace moesim::models

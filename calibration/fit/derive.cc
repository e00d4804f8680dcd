#include "calibration/fit/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/size_curve.h"
#include "models/hardware/dtype.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"

namespace moesim::calibration {

namespace {

using Links = models::GpuFamily::Links;
using models::DeviceLimits;
using models::ParameterSet;
using models::Profile;
using models::SizeCurve;

// Share of the data sheet's link rate that collectives reach where the links are the bottleneck: H800,
// all_reduce of two GPUs, 164 of 200 GB/s with its latency (SOURCES.md of the Echo data), 169 in the
// exchanges of its recordings.
constexpr double kLinkShare = 0.84;
// Its uncertainty before a GPU's own rows, as a log standard deviation.
constexpr double kShareSigma = 0.15;
constexpr double kLatencySigma = 0.7;
constexpr double kRowSigma = 0.03;        // that of a row
constexpr double kUnknownLibrary = 0.08;  // a single timing with an unrecorded library
constexpr double kOverlapPower = 4;       // copying and links in parallel
// Additional scatter of a law derived from a relative, from leaving out whole GPUs (docs/calibration.md):
// H200 from H100, B200 from H100.
constexpr double kSameChip = 0.05;
constexpr double kOtherChip = 0.15;
constexpr double kAnchoredLaw = 0.06;  // for a rank count or size far from the rows

bool same_chip(const DeviceLimits& a, const DeviceLimits& b) {
  constexpr auto kBf16 = static_cast<std::size_t>(models::DType::kBf16);
  return a.sms == b.sms && a.peak_flops[kBf16] == b.peak_flops[kBf16];
}

double wire_factor(const std::string& key) { return key.find("all_reduce") != std::string::npos ? 2 : 1; }

bool is_latency(const std::string& name) { return name.starts_with("latency"); }

// Returns a law on the links of this GPU, which reach `share` of their rate, with all latencies times `latency`.
using OnTheseLinks = std::function<ParameterSet(const ParameterSet& set, const std::string& key, double share,
                                                double latency)>;

// Multiplies the latencies, and the rest of a law's times.
ParameterSet scaled(ParameterSet set, double latency, double factor) {
  for (std::size_t i = 0; i < set.names.size(); ++i)
    set.values[i] *= is_latency(set.names[i]) ? latency : factor;
  return set;
}

// Laws were measured on the relative's links.
OnTheseLinks of_relative(const DeviceLimits& from, const DeviceLimits& to) {
  return [&from, &to](const ParameterSet& set, const std::string& key, double share, double latency) {
    return scaled(on_other_links(set, from, to, wire_factor(key), share), latency, 1);
  };
}

// Laws are of these links, which take all of their time.
ParameterSet of_these(const ParameterSet& set, const std::string&, double share, double latency) {
  return scaled(set, latency, kLinkShare / share);
}

// A law of the relative and the few rows that correct it.
struct Anchor {
  std::string key;
  const ParameterSet* law;
  std::vector<CollectiveRow> rows;
};

struct Anchored {
  std::vector<ParameterSet> laws;
  double share;
};

double row_sigma(const Anchor& anchor) {
  const bool unknown = std::any_of(anchor.rows.begin(), anchor.rows.end(), [](const CollectiveRow& row) {
    return row.library.find("not recorded") != std::string::npos;
  });
  return unknown ? kUnknownLibrary : kRowSigma;
}

// Fits one share of the links to all laws, since the links are the same for every operation, and to each law
// a factor on its latencies.
Anchored anchored(const std::vector<Anchor>& anchors, const OnTheseLinks& on_these_links) {
  std::vector<std::vector<CurvePoint>> points;
  points.reserve(anchors.size());
  for (const Anchor& anchor : anchors) points.push_back(medians(anchor.rows));
  const auto law = [&](std::size_t i, const std::vector<double>& p) {
    return on_these_links(*anchors[i].law, anchors[i].key, p[0], p[i + 1]);
  };
  const auto residuals = [&](const std::vector<double>& p) {
    std::vector<double> result = {std::log(p[0] / kLinkShare) * kRowSigma / kShareSigma};
    for (std::size_t i = 0; i < anchors.size(); ++i) {
      const SizeCurve curve = SizeCurve::from(law(i, p), anchors[i].key);
      const double weight = kRowSigma / row_sigma(anchors[i]);
      for (const CurvePoint& point : points[i])
        result.push_back(weight * std::log(curve.seconds(point.ranks, point.bytes) / point.seconds));
      result.push_back(std::log(p[i + 1]) * kRowSigma / kLatencySigma);
    }
    return result;
  };
  std::vector<double> start(anchors.size() + 1, 1.0);
  FitOptions options;
  options.low.assign(start.size(), 0.1);
  options.high.assign(start.size(), 10);
  start[0] = kLinkShare;
  options.low[0] = 0.2;
  options.high[0] = 1.2;
  const FitResult fit = fit_log(start, residuals, options);

  Anchored result{{}, fit.values[0]};
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    ParameterSet set = law(i, fit.values);
    const SizeCurve curve = SizeCurve::from(set, anchors[i].key);
    double squares = 0;
    double low = points[i].front().bytes, high = low, fewest = points[i].front().ranks, most = fewest;
    for (const CurvePoint& point : points[i]) {
      squares += std::pow(std::log(curve.seconds(point.ranks, point.bytes) / point.seconds), 2);
      low = std::min(low, point.bytes);
      high = std::max(high, point.bytes);
      fewest = std::min<double>(fewest, point.ranks);
      most = std::max<double>(most, point.ranks);
    }
    set.residual =
        std::max(std::sqrt(squares / static_cast<double>(points[i].size())), row_sigma(anchors[i]));
    set.systematic = kAnchoredLaw;
    set.domain = {{"bytes", low, high}, {"ranks", fewest, most}};
    set.rows = static_cast<int>(anchors[i].rows.size());
    set.derived = false;
    result.laws.push_back(std::move(set));
  }
  return result;
}

std::vector<CollectiveRow> rows_of(const Measurements& measured, const Profile& profile,
                                   const std::string& key) {
  std::vector<CollectiveRow> rows;
  for (const CollectiveRow& row : measured.collectives) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (device && device == device_of_gpu(profile.gpu()) && inside_domain(row, profile) &&
        !integer_reduction(row) && collective_key(row.op, false) == key)
      rows.push_back(row);
  }
  return rows;
}

std::string first_source(const std::vector<CollectiveRow>& rows) {
  const std::string& source = rows.front().origin.source;
  return source.substr(0, source.find(','));
}

// Returns the ratio of the shares of peak that the GPU and the relative reach with their best products. fp8
// falls back to bf16; 1 where one of them is unknown.
double reached_ratio(const Device* to, const Device* from, models::DType dtype) {
  if (!to || !from) return 1;
  const auto share = [](const Device& d, models::DType type, double best) {
    return best / d.limits.peak_flops[static_cast<std::size_t>(type)];
  };
  if (bytes_of(dtype) == 1 && to->best_fp8 > 0 && from->best_fp8 > 0)
    return share(*to, models::DType::kFp8, to->best_fp8) / share(*from, models::DType::kFp8, from->best_fp8);
  if (to->best_bf16 <= 0 || from->best_bf16 <= 0) return 1;
  return share(*to, models::DType::kBf16, to->best_bf16) /
         share(*from, models::DType::kBf16, from->best_bf16);
}

// Collectives among cards of one node that have no links of their own: PCIe and the host carry them.
//
// A GPU reaches share(n) of its PCIe link, one way, when n GPUs of the node move at once: the root ports, the
// links between sockets and the memory of the host are shared. Published rates of boxes with PCIe 4 and 5 fit
//   share(n) = pair (2 / n)^e
// with an exponent for rings (all-reduce, all-gather, reduce-scatter) and one for exchanges, and a factor for
// cards without peer-to-peer access, whose copies pass the host's memory. The time of small messages grows
// with n. Boxes differ by more than cards do, so the law's scatter is that of the boxes.
struct PcieShares {
  double pair = 0;  // share of the link that two GPUs reach
  double ring = 0, exchange = 0;
  double through_memory = 1;                 // factor of cards without peer-to-peer access
  double latency = 0, latency_per_rank = 0;  // seconds
  double sigma = 0;                          // log standard deviation of published boxes around the law
  std::string source;

  double share(bool exchanges, double ranks, bool memory) const {
    return pair * std::pow(2 / ranks, exchanges ? exchange : ring) * (memory ? through_memory : 1);
  }
};

PcieShares fitted() {
  const JsonNode boxes = JsonNode::parse(models::embedded_table("pcie_boxes"), "pcie_boxes.json");
  const auto with = [](const std::vector<double>& p) {
    PcieShares s;
    s.pair = p[0], s.ring = p[1], s.exchange = p[2], s.through_memory = p[3];
    return s;
  };
  FitOptions options;
  options.huber = 1;  // no row is an outlier: boxes are as different as that
  options.low = {0.1, 0.01, 0.01, 0.3};
  options.high = {1, 2, 2, 1};
  const auto rate_residuals = [&, rates = boxes.find("rates")->items()](const std::vector<double>& p) {
    std::vector<double> result;
    for (const JsonNode& rate : rates) {
      JsonObject one(rate);
      const double share = with(p).share(one.boolean("exchange", false), one.at("gpus").number(),
                                         one.boolean("through_memory", false));
      result.push_back(std::log(share * one.at("link").number() / one.at("gbps").number()));
    }
    return result;
  };
  const FitResult rates = fit_log({0.8, 0.5, 0.6, 0.8}, rate_residuals, options);
  PcieShares shares = with(rates.values);
  shares.sigma = rates.rms;
  shares.source = boxes.find("source")->string();

  const auto latency_residuals = [latencies =
                                      boxes.find("latencies")->items()](const std::vector<double>& p) {
    std::vector<double> result;
    result.reserve(latencies.size());
    for (const JsonNode& one : latencies)
      result.push_back(std::log((p[0] + p[1] * (one.find("gpus")->number() - 1)) / one.find("us")->number()));
    return result;
  };
  options.low = {0.1, 0.1};
  options.high = {100, 100};
  const FitResult latencies = fit_log({5, 4}, latency_residuals, options);
  shares.latency = 1e-6 * latencies.values[0];
  shares.latency_per_rank = 1e-6 * latencies.values[1];
  return shares;
}

const PcieShares& pcie_shares() {
  static const PcieShares shares = fitted();
  return shares;
}

}  // namespace

ParameterSet on_other_links(const ParameterSet& set, const DeviceLimits& from, const DeviceLimits& to,
                            double wire_factor, double share) {
  ParameterSet result = set;
  if (from.scaleup_bandwidth <= 0 || to.scaleup_bandwidth <= 0) return result;
  const SizeCurve curve = SizeCurve::from(set, "derived");
  const bool slower_links = same_chip(from, to) && to.scaleup_bandwidth <= from.scaleup_bandwidth;
  const double ratio = from.scaleup_bandwidth / to.scaleup_bandwidth * kLinkShare / share;
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    if (!result.names[i].starts_with("excess/")) continue;
    const auto parts = split(result.names[i], '/');
    const double ranks = *parse_number(parts[1]), bytes = *parse_number(parts[2]);
    double& excess = result.values[i];
    if (slower_links) {
      const double wire = wire_factor * bytes * (ranks - 1) / ranks;
      const double total = std::pow(excess, kOverlapPower);
      // Limited to all of it: reductions in the switch move less than a ring.
      const double links =
          std::min(std::pow(wire / (kLinkShare * from.scaleup_bandwidth), kOverlapPower), total);
      excess = std::pow(total - links + links * std::pow(ratio, kOverlapPower), 1 / kOverlapPower);
    } else {
      const double large = curve.size[curve.knots - 1];
      const double slope = (curve.excess_at(ranks, 2 * large) - curve.excess_at(ranks, large)) / large;
      excess = std::max(excess + slope * (ratio - 1) * bytes, 0.0);
    }
  }
  return result;
}

ParameterSet pcie_law(const std::string& key, double link_bandwidth, Links links) {
  const PcieShares& shares = pcie_shares();
  const bool exchanges = key.find("all_to_all") != std::string::npos;
  const bool message = key.find("send_recv") != std::string::npos;  // one of a pair, its own bytes
  // The excess is linear in the size, so that two knots say it.
  constexpr double kLeast = 512, kMost = 17179869184;
  ParameterSet law;
  law.law = "size-curve";
  law.names = {"latency", "latency_per_rank"};
  law.values = {shares.latency, shares.latency_per_rank};
  for (const int ranks : {2, 4, 8}) {
    const double rate = link_bandwidth * shares.share(exchanges, ranks, links == Links::kPcieThroughMemory);
    const double wire = message ? 1 : wire_factor(key) * (ranks - 1) / ranks;
    for (const double bytes : {kLeast, kMost}) {
      law.names.push_back(fmt::format("excess/{}/{:.0f}", ranks, bytes));
      law.values.push_back(wire * bytes / rate);
    }
  }
  law.domain = {{"bytes", kLeast, kMost}, {"ranks", 2, 8}};
  law.residual = shares.sigma;
  law.derived = true;
  law.source = shares.source;
  return law;
}

void derive_missing(Profile& profile, const Profile& relative, const Measurements& measured) {
  std::vector<std::string> derived, fitted;
  // Cards without links of their own share nothing with the relative's: PCIe has a law for all of them.
  const bool by_pcie = models::by_pcie(profile.name());
  std::map<std::string, ParameterSet> host_laws;
  std::vector<std::string> through_host;
  const DeviceLimits &from = relative.device(), &to = profile.device();
  const OnTheseLinks on_these_links = by_pcie ? of_these : of_relative(from, to);
  const auto lacks = [&](const std::string& key) {
    return !profile.find(key) && key.find('@') == std::string::npos;
  };
  std::vector<Anchor> anchors;
  for (const auto& [key, set] : relative.sets()) {
    if (!key.ends_with("/scaleup") || !lacks(key)) continue;
    if (by_pcie)
      host_laws[key] = pcie_law(key, to.scaleup_bandwidth, models::gpu_family(profile.name())->links);
    auto rows = rows_of(measured, profile, key);
    if (!rows.empty()) anchors.push_back({key, by_pcie ? &host_laws.at(key) : &set, std::move(rows)});
  }
  double share = kLinkShare;
  const std::string law_of = by_pcie ? "PCIe through the host" : relative.name();
  if (!anchors.empty()) {
    Anchored result = anchored(anchors, on_these_links);
    share = result.share;
    for (std::size_t i = 0; i < anchors.size(); ++i) {
      result.laws[i].source = first_source(anchors[i].rows) + ", in the law of " + law_of;
      profile.set(anchors[i].key, std::move(result.laws[i]));
      fitted.push_back(anchors[i].key + " (" + std::to_string(anchors[i].rows.size()) + " rows)");
    }
  }
  for (const auto& [key, set] : relative.sets()) {
    if (!lacks(key)) continue;
    if (const auto host = host_laws.find(key); host != host_laws.end()) {
      profile.set(key, on_these_links(host->second, key, share, 1));
      through_host.push_back(key);
      continue;
    }
    ParameterSet copy = key.ends_with("/scaleup") ? on_these_links(set, key, share, 1) : set;
    if (key.starts_with("gemm/") || key.starts_with("grouped_gemm/")) {
      const models::DType dtype = models::dtype_named(key.substr(key.find('/') + 1));
      if (to.peak_flops[static_cast<std::size_t>(dtype)] <= 0) continue;
      const Device *own = find_device(profile.name()), *other = find_device(relative.name());
      double ratio = reached_ratio(own, other, dtype);
      if (key.starts_with("grouped") && own && other) ratio *= own->grouped_share / other->grouped_share;
      // A card's clock rises above that of the data sheet, whose peak bounds every forecast.
      const double most = by_pcie ? 1 : std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < copy.names.size(); ++i)
        if (copy.names[i] == "peak_share") copy.values[i] = std::min(copy.values[i] * ratio, most);
    }
    copy.derived = true;
    copy.residual = std::hypot(copy.residual, same_chip(from, to) ? kSameChip : kOtherChip);
    copy.rows = 0;
    copy.source = "derived from " + relative.name() + ": " + set.source;
    profile.set(key, copy);
    derived.push_back(key);
  }
  auto gaps = profile.gaps();
  if (!fitted.empty())
    gaps.push_back("the law of " + law_of +
                   " on its own links, their share and its latencies fitted: " + join(fitted, ", "));
  if (!through_host.empty())
    gaps.push_back("PCIe through the host, not measured on this GPU: " + join(through_host, ", ") +
                   "; fitted to published boxes of other cards, which differ by " +
                   fmt::format("{:.0f} %", 100 * pcie_shares().sigma));
  if (!derived.empty())
    gaps.push_back("derived from " + relative.name() + ", not measured: " + join(derived, ", "));
  profile.describe(profile.name(), profile.gpu(), profile.provenance(), gaps);
}

}  // namespace moesim::calibration

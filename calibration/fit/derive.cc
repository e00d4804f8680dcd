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

#include "base/text.h"
#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/size_curve.h"
#include "models/hardware/dtype.h"
#include "models/hardware/gpu_family.h"

namespace moesim::calibration {

namespace {

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

namespace {

using models::ParameterSet;
using Links = models::GpuFamily::Links;

constexpr double kPcie4 = 31.5, kPcie5 = 63;  // GB/s of 16 lanes, one way

// GB/s that every GPU of the box moved one way (the bus bandwidth of nccl-tests), all of them at once.
struct PublishedRate {
  double link, rate;
  int gpus;
  bool exchange;
  Links links;
  std::string_view source;
};
constexpr PublishedRate kRates[] = {
    // Pairs, both ways at once.
    {kPcie4, 15.2, 2, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 814: RTX 4090, P2P disabled"},
    {kPcie5, 51.5, 2, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC 9374F, one socket"},
    {kPcie5, 32.0, 2, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC 9374F, across sockets"},
    {kPcie5, 55.5, 2, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC Turin"},
    // All-reduce of large messages.
    {kPcie4, 20.0, 3, false, Links::kPcie, "NVIDIA/nccl-tests issue 178: A100 PCIe"},
    {kPcie4, 12.8, 4, false, Links::kPcie, "tinygrad/open-gpu-kernel-modules pull request 22: RTX 4090"},
    {kPcie4, 24.7, 5, false, Links::kPcie, "tinygrad/open-gpu-kernel-modules issue 17: RTX 4090, P2P"},
    {kPcie5, 35.0, 4, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 1639: RTX 5090, Xeon 8480+"},
    {kPcie5, 28.0, 8, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 1639: RTX 5090, Xeon 8480+"},
    {kPcie5, 30.3, 4, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, default"},
    {kPcie5, 39.3, 4, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, NCCL_P2P_LEVEL=SYS"},
    {kPcie5, 21.6, 8, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, 32 MB in 2,715 us"},
    {kPcie5, 22.2, 8, false, Links::kPcie, "rtx6kpro: dual EPYC Turin, default"},
    {kPcie5, 37.6, 8, false, Links::kPcie, "rtx6kpro: dual EPYC Turin, tuned"},
    {kPcie5, 41.1, 8, false, Links::kPcie, "rtx6kpro: three switches, one socket"},
    {kPcie5, 39.4, 8, false, Links::kPcie, "rtx6kpro: four switches, one socket"},
    {kPcie5, 46.4, 8, false, Links::kPcie, "rtx6kpro: two switches of Threadripper"},
    // Everybody with everybody (p2pmark).
    {kPcie5, 34.6, 4, true, Links::kPcie, "rtx6kpro: one switch"},
    {kPcie5, 32.4, 4, true, Links::kPcie, "rtx6kpro: dual EPYC Turin, one socket"},
    {kPcie5, 31.9, 4, true, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, one socket"},
    {kPcie5, 24.0, 8, true, Links::kPcie, "rtx6kpro: three switches, one socket"},
    {kPcie5, 21.6, 8, true, Links::kPcie, "rtx6kpro: dual EPYC Turin"},
    {kPcie5, 20.5, 8, true, Links::kPcie, "rtx6kpro: four switches, one socket"},
    {kPcie5, 22.4, 8, true, Links::kPcie, "rtx6kpro: two switches of Threadripper"},
    {kPcie5, 6.5, 8, true, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, both sockets"},
};

// Microseconds of the smallest messages.
struct PublishedLatency {
  int gpus;
  double us;
  std::string_view source;
};
constexpr PublishedLatency kLatencies[] = {
    {2, 11.6, "tinygrad/open-gpu-kernel-modules issue 17: RTX 4090, P2P disabled, alltoall"},
    {4, 14.1, "rtx6kpro: ASUS ESC8000A-E13P"},
    {4, 14.7, "gardenlinux issue 4556: RTX PRO 6000"},
    {8, 42.1, "NVIDIA/nccl issue 1530: RTX 4090"},
    {8, 48.2, "rtx6kpro: dual EPYC Turin, default"},
    {8, 26.2, "rtx6kpro: dual EPYC Turin, tuned"},
    {8, 24.1, "rtx6kpro: three switches"},
    {8, 27.1, "rtx6kpro: ASUS ESC8000A-E13P"},
    {8, 17.3, "rtx6kpro: two switches of Threadripper"},
};

constexpr std::string_view kSource =
    "PCIe through the host, fitted to published boxes: local-inference-lab/rtx6kpro @e2c2b95, NVIDIA/nccl "
    "issues 814, 1530 and 1639, NVIDIA/nccl-tests issue 178, tinygrad/open-gpu-kernel-modules";

PcieShares fitted() {
  PcieShares shares;
  const auto with = [](const std::vector<double>& p) {
    PcieShares s;
    s.pair = p[0], s.ring = p[1], s.exchange = p[2], s.through_memory = p[3];
    return s;
  };
  const auto rate_residuals = [&](const std::vector<double>& p) {
    std::vector<double> result;
    for (const PublishedRate& one : kRates)
      result.push_back(std::log(with(p).share(one.exchange, one.gpus, one.links) * one.link / one.rate));
    return result;
  };
  FitOptions options;
  options.huber = 1;  // no row is an outlier: boxes are as different as that
  options.low = {0.1, 0.01, 0.01, 0.3};
  options.high = {1, 2, 2, 1};
  const FitResult rates = fit_log({0.8, 0.5, 0.6, 0.8}, rate_residuals, options);
  shares = with(rates.values);
  shares.sigma = rates.rms;

  const auto latency_residuals = [](const std::vector<double>& p) {
    std::vector<double> result;
    for (const PublishedLatency& one : kLatencies)
      result.push_back(std::log((p[0] + p[1] * (one.gpus - 1)) / one.us));
    return result;
  };
  options.low = {0.1, 0.1};
  options.high = {100, 100};
  const FitResult latencies = fit_log({5, 4}, latency_residuals, options);
  shares.latency = 1e-6 * latencies.values[0];
  shares.latency_per_rank = 1e-6 * latencies.values[1];
  return shares;
}

}  // namespace

double PcieShares::share(bool exchanges, double ranks, Links links) const {
  return pair * std::pow(2 / ranks, exchanges ? exchange : ring) *
         (links == Links::kPcieThroughMemory ? through_memory : 1);
}

const PcieShares& pcie_shares() {
  static const PcieShares shares = fitted();
  return shares;
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
    const double rate = link_bandwidth * shares.share(exchanges, ranks, links);
    const double wire = message ? 1 : wire_factor(key) * (ranks - 1) / ranks;
    for (const double bytes : {kLeast, kMost}) {
      law.names.push_back(fmt::format("excess/{}/{:.0f}", ranks, bytes));
      law.values.push_back(wire * bytes / rate);
    }
  }
  law.domain = {{"bytes", kLeast, kMost}, {"ranks", 2, 8}};
  law.residual = shares.sigma;
  law.derived = true;
  law.source = kSource;
  return law;
}

}  // namespace moesim::calibration

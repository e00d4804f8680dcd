#include "calibration/fit/pcie_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "calibration/fit/least_squares.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using Links = models::GpuFamily::Links;

constexpr double kPcie4 = 31.5, kPcie5 = 63;  // GB/s of 16 lanes, one way

// GB/s that every GPU of the box moved one way (the bus bandwidth of nccl-tests), all of them at once.
struct PublishedRate {
  int gpus;
  double link, rate;
  bool exchange;
  Links links;
  std::string_view source;
};
constexpr PublishedRate kRates[] = {
    // Pairs, both ways at once.
    {2, kPcie4, 15.2, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 814: RTX 4090, P2P disabled"},
    {2, kPcie5, 51.5, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC 9374F, one socket"},
    {2, kPcie5, 32.0, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC 9374F, across sockets"},
    {2, kPcie5, 55.5, false, Links::kPcie, "rtx6kpro pcie-bandwidth.md: dual EPYC Turin"},
    // All-reduce of large messages.
    {3, kPcie4, 20.0, false, Links::kPcie, "NVIDIA/nccl-tests issue 178: A100 PCIe"},
    {4, kPcie4, 12.8, false, Links::kPcie, "tinygrad/open-gpu-kernel-modules pull request 22: RTX 4090"},
    {5, kPcie4, 24.7, false, Links::kPcie, "tinygrad/open-gpu-kernel-modules issue 17: RTX 4090, P2P"},
    {4, kPcie5, 35.0, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 1639: RTX 5090, Xeon 8480+"},
    {8, kPcie5, 28.0, false, Links::kPcieThroughMemory, "NVIDIA/nccl issue 1639: RTX 5090, Xeon 8480+"},
    {4, kPcie5, 30.3, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, default"},
    {4, kPcie5, 39.3, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, NCCL_P2P_LEVEL=SYS"},
    {8, kPcie5, 21.6, false, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, 32 MB in 2,715 us"},
    {8, kPcie5, 22.2, false, Links::kPcie, "rtx6kpro: dual EPYC Turin, default"},
    {8, kPcie5, 37.6, false, Links::kPcie, "rtx6kpro: dual EPYC Turin, tuned"},
    {8, kPcie5, 41.1, false, Links::kPcie, "rtx6kpro: three switches, one socket"},
    {8, kPcie5, 39.4, false, Links::kPcie, "rtx6kpro: four switches, one socket"},
    {8, kPcie5, 46.4, false, Links::kPcie, "rtx6kpro: two switches of Threadripper"},
    // Everybody with everybody (p2pmark).
    {4, kPcie5, 34.6, true, Links::kPcie, "rtx6kpro: one switch"},
    {4, kPcie5, 32.4, true, Links::kPcie, "rtx6kpro: dual EPYC Turin, one socket"},
    {4, kPcie5, 31.9, true, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, one socket"},
    {8, kPcie5, 24.0, true, Links::kPcie, "rtx6kpro: three switches, one socket"},
    {8, kPcie5, 21.6, true, Links::kPcie, "rtx6kpro: dual EPYC Turin"},
    {8, kPcie5, 20.5, true, Links::kPcie, "rtx6kpro: four switches, one socket"},
    {8, kPcie5, 22.4, true, Links::kPcie, "rtx6kpro: two switches of Threadripper"},
    {8, kPcie5, 6.5, true, Links::kPcie, "rtx6kpro: ASUS ESC8000A-E13P, both sockets"},
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
  const double twice = key.find("all_reduce") != std::string::npos ? 2 : 1;
  // The excess is linear in the size, so that two knots say it.
  constexpr double kLeast = 512, kMost = 17179869184;
  ParameterSet law;
  law.law = "size-curve";
  law.names = {"latency", "latency_per_rank"};
  law.values = {shares.latency, shares.latency_per_rank};
  for (const int ranks : {2, 4, 8}) {
    const double rate = link_bandwidth * shares.share(exchanges, ranks, links);
    const double wire = message ? 1 : twice * (ranks - 1) / ranks;
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

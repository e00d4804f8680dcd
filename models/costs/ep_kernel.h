// Dispatch and combine kernels of expert-parallel libraries (DeepEP, HybridEP, TensorRT-LLM, pplx, UCCL-EP):
// one kernel that sends every token once to each GPU (or node) that needs it (law "ep-kernel").
//
//   T = latency + latency_per_octave log2 EP + per_token t
//     + max(max(W_nvl / B_nvl, W_net / B_net) (1 + sm_half / SMs), (W_nvl + W_net) / (R SMs)), R = sm_share
//     HBM / (2 all SMs)
//
// Across domains the SMs copy the bytes of both stages at a rate of their own, and more SMs than the network
// needs change nothing (parameter "sm_share"); inside a domain more SMs always help a little ("sm_half").
//
// Where links form a mesh of `mesh` GPUs, n of them use n - 1 of the mesh - 1 links of a GPU.
//
// t: tokens per rank. W: wire bytes of the busiest link under even routing, own GPU (node) excluded. K of the
// E experts are drawn, so a token reaches P (1 - C(E - E/P, K) / C(E, K)) of P equal places, about P (1 - (1
// - 1/P)^K). Low-latency kernels do not merge copies: a token travels K times.
#pragma once

#include <string>
#include <string_view>

#include "models/costs/domain_report.h"
#include "models/hardware/device_work.h"
#include "models/hardware/profile.h"

namespace moesim::models {

// Additional uncertainty of a dispatch kernel outside of its measured range.

// Returns the log standard deviation of the time of a kernel on `ranks` ranks with `tokens` tokens each,
// where rows cover the given ranges: 0 inside. EP sizes left out of a fit are off by 9.3 % in the median and
// 33 % in the mean with 85 % of their rows inside, decades of tokens by 11 % with 88 % inside
// (docs/calibration.md). The two numbers are chosen in view of these errors, not fitted to them.
inline double kernel_doubt(const DomainRange& measured_ranks, const DomainRange& measured_tokens,
                           double ranks, double tokens) {
  constexpr double kPerRankOctave = 0.2, kPerTokenOctave = 0.04;
  return kPerRankOctave * octaves_outside(measured_ranks, ranks) +
         kPerTokenOctave * octaves_outside(measured_tokens, tokens);
}

// Likewise from the ranges of a law; a quantity without a range adds nothing.
inline double kernel_doubt(const ParameterSet& law, double ranks, double tokens) {
  const auto range = [&](std::string_view quantity, double value) {
    const DomainRange* measured = law.range(quantity);
    return measured ? *measured : DomainRange{std::string(quantity), value, value};
  };
  return kernel_doubt(range("ranks", ranks), range("tokens", tokens), ranks, tokens);
}

struct EpKernelCall {
  double tokens = 0;  // per rank
  double hidden = 0;
  int topk = 1;
  int ranks = 1;      // EP
  int domains = 1;    // NVLink domains spanned by the ranks
  double groups = 0;  // node limit per token (DeepSeek's group-limited routing); 0: no limit
  double bytes_per_element = 2;
  double scale_bytes = 0;  // extra bytes per token (fp8 scales: 4 per 128 elements)
  double sms = 0;          // 0 = the library's choice
  bool merged = true;      // copies of a token for one place are sent once
};

// Returns the mean number of distinct places, of `places`, that hold the topk experts of a token.
double distinct_places(double places, double topk);

class EpKernelModel {
 public:
  // `key`: "ep/deepep_v1_normal_dispatch", ...; `nic_bandwidth`: bytes/s of one GPU's port. A
  // `scaleup_bandwidth` other than 0 replaces the device's own.
  EpKernelModel(const Profile& profile, const std::string& key, double nic_bandwidth,
                double scaleup_bandwidth = 0);
  double seconds(const EpKernelCall& call) const;
  // Applies the law to given wire bytes of one rank instead of even routing: bytes through its NVLink ports
  // and through its network port, each the larger of sent and received. `sms` as in EpKernelCall.
  double seconds(double tokens, int ranks, double nvlink_bytes, double network_bytes, double sms = 0) const;

 private:
  // Share of a GPU's links that reaches `ranks` of its domain: 1, or on a mesh one link each.
  double links(double ranks) const;
  // Returns seconds in which the SMs copy the bytes that the kernel sends.
  double copying(double bytes, double sms) const;

  double latency_ = 0, latency_per_octave_ = 0, per_token_ = 0, sm_half_ = 0, sm_rate_ = 0, mesh_ = 0;
  double scaleup_ = 1, network_ = 1;              // bytes/s
  double scaleup_limit_ = 1, network_limit_ = 1;  // bytes/s of the ports themselves
  double factor_ = 1;
};

}  // namespace moesim::models

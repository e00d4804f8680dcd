// Dispatch and combine kernels of expert-parallel libraries (DeepEP, HybridEP, TensorRT-LLM, pplx, UCCL-EP):
// one kernel that sends every token once to each GPU (or node) that needs it (law "ep-kernel").
//
//   T = latency + latency_per_octave log2 EP + per_token t
//     + max(max(W_nvl / B_nvl, W_net / B_net) (1 + sm_half / SMs), (W_nvl + W_net) / (R SMs)), R = sm_share
//     HBM / (2 all SMs)
//
// Across domains the SMs copy both stages' bytes at a rate of their own, and more of them than the network
// needs change nothing (parameter "sm_share"); inside a domain more SMs always help a little ("sm_half").
//
// Where the links are a mesh of so many GPUs (parameter "mesh"), n of them use n - 1 of a GPU's mesh - 1
// links.
//
// t tokens per rank. W counts wire bytes of the busiest link under even routing, own GPU (node) excluded: of
// the E experts K are drawn, so that a token reaches P (1 - C(E - E/P, K) / C(E, K)) of P equal places, about
// P (1 - (1 - 1/P)^K). Low-latency kernels do not merge copies: a token travels K times.
#pragma once

#include <string>

#include "models/hardware/device_work.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct EpKernelCall {
  double tokens = 0;  // per rank
  double hidden = 0;
  int topk = 1;
  int ranks = 1;      // EP
  int domains = 1;    // NVLink domains they span
  double groups = 0;  // a token is limited to this many nodes (DeepSeek's top-k groups); 0 = not limited
  double bytes_per_element = 2;
  double scale_bytes = 0;  // extra bytes per token (fp8 scales: 4 per 128 elements)
  double sms = 0;          // 0 = the library's choice
  bool merged = true;      // copies of a token for one place are sent once
};

// Mean number of distinct places, of `places`, that the topk experts of a token lie on.
double distinct_places(double places, double topk);

class EpKernelModel {
 public:
  // `key`: "ep/deepep_v1_normal_dispatch", ... ; `nic_bandwidth`: bytes/s of the port of one GPU.
  // `scaleup_bandwidth` replaces the device's own where it is not 0.
  EpKernelModel(const Profile& profile, const std::string& key, double nic_bandwidth,
                double scaleup_bandwidth = 0);
  double seconds(const EpKernelCall& call) const;
  // The same law for given wire bytes of one rank, instead of those of even routing: through its NVLink ports
  // and through its network port, whichever of sending and receiving is more.
  // `sms` as EpKernelCall's.
  double seconds(double tokens, int ranks, double nvlink_bytes, double network_bytes, double sms = 0) const;

 private:
  // Share of a GPU's links that reaches `ranks` of its domain: all of them, or on a mesh one for each.
  double links(double ranks) const;
  // Seconds in which the SMs copy what the kernel sends.
  double copying(double bytes, double sms) const;

  double latency_ = 0, latency_per_octave_ = 0, per_token_ = 0, sm_half_ = 0, sm_rate_ = 0, mesh_ = 0;
  double scaleup_ = 1, network_ = 1;              // bytes/s
  double scaleup_limit_ = 1, network_limit_ = 1;  // of the ports themselves
  double factor_ = 1;
};

}  // namespace moesim::models

#include "models/costs/ep_kernel.h"

#include <algorithm>
#include <cmath>

namespace moesim::models {

double distinct_places(double places, double topk) {
  return places <= 1 ? 1 : places * (1 - std::pow(1 - 1 / places, topk));
}

EpKernelModel::EpKernelModel(const Profile& profile, const std::string& key, double nic_bandwidth,
                             double scaleup_bandwidth) {
  const ParameterSet& set = profile.at(key);
  latency_ = set.get("latency", 2e-5);
  latency_per_octave_ = set.get("latency_per_octave", 0);
  per_token_ = set.get("per_token", 0);
  sm_half_ = set.get("sm_half", 0);
  mesh_ = set.get("mesh", 0);
  // A copy reads and writes; an SM copies at its share of the memory's bandwidth.
  const DeviceLimits& device = profile.device();
  if (device.sms > 0) sm_rate_ = set.get("sm_share", 0) * device.hbm_bandwidth / (2 * device.sms);
  scaleup_limit_ = scaleup_bandwidth > 0 ? scaleup_bandwidth : profile.device().scaleup_bandwidth;
  network_limit_ = nic_bandwidth;
  scaleup_ = scaleup_limit_ * set.get("scaleup_share", 0.7);
  network_ = nic_bandwidth * set.get("network_share", 0.9);
  factor_ = set.factor;
}

double EpKernelModel::links(double ranks) const {
  return mesh_ > 1 && ranks > 1 ? std::min(1.0, (ranks - 1) / (mesh_ - 1)) : 1;
}

double EpKernelModel::copying(double bytes, double sms) const {
  return sm_rate_ > 0 ? bytes / (sm_rate_ * (sms > 0 ? sms : kUsualSms)) : 0;
}

double EpKernelModel::seconds(const EpKernelCall& call) const {
  const double token = call.hidden * call.bytes_per_element + call.scale_bytes;
  const double per_domain = static_cast<double>(call.ranks) / call.domains;
  double nvlink = 0, network = 0;
  if (!call.merged) {
    const double remote = static_cast<double>(call.topk) / call.ranks;  // copies per destination rank
    nvlink = remote * (per_domain - 1);
    network = remote * (call.ranks - per_domain);
  } else {
    // Copies go to the token's nodes first, then to the GPUs inside each.
    const double nodes = call.groups > 0 ? std::min(distinct_places(call.domains, call.topk), call.groups)
                                         : distinct_places(call.domains, call.topk);
    network = nodes * (call.domains - 1) / call.domains;
    const double gpus = call.domains == 1
                            ? distinct_places(per_domain, call.topk)
                            : nodes * distinct_places(per_domain, call.topk / std::max(nodes, 1.0));
    nvlink = gpus * (per_domain - 1) / per_domain;
  }
  const double sms = call.sms > 0 ? 1 + sm_half_ / call.sms : 1;
  double transfer = nvlink * token / (scaleup_ * links(per_domain));
  if (network > 0) transfer = std::max(transfer, network * token / network_);
  transfer = std::max(transfer * sms, copying((nvlink + network) * token, call.sms));
  return factor_ * (latency_ + latency_per_octave_ * std::log2(std::max(call.ranks, 1)) +
                    per_token_ * call.tokens + call.tokens * transfer);
}

double EpKernelModel::seconds(double tokens, int ranks, double nvlink_bytes, double network_bytes,
                              double sms) const {
  const double slower = sms > 0 ? 1 + sm_half_ / sms : 1;
  // Never faster than the ports, however many SMs: the fit may be steep where few SMs were measured.
  const double on_links = nvlink_bytes / links(ranks);
  double transfer = on_links * std::max(slower / scaleup_, 1 / scaleup_limit_);
  if (network_bytes > 0)
    transfer = std::max(transfer, network_bytes * std::max(slower / network_, 1 / network_limit_));
  transfer = std::max(transfer, copying(nvlink_bytes + network_bytes, sms));
  return factor_ * (latency_ + latency_per_octave_ * std::log2(std::max(ranks, 1)) + per_token_ * tokens) +
         std::max(factor_ * transfer, on_links / scaleup_limit_);
}

}  // namespace moesim::models

#include "calibration/fit/fit_dispatch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/text.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/devices.h"
#include "models/hardware/gpu_family.h"

namespace moesim::calibration {
namespace {

constexpr const char *kNetworkShare = "network_share", *kScaleupShare = "scaleup_share";
constexpr double kUnidentified = 0.5;  // log standard deviation of a share

using models::EpKernelCall;
using models::EpKernelModel;
using models::ParameterSet;
using models::Profile;

double element_bytes(const DispatchRow& row) {
  if (row.dtype.find("fp8") != std::string::npos) return 1;
  if (row.dtype.find("fp4") != std::string::npos) return 0.5;
  return 2;
}

// Returns the GPUs of a mesh of links, 0 with a switch.
double mesh_of(const DispatchRow& row) {
  const Device* device = device_of_gpu(row.origin.gpu);
  const models::GpuFamily* family = device ? models::gpu_family(device->profile) : nullptr;
  return family && family->amd() ? device->limits.scaleup_domain : 0;
}

ParameterSet with_mesh(ParameterSet set, double gpus) {
  if (gpus > 0) add_known(set, "mesh", gpus);
  return set;
}

}  // namespace

std::optional<EpKernelCall> call_of(const DispatchRow& row) {
  if (row.tokens <= 0 || row.hidden <= 0 || row.topk <= 0 || row.ep <= 1) return std::nullopt;
  if (row.kernel.find('+') != std::string::npos) return std::nullopt;  // the sum of two calls
  EpKernelCall call;
  call.tokens = row.tokens;
  call.hidden = row.hidden;
  call.topk = row.topk;
  call.ranks = row.ep;
  // GB200 trays of one rack share NVLink.
  call.domains = row.origin.gpu.starts_with("GB") ? (row.ep + 71) / 72 : std::min(row.nodes, row.ep);
  call.groups = row.topk_groups;
  call.bytes_per_element = element_bytes(row);
  call.scale_bytes = call.bytes_per_element == 1  ? row.hidden / 128.0 * 4
                     : call.bytes_per_element < 1 ? row.hidden / 16.0
                                                  : 0;
  call.sms = row.sms;
  call.merged =
      row.kernel.find("lowlatency") == std::string::npos && row.kernel.find("_ll_") == std::string::npos;
  return call;
}

double printed_bytes(const DispatchRow& row, const EpKernelCall& call) {
  const double token = call.hidden * call.bytes_per_element + call.scale_bytes;
  double copies = row.topk;
  if (call.merged) {
    copies = models::distinct_places(call.domains > 1 ? call.domains : call.ranks, row.topk);
    if (call.groups > 0 && call.domains > 1) copies = std::min(copies, call.groups);
  }
  return row.tokens * copies * token;
}

double seconds_of(const DispatchRow& row) {
  if (row.seconds > 0) return row.seconds;
  const auto call = call_of(row);
  return call && row.bandwidth > 0 ? printed_bytes(row, *call) / row.bandwidth : 0;
}

bool suspect(const DispatchRow& row) {
  static constexpr std::array<std::string_view, 8> kWords{
      "suspect",          "suspicious",           "stale",           "too low", "do not fit",
      "badly configured", "token count inferred", "lazy connections"};
  const std::string note = lower(row.note);
  return std::ranges::any_of(kWords,
                             [&](std::string_view word) { return note.find(word) != std::string::npos; });
}

bool across_domains(const DispatchRow& row) {
  const auto call = call_of(row);
  return call && call->domains > 1;
}

std::string law_key(const DispatchRow& row) { return "ep/" + row.kernel + "@" + row.dtype; }

ParameterSet fit_dispatch(const Profile& base, const std::vector<DispatchRow>& rows, const std::string& key) {
  std::set<int> ranks;
  std::set<double> sms;
  bool network = false;
  std::vector<EpKernelCall> calls;
  std::vector<double> measured;
  ParameterSet set;
  set.law = "ep-kernel";
  for (const DispatchRow& row : rows) {
    const auto call = call_of(row);
    const double seconds = seconds_of(row);
    if (!call || seconds <= 0) continue;
    calls.push_back(*call);
    measured.push_back(seconds);
    ranks.insert(call->ranks);
    if (call->sms > 0) sms.insert(call->sms);
    network = network || call->domains > 1;
    widen(set, "tokens", call->tokens);
    widen(set, "ranks", call->ranks);
  }
  std::vector<FittedParameter> parameters = {{"latency", 2e-5, 1e-6, 1e-2}};
  if (ranks.size() > 1) parameters.push_back({"latency_per_octave", 5e-6, 1e-8, 1e-3});
  if (calls.size() > 6) parameters.push_back({"per_token", 1e-9, 1e-12, 1e-6});
  parameters.push_back({kScaleupShare, 0.6, 1e-3, 20.0});
  if (network) parameters.push_back({kNetworkShare, 0.8, 1e-3, 3.0});
  if (sms.size() > 1) parameters.push_back({"sm_half", 5, 1e-2, 200});
  if (calls.empty()) {
    for (const FittedParameter& p : parameters) set.names.emplace_back(p.name);
    return set;
  }
  Profile profile = base;
  const double nic = profile.device().nic_bandwidth, mesh = mesh_of(rows.front());
  FitOptions options;
  options.huber = 0.15;
  fit_law(
      set, parameters,
      [&](const ParameterSet& trial) {
        profile.set(key, with_mesh(trial, mesh));
        const EpKernelModel model(profile, key, nic);
        std::vector<double> result;
        result.reserve(calls.size());
        for (std::size_t i = 0; i < calls.size(); ++i)
          result.push_back(std::log(model.seconds(calls[i]) / measured[i]));
        return result;
      },
      options);
  set.rows = static_cast<int>(calls.size());
  set.source = rows.front().origin.source;
  return with_mesh(std::move(set), mesh);
}

std::optional<ParameterSet> inside_stage(const Profile& base, const std::vector<DispatchRow>& rows,
                                         const std::string& key) {
  std::set<int> domains;
  for (const DispatchRow& row : rows)
    if (const auto call = call_of(row)) domains.insert(call->domains);
  const ParameterSet both = fit_dispatch(base, rows, key);
  if (domains.size() < 2 || both.rows < static_cast<int>(both.names.size())) return std::nullopt;
  ParameterSet inside = both;
  inside.names.clear(), inside.values.clear(), inside.covariance.clear();
  const std::size_t n = both.names.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (both.names[i] == kNetworkShare) continue;
    // Where the links never bind, the rows do not constrain them.
    if (both.names[i] == kScaleupShare && both.covariance[i * n + i] > kUnidentified * kUnidentified)
      return std::nullopt;
    inside.names.push_back(both.names[i]);
    inside.values.push_back(both.values[i]);
    for (std::size_t j = 0; j < n; ++j)
      if (both.names[j] != kNetworkShare) inside.covariance.push_back(both.covariance[i * n + j]);
  }
  inside.derived = true;
  inside.rows = 0;
  inside.source = "derived from rows across nodes: " + both.source;
  return inside;
}

}  // namespace moesim::calibration

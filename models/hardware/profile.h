// The measured profile of one kind of GPU: limits, fitted parameters with their covariance, domain and
// provenance.
//
// A profile is a JSON file, "schema": "moesim.profile/1" (docs/schemas/profile.schema.json lists its keys).
// The files of calibration/profiles/gpu/ are built into the binary. Cost models resolve a profile into plain
// numbers once, at construction; none of these functions is meant for a hot path.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/hardware/dtype.h"
#include "models/hardware/estimate.h"

namespace moesim {
class JsonNode;
class Random;
}  // namespace moesim

namespace moesim::models {

// A single measured or published number with its uncertainty and source: 1.003 "ms/GB" +- sigma.
struct Constant {
  double value = 0;
  double sigma = 0;  // one standard deviation, same unit; 0 where exact or unknown
  std::string unit;
  std::string source;
};

// The parameters of one law (one operation in one scope), fitted together.
struct ParameterSet {
  std::string law;  // the formula of the parameters, named in models/costs/collectives.h, gemm.h, kernels.h
  std::vector<std::string> names;
  std::vector<double> values;  // positive, SI units
  std::vector<double>
      covariance;  // of the logarithms of the values, row-major names x names; empty = unknown
  std::vector<DomainRange> domain;
  double residual = 0;  // rms of log(measured / model) over the fitted rows
  // log standard deviation for shapes outside of the fit (from leave-out model choice)
  double systematic = 0;
  int rows = 0;          // rows fitted; 0 = derived from another GPU or a data sheet
  bool derived = false;  // not fitted to measurements of this GPU
  // derived from rows of a kernel on a GPU of the same kind whose links are no faster: this one's time is
  // at most theirs
  bool of_kin = false;
  // share of the knowledge that comes from rows of the user's machine (calibrate refine)
  double own_share = 0;
  std::string source;
  double factor = 1;  // common factor on the law's time; 1 unless drawn (Profile::draw)
  double beyond = 0;  // drawn error outside of the measured range, in standard deviations; 0 unless drawn

  // Returns the value called `name`, or `fallback` where the set has none.
  double get(std::string_view name, double fallback) const;
  // Returns nullptr where the fit has no such quantity.
  const DomainRange* range(std::string_view quantity) const;
};

// Limits from data sheets. A bandwidth or rate of 0 means unknown and is refused where it is needed.
struct DeviceLimits {
  int sms = 0;
  double memory_bytes = 0;
  double l2_bytes = 0;
  double hbm_bandwidth = 0;   // bytes/s of the data sheet
  double hbm_efficiency = 1;  // best measured share of hbm_bandwidth
  std::array<double, kDTypes>
      peak_flops{};            // dense FLOP/s of the data sheet, indexed by DType; 0 = unsupported
  double sustained_clock = 1;  // sustained over burst speed of compute-bound kernels
  double boost_clock = 0;      // Hz at which the data sheet's peaks are reached
  // Slowdown of compute-bound kernels in a training step against a benchmark, from the power limit. 1 where
  // the sustained clock was measured on long runs.
  double power_slowdown = 1;
  // Share of attention's exponentials that its kernels compute on ordinary units, where the matrix units
  // outgrew the special functions (FlashAttention-4 and cuDNN 9).
  double exponentials_elsewhere = 0;
  // Product precisions that the GPU supports, named as --precision does; empty: all with a peak.
  std::vector<std::string> precisions;
  double scaleup_bandwidth = 0;  // NVLink / xGMI bytes/s per GPU and direction
  int scaleup_domain = 8;        // GPUs of one NVLink domain
  double nic_bandwidth = 0;      // usual network bytes/s per GPU and direction
  double host_link = 0;          // PCIe or NVLink-C2C to the host's memory, bytes/s per GPU and direction
  double host_memory = 0;        // bytes/s of the host's memory per GPU; data sheets of the usual node
  int gpus_per_node = 8;

  bool has_precision(std::string_view name) const;
};

// Host-side costs in seconds.
struct LaunchCosts {
  double kernel = 0;        // host time to launch one kernel
  double kernel_floor = 0;  // GPU time of the smallest kernel, launch hidden
  // from the end of the awaited GPU work until the host continues, copy latency included
  double host_sync = 0;
  double d2h_copy = 0;  // latency of one small device-to-host copy
};

// Slowdown of one kind of work while the other runs on the same GPU; 1 where it was not measured.
struct OverlapFactors {
  double compute_under_communication = 1;
  double communication_under_compute = 1;
};

class Profile {
 public:
  // Loads a built-in name ("h100-sxm") or a profile file. Throws InputError for an unknown name (with the
  // closest one), an unreadable file, an unknown key, a value outside its range, or a matrix that is not a
  // covariance.
  static Profile load(const std::string& name_or_path);
  static Profile parse(std::string_view json, const std::string& file);
  static const std::vector<std::string>& names();  // of the built-in profiles, sorted

  const std::string& name() const { return name_; }
  // Returns the argument that load() finds it by: a built-in name, or the path it was read from.
  const std::string& source() const { return source_.empty() ? name_ : source_; }
  const std::string& gpu() const { return gpu_; }  // name in published tables: "H100-SXM5-80GB"
  const std::string& provenance() const { return provenance_; }
  const std::vector<std::string>& gaps() const { return gaps_; }  // missing or derived parts, for people

  const DeviceLimits& device() const { return device_; }
  const LaunchCosts& launch() const { return launch_; }
  const OverlapFactors& overlap() const { return overlap_; }
  // Returns the factor on the time of attention's core where no constant sets its efficiency; 1 unless drawn.
  double attention_factor() const { return attention_factor_; }
  DeviceLimits& device() { return device_; }
  LaunchCosts& launch() { return launch_; }
  OverlapFactors& overlap() { return overlap_; }

  // Fitted laws by key: "collective/all_gather/scaleup", "gemm/bf16", "kernel/gather_rows", ...
  const ParameterSet* find(std::string_view key) const;  // nullptr when absent
  const ParameterSet& at(std::string_view key) const;    // throws InputError naming the profile and the gap
  using Laws = std::map<std::string, ParameterSet, std::less<>>;
  const Laws& sets() const { return *sets_; }
  void set(const std::string& key, ParameterSet parameters);
  void erase(const std::string& key) { own_sets().erase(key); }

  // Training-side constants by name, e.g. "gradient_prescale".
  const Constant* find_constant(std::string_view name) const;  // nullptr when absent
  double constant(std::string_view name) const;                // throws InputError when absent
  double constant(std::string_view name, double fallback) const;
  const std::map<std::string, Constant, std::less<>>& constants() const { return constants_; }
  void set_constant(const std::string& name, Constant constant);

  // For calibration, which creates profiles: sets what accompanies the fitted numbers.
  void describe(std::string name, std::string gpu, std::string provenance, std::vector<std::string> gaps) {
    name_ = std::move(name);
    source_.clear();
    gpu_ = std::move(gpu);
    provenance_ = std::move(provenance);
    gaps_ = std::move(gaps);
  }

  // Returns a profile with parameters, law factors and constants drawn from their distributions (log-normal,
  // with the covariance of each set; sets are independent). Estimated values are drawn too: shares of
  // memory-bound kernels, attention, host times. The same state of `random` gives the same profile on any
  // machine.
  Profile draw(Random& random) const;

  // Returns the file that load() reads back to an equal profile.
  std::string to_json() const;

 private:
  static Profile from_node(const JsonNode& node);
  // Returns the laws to change, which no other profile shares then.
  Laws& own_sets();

  std::string name_, source_, gpu_, provenance_;
  std::vector<std::string> gaps_;
  DeviceLimits device_;
  LaunchCosts launch_;
  OverlapFactors overlap_;
  double attention_factor_ = 1;
  std::shared_ptr<Laws> sets_ = std::make_shared<Laws>();  // copies of a profile share them until one changes
  std::map<std::string, Constant, std::less<>> constants_;
};

}  // namespace moesim::models

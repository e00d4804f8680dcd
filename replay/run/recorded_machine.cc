#include "replay/run/recorded_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/gpu_family.h"
#include "replay/job/layer_model.h"
#include "replay/job/substitute.h"
#include "traces/recording_facts.h"

namespace moesim::replay {

namespace {

// Returns the first built-in cluster of this profile; "" without one.
std::string cluster_with(const std::string& profile) {
  for (const models::Cluster::Pattern& pattern : models::Cluster::patterns())
    if (pattern.profile == profile)
      return pattern.name.substr(0, pattern.name.size() - 1) + "1";  // without its "N"
  return "";
}

// Returns whether `cluster` is a built-in one of this profile.
bool built_in(const std::string& cluster, const std::string& profile) {
  return std::ranges::any_of(models::Cluster::patterns(), [&](const models::Cluster::Pattern& pattern) {
    const std::string stem = pattern.name.substr(0, pattern.name.size() - 1);  // without its "N"
    if (!cluster.starts_with(stem) || cluster.size() == stem.size()) return false;
    const std::string_view nodes = std::string_view(cluster).substr(stem.size());
    const bool number = nodes.size() < 7 && nodes.find_first_not_of("0123456789") == std::string_view::npos &&
                        nodes.front() != '0';
    return number && pattern.profile == profile;
  });
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    else if (!out.back().empty())
      out.emplace_back();
  return out;
}

std::optional<RecordedMachine> machine_in_files(const RecordedJob& job) {
  RecordedMachine out;
  out.told = RecordedMachine::Told::by_files;
  for (const RankSteps& steps : job.ranks) {
    const traces::RankRecording& rank = *steps.recording;
    if (const auto made = traces::synthetic_of(rank)) {
      // A cluster file may be gone; its profile, or one of the same GPU, serves as well.
      out.cluster = built_in(made->cluster, made->profile) ? made->cluster : cluster_with(made->profile);
      out.gpu = out.cluster.empty() ? made->profile : models::Cluster::load(out.cluster).profile.gpu();
      return out;
    }
    const auto device = traces::device_of(rank);
    if (!device) continue;
    out.gpu = device->cpu ? "a CPU" + (device->name.empty() ? "" : " (" + device->name + ")") : device->name;
    if (const models::GpuFamily* family = device->cpu ? nullptr : models::gpu_named(device->name)) {
      out.cluster = cluster_with(family->profile);
      return out;
    }
    const std::vector<std::string> names = words_of(device->name);
    for (const std::string& profile : models::Profile::names()) {
      // "NVIDIA H100 80GB HBM3" and "H100-SXM5-80GB" are one model.
      const std::string model = words_of(models::Profile::load(profile).gpu()).front();
      if (device->cpu || models::by_pcie(profile) || std::ranges::find(names, model) == names.end()) continue;
      out.cluster = cluster_with(profile);
      break;
    }
    return out;
  }
  return std::nullopt;
}

// Fewer rows of an expert take what one tile of a product takes, the time of its weights and of the host.
constexpr std::int64_t kRowsOfATile = 64;

// Recorded over modelled time of the experts on a cluster's GPUs: geometric mean over passes and expert
// ranks. nullopt where the recording has no experts' segments, or the models do not apply.
class ExpertTimes {
 public:
  ExpertTimes(const CleanJob& clean, const traces::NamedTopology& named, const RecordingQuestion& question)
      : clean_(clean) {
    RecordingQuestion at_its_size = question;
    if (question.resizes()) at_its_size.said.origins.erase("routing");
    model_ = job_model(clean, named, at_its_size);
  }

  std::optional<double> against(const models::Cluster& cluster) const {
    try {
      return ratio(cluster);
    } catch (const InputError&) {
      return std::nullopt;  // a profile that lacks what the job needs
    }
  }

 private:
  std::optional<double> ratio(models::Cluster cluster) const {
    cluster.nodes = std::max(cluster.nodes,
                             (model_.topology.world() + cluster.gpus_per_node - 1) / cluster.gpus_per_node);
    const CleanPlace& place = clean_.places.begin()->second;
    const Step* forward = place.find(StepKind::forward);
    if (forward == nullptr || place.find(StepKind::backward) == nullptr) return std::nullopt;
    const LayerModel model(model_, recorded_dispatcher(model_, cluster, *forward), cluster);
    const LayerSegments recorded = layer_segments(clean_, model);
    const std::int64_t local = model_.architecture.experts / model_.topology.expert;
    std::int64_t most_rows = 0;
    std::vector<int> ranks;
    for (int e = 0; e < model_.topology.expert; ++e)
      if (!clean_.unrecorded.contains(e)) {
        ranks.push_back(e);
        most_rows = std::max(most_rows, model_.received()[static_cast<std::size_t>(e)]);
      }
    if (most_rows < kRowsOfATile * local) return std::nullopt;
    double sum = 0, weight = 0;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (std::size_t s = 1; s < model.calls(pass); ++s) {
        if (!model.has_experts(pass, s)) continue;
        for (const int e : ranks) {
          const double us = recorded[static_cast<std::size_t>(pass)][s][static_cast<std::size_t>(e)];
          const double modelled = model.segment_us(pass, s, LayerModel::Part::experts, e, 0);
          if (us <= 0 || modelled <= 0) continue;
          // The longest segments are matrix products; short ones are the host's.
          sum += us * std::log(us / modelled), weight += us;
        }
      }
    return weight > 0 ? std::optional(std::exp(sum / weight)) : std::nullopt;
  }

  const CleanJob& clean_;
  JobModel model_;
};

// For every GPU with a built-in cluster, by that cluster's name.
std::map<std::string, double> against_all(const ExpertTimes& times) {
  std::map<std::string, double> all;
  for (const std::string& profile : models::Profile::names()) {
    const std::string name = cluster_with(profile);
    if (name.empty() || models::by_pcie(profile)) continue;  // no products of cards were fitted
    if (const auto ratio = times.against(models::Cluster::load(name))) all.emplace(name, *ratio);
  }
  return all;
}

bool fits(double ratio) { return std::abs(std::log(ratio)) <= std::log(kTimesFit); }

// Returns nullopt where ranks differ too much to be pooled.
std::optional<CleanJob> cleaned(std::span<const RecordedJob> jobs) {
  try {
    return denoise(jobs);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Returns nullopt where the models do not know the job.
std::optional<ExpertTimes> expert_times(const CleanJob& clean, const traces::NamedTopology& named,
                                        const RecordingQuestion& question) {
  try {
    return ExpertTimes(clean, named, question);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Returns the uncertainty of computing over the GPUs that may have made the recording, weighted by the
// probability that their law of the experts' products gives the times.
double doubt(const std::map<std::string, double>& all, double here, const models::Profile& profile) {
  const models::ParameterSet* law = profile.find("grouped_gemm/bf16");
  const double scatter = law != nullptr ? std::hypot(law->residual, law->systematic) : std::log(kTimesFit);
  double best = std::abs(std::log(here));
  for (const auto& [other, ratio] : all) best = std::min(best, std::abs(std::log(ratio)));
  double sum = 0, weight = 0;
  for (const auto& [other, ratio] : all) {
    const double off = std::log(ratio);
    const double likely = std::exp((best * best - off * off) / (2 * scatter * scatter));
    sum += likely * std::pow(std::log(ratio / here), 2), weight += likely;
  }
  return weight > 0 ? std::sqrt(sum / weight) : 0;
}

// Where no comparison with a profile is possible, any GPU may have made it: uses the spread of their data
// sheets.
double sigma_of_any(const models::Cluster& cluster) {
  const auto flops = [](const models::Profile& profile) {
    return profile.device().peak_flops[static_cast<std::size_t>(models::DType::kBf16)];
  };
  const double own = flops(cluster.profile);
  double sum = 0;
  int count = 0;
  for (const std::string& name : models::Profile::names())
    if (const double other = flops(models::Profile::load(name)); other > 0 && own > 0)
      sum += std::pow(std::log(other / own), 2), ++count;
  return count > 0 ? std::sqrt(sum / count) : 0;
}

}  // namespace

bool made_on(const RecordedMachine& machine, const models::Cluster& cluster) {
  using Told = RecordedMachine::Told;
  if (machine.told != Told::by_user && machine.told != Told::by_files) return false;
  if (machine.cluster.empty()) return machine.gpu == cluster.profile.gpu();
  const models::Cluster own = models::Cluster::load(machine.cluster);
  // Files name the GPU, and no network.
  return own.profile.name() == cluster.profile.name() &&
         (machine.told == Told::by_files || own.network == cluster.network);
}

std::string machine_note(const RecordedMachine& machine, const models::Cluster& cluster, bool scaled,
                         bool realistic) {
  using Told = RecordedMachine::Told;
  const std::string& gpu = cluster.profile.gpu();
  if (machine.told == Told::by_times)
    return fmt::format(
        "nothing says what this was recorded on: computing is taken as measured on {}, whose times its "
        "experts "
        "have; --recorded-on CLUSTER tells",
        machine.gpu);
  if (machine.told == Told::by_nobody)
    return realistic
               ? "nothing says what this was recorded on: all times are the recorded ones, of no GPU in "
                 "particular; --recorded-on CLUSTER tells"
               : fmt::format(
                     "nothing says what this was recorded on, and no profile can be held against it: "
                     "computing is taken as measured on {}, with an interval over all GPUs; "
                     "--recorded-on CLUSTER tells",
                     machine.gpu);
  if (scaled || machine.gpu == gpu) return "";
  if (!machine.cluster.empty() &&
      models::Cluster::load(machine.cluster).profile.name() == cluster.profile.name())
    return "";
  if (machine.gpu.starts_with("a CPU"))
    return fmt::format("recorded on {}: computing takes what it took there, which says nothing about {}",
                       machine.gpu, gpu);
  return fmt::format("recorded on {}: computing takes what it took there, not what {} would take",
                     machine.gpu, gpu);
}

std::string_view name(RecordedMachine::Told told) {
  static constexpr std::string_view kNames[] = {"user", "files", "times", "nobody"};
  return kNames[static_cast<std::size_t>(told)];
}

RecordedMachine recorded_machine(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                 const models::Cluster& cluster, const RecordingQuestion& question,
                                 const CleanJob* known) {
  const models::Cluster& likely = question.beside.empty() ? cluster : question.beside.front();
  if (!question.recorded_on.empty())
    return {RecordedMachine::Told::by_user, models::Cluster::load(question.recorded_on).profile.gpu(),
            question.recorded_on};
  RecordedMachine out{RecordedMachine::Told::by_user, likely.profile.gpu(), "", 0};
  if (auto said = machine_in_files(jobs.front())) return *said;
  if (question.recorded_there) return out;
  if (!jobs.front().realistic)
    for (const models::Cluster& one : question.beside)
      if (one.profile.name() != likely.profile.name())
        throw InputError(fmt::format(
            "found {} and {} for a recording that does not say what it was made on, expected --recorded-on "
            "with a cluster of the GPUs that made it",
            likely.name, one.name));
  if (const nlohmann::ordered_json json = likely.to_json(); !question.beside.empty())
    out.cluster = json.is_string() ? json.get<std::string>() : json.dump();
  out.told = RecordedMachine::Told::by_nobody;
  out.sigma = sigma_of_any(likely);
  const auto clean = known != nullptr ? std::optional(*known) : cleaned(jobs);
  const auto times = clean ? expert_times(*clean, named, question) : std::nullopt;
  const auto here = times ? times->against(likely) : std::nullopt;
  if (!here) return out;
  const std::map<std::string, double> all = against_all(*times);
  std::vector<std::string> fitting;
  for (const auto& [other, ratio] : all)
    if (fits(ratio)) fitting.push_back(other);
  if (!fits(*here))
    throw InputError(fmt::format(
        "found a recording that does not say what it was made on, whose experts take {:.2f} times what {} "
        "takes, expected --recorded-on with a cluster of the GPUs that made it{}: computing is then scaled "
        "from them",
        *here, likely.profile.gpu(), fitting.empty() ? "" : " (its times fit " + join(fitting, ", ") + ")"));
  out.told = RecordedMachine::Told::by_times;
  out.sigma = doubt(all, *here, likely.profile);
  return out;
}

}  // namespace moesim::replay

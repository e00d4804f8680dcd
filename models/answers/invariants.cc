#include "models/answers/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/input_error.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

// Tolerance of sums of rounded picoseconds against their total.
constexpr double kRelative = 1e-6, kAbsoluteUs = 1e-2;

bool share(double value) { return value >= 0 && value <= 1; }
bool amount(double value) { return value >= 0 && std::isfinite(value); }

std::string impossible_time(const Forecast& a) {
  if (std::string time = impossible(a.time_us); !time.empty()) return time;
  for (const double us : a.draws_us)
    if (!(us > 0 && std::isfinite(us))) return fmt::format("a drawn time of {} us", us);
  double sum = 0;
  for (std::size_t i = 0; i < sim::kCategories; ++i) {
    const double part = a.breakdown_us[i];
    if (!(part >= -kAbsoluteUs && std::isfinite(part)))
      return fmt::format("{} us of {}", part, sim::name(static_cast<sim::Category>(i)));
    sum += part;
  }
  if (sum > 0 && !adds_up(sum, a.time_us.value))
    return fmt::format("parts of {} us of a time of {} us", sum, a.time_us.value);
  if (!(amount(a.healthy_us) && amount(a.exposed_comm_us)))
    return fmt::format("{} us without faults and {} us of exposed communication", a.healthy_us,
                       a.exposed_comm_us);
  return "";
}

std::string impossible_memory(const RankMemory& m, double most) {
  for (const double part : {m.parameters, m.gradients, m.optimizer, m.activations, m.transient, m.persistent})
    if (!amount(part)) return fmt::format("a part of the memory of {} bytes", part);
  if (m.total() > most * (1 + kRelative) + 1)
    return fmt::format("a memory of {} bytes beside a peak of {}", m.total(), most);
  return "";
}

// Returns the peak of the plan's fastest products over that of bf16.
double fastest(const Scenario& s) {
  const auto& peak = s.cluster->profile.device().peak_flops;
  const double bf16 = peak[static_cast<std::size_t>(DType::kBf16)];
  double most = 1;
  if (bf16 > 0) most = std::max(most, peak[static_cast<std::size_t>(s.training.gemm)] / bf16);
  const auto fp8 = static_cast<std::size_t>(DType::kFp8);
  if (bf16 > 0 && s.training.fp8_attention) most = std::max(most, peak[fp8] / bf16);
  return most;
}

}  // namespace

bool adds_up(double sum_us, double total_us) {
  return std::abs(sum_us - total_us) <= kAbsoluteUs + kRelative * std::abs(total_us);
}

std::string impossible(const Estimate& t) {
  if (!(t.value > 0 && std::isfinite(t.value))) return fmt::format("a time of {} us", t.value);
  if (!(amount(t.low) && t.low <= t.value && t.value <= t.high && std::isfinite(t.high)))
    return fmt::format("a time of {} us between {} and {}", t.value, t.low, t.high);
  return "";
}

std::string impossible(const StepMemory& m) {
  if (!(amount(m.max_bytes) && amount(m.missing_bytes)))
    return fmt::format("a memory of {} bytes, {} of them missing", m.max_bytes, m.missing_bytes);
  if (!share(m.fits_probability)) return fmt::format("a share of {}, expected 0 to 1", m.fits_probability);
  if (std::string part = impossible_memory(m.worst, m.max_bytes); !part.empty()) return part;
  for (const StageMemory& stage : m.stages) {
    if (std::string part = impossible_memory(stage.bytes, m.max_bytes); !part.empty()) return part;
    if (!share(stage.fits_probability)) return fmt::format("a probability of {}", stage.fits_probability);
  }
  return "";
}

std::string impossible(const Decision& d, std::size_t answers) {
  for (const double p : d.fastest)
    if (!share(p)) return fmt::format("a probability of {}", p);
  for (const Loss& loss : d.losses)
    if (!(amount(loss.expected) && amount(loss.at_most)))
      return fmt::format("a loss of {}, at most {}", loss.expected, loss.at_most);
  const auto none_or_one = [&](int index) { return index >= -1 && index < static_cast<int>(answers); };
  if (!(none_or_one(d.winner) && none_or_one(d.runner_up) && (d.winner < 0 || d.winner != d.runner_up)))
    return fmt::format("answers {} and {} of {} as winner and second", d.winner, d.runner_up, answers);
  if (d.verdict == Decision::Verdict::kClear && d.probability().value_or(0) < Decision::kSure)
    return "a clear decision whose probability is not";
  if (d.verdict == Decision::Verdict::kSafe && d.loss().value_or(Loss{0, 1e9}).at_most > d.tolerance)
    return "a safe decision whose loss is beyond the tolerance";
  const Estimate& s = d.speedup;
  if (!(amount(s.low) && s.low <= s.value && s.value <= s.high && std::isfinite(s.high)))
    return fmt::format("a speedup of {} between {} and {}", s.value, s.low, s.high);
  return "";
}

std::string impossible(const Forecast& f) {
  if (std::string time = impossible_time(f); !time.empty()) return time;
  if (!(amount(f.tokens) && amount(f.flops) && f.gpus >= 1))
    return fmt::format("{} tokens and {} FLOPs on {} GPUs", f.tokens, f.flops, f.gpus);
  for (const double part : {f.outside_domain, f.dropped_share})
    if (!share(part)) return fmt::format("a share of {}, expected 0 to 1", part);
  constexpr double kFull = 1 + kRelative;
  if (const double used = f.network.busiest.utilisation; !(used >= 0 && used <= kFull))
    return fmt::format("a link in use for {} of the time", used);
  if (!amount(f.network.calibrated_us))
    return fmt::format("{} us without contention", f.network.calibrated_us);
  return impossible(f.memory);
}

std::string impossible(const Scenario& s, const Answer& a) {
  if (std::string part = impossible(static_cast<const Forecast&>(a)); !part.empty()) return part;
  if (!(a.mfu >= 0 && a.mfu <= fastest(s)))
    return fmt::format("an MFU of {:.3g}, expected 0 to {:.3g}", a.mfu, fastest(s));
  for (const std::int64_t bytes : a.tx_bytes)
    if (bytes < 0) return fmt::format("{} bytes sent by a rank", bytes);
  if (a.dropped_rows < 0) return fmt::format("{} dropped rows", a.dropped_rows);
  return amount(a.cost) ? "" : fmt::format("a cost of {}", a.cost);
}

void check_answer(const Scenario& scenario, const Answer& answer) {
  check_possible(answer.dispatcher, impossible(scenario, answer));
}

void check_possible(const std::string& of, const std::string& what) {
  if (what.empty()) return;
  throw InputError(
      fmt::format("{}: found {}: the forecast of this scenario cannot be right; its sizes are "
                  "beyond what was thought of, or this is a bug",
                  of, what));
}

}  // namespace moesim::models

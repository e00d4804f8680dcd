#include "calibration/fit/next_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <Eigen/Cholesky>

#include "base/random.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/rows/row_laws.h"
#include "models/answers/doubt.h"
#include "models/answers/priced_draws.h"
#include "models/costs/collectives.h"
#include "models/costs/domain_report.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {
namespace {

using models::Cluster;
using models::Scenario;
using sim::CollectiveOp;

// Estimated duration of a command in minutes, mostly its start.
constexpr double kNcclTest = 0.3, kNcclTestAcross = 0.6, kDeepEp = 1.5, kDeepEpAcross = 2.5, kBench = 0.3,
                 kBenchProducts = 1.0, kOwnRun = 5;
// Log error per octave by which a row of another size says less about the scenario's.
constexpr double kPerOctave = 0.06;
constexpr std::uint64_t kNoiseStream = 0x6e657874;
constexpr int kFolds = 8;

// The dispatch group on the machine.
struct Group {
  int ranks = 1, nodes = 1, per_node = 1;
  bool across = false;
};

Group group_of(const Scenario& s) {
  Group group;
  const Cluster& cluster = *s.cluster;
  group.ranks = static_cast<int>(s.parallel.dispatch_ranks());
  group.per_node = std::min(group.ranks, cluster.gpus_per_node);
  group.nodes = (group.ranks + group.per_node - 1) / group.per_node;
  group.across = group.ranks > cluster.nvlink.domain;
  return group;
}

double rounded_bytes(double bytes) {
  return std::max(4096.0, std::exp2(std::round(std::log2(std::max(bytes, 1.0)))));
}

std::string launcher(const Group& group) {
  if (group.nodes > 1) return fmt::format("mpirun -np {} -N {} ", group.ranks, group.per_node);
  return "";
}

Origin origin_of(const Scenario& s) {
  Origin origin;
  origin.gpu = s.cluster->profile.gpu();
  origin.source = "to be measured";
  return origin;
}

void add_collectives(const Scenario& s, std::vector<CandidateRow>& rows) {
  const Group group = group_of(s);
  if (group.ranks < 2) return;
  const double tokens = static_cast<double>(s.parallel.tokens_per_rank());
  const double token = static_cast<double>(s.model.hidden) * 2;
  struct Test {
    CollectiveOp op;
    const char* program;
    double bytes;
  };
  const double gathered = group.ranks * tokens * token;
  const double exchanged = tokens * static_cast<double>(std::max<std::int64_t>(1, s.topk)) * token;
  const Test tests[] = {{CollectiveOp::all_gather, "all_gather_perf", gathered},
                        {CollectiveOp::reduce_scatter, "reduce_scatter_perf", gathered},
                        {CollectiveOp::all_to_all, "alltoall_perf", exchanged},
                        {CollectiveOp::all_reduce, "all_reduce_perf", gathered}};
  for (const Test& test : tests)
    for (const double factor : {1.0 / 64, 0.125, 1.0, 8.0}) {
      CollectiveRow call;
      call.origin = origin_of(s);
      call.op = test.op;
      call.nodes = group.nodes;
      call.gpus_per_node = group.per_node;
      call.bytes = rounded_bytes(test.bytes * factor);
      CandidateRow row;
      row.command = fmt::format("{}{} -b {:.0f} -e {:.0f} -g {} -d half -n 50", launcher(group), test.program,
                                call.bytes, call.bytes, group.nodes > 1 ? 1 : group.ranks);
      row.minutes = group.nodes > 1 ? kNcclTestAcross : kNcclTest;
      row.apart = std::abs(std::log2(factor));
      row.calls.collectives.push_back(call);
      rows.push_back(std::move(row));
    }
}

struct Library {
  const char *dispatcher, *test, *across_test, *dispatch, *combine;
};
constexpr Library kLibraries[] = {{"flex-deepep", "tests/test_intranode.py", "tests/test_internode.py",
                                   "deepep_v1_normal_dispatch", "deepep_v1_normal_combine"},
                                  {"flex-hybridep", "tests/test_hybrid_ep.py", "tests/test_hybrid_ep.py",
                                   "hybridep_dispatch_kernel", "hybridep_combine_kernel"}};

void add_kernels(const Scenario& s, std::vector<CandidateRow>& rows) {
  const Group group = group_of(s);
  for (const Library& library : kLibraries) {
    const bool used =
        std::any_of(s.dispatchers.begin(), s.dispatchers.end(),
                    [&](const models::DispatcherSpec& spec) { return spec.name == library.dispatcher; });
    if (!used || group.ranks < 2) continue;
    for (const int part : {16, 4, 1}) {
      const auto tokens = std::max<std::int64_t>(16, s.parallel.tokens_per_rank() / part);
      CandidateRow row;
      const std::string start =
          group.nodes > 1 ? fmt::format("WORLD_SIZE={} RANK=$NODE_RANK MASTER_ADDR=$FIRST_NODE ", group.nodes)
                          : "";
      row.command = fmt::format(
          "{}python {} --num-processes {} --num-tokens {} --hidden {} --num-topk {} --num-experts {}", start,
          group.across ? library.across_test : library.test, group.per_node, tokens, s.model.hidden, s.topk,
          s.model.experts);
      row.minutes = group.nodes > 1 ? kDeepEpAcross : kDeepEp;
      row.apart = std::log2(part);
      for (const bool combine : {false, true}) {
        DispatchRow call;
        call.origin = origin_of(s);
        call.kernel = combine ? library.combine : library.dispatch;
        call.dtype = "bf16";
        call.ep = group.ranks;
        call.nodes = group.nodes;
        call.tokens = static_cast<double>(tokens);
        call.hidden = static_cast<int>(s.model.hidden);
        call.topk = static_cast<int>(s.topk);
        call.experts = static_cast<int>(s.model.experts);
        row.calls.dispatches.push_back(call);
      }
      rows.push_back(std::move(row));
    }
  }
}

void add_bench(const Scenario& s, std::vector<CandidateRow>& rows) {
  const auto command = [](const std::string& filter) {
    return fmt::format("moesim calibrate measure --bench cuda --filter '{}' --out raw", filter);
  };
  GroupedGemmRow products;
  products.origin = origin_of(s);
  products.kind = "grouped forward balanced";
  products.dtype = "bf16";
  products.groups = static_cast<int>(std::max<std::int64_t>(1, s.model.experts / s.parallel.ep));
  products.m_per_group =
      std::max(1.0, static_cast<double>(s.parallel.tokens_per_rank() * std::max<std::int64_t>(1, s.topk)) /
                        products.groups);
  products.n = static_cast<double>(2 * s.model.expert_ffn);
  products.k = static_cast<double>(s.model.expert_width());
  CandidateRow row;
  row.command = command("^grouped_gemm/.*backend:grouped");
  row.minutes = kBenchProducts;
  row.calls.grouped.push_back(products);
  rows.push_back(row);
  for (std::size_t k = 0; k < models::kKernelClasses; ++k) {
    const auto kind = static_cast<models::KernelClass>(k);
    Measurements::KernelRow kernel;
    kernel.origin = origin_of(s);
    kernel.kernel = models::name_of(kind);
    kernel.bytes = 2.0 * static_cast<double>(s.parallel.tokens_per_rank() * s.topk) *
                   static_cast<double>(s.model.hidden) * 2;
    CandidateRow one;
    one.command = command("kernel/class:" + kernel.kernel + "/");
    one.minutes = kBench;
    one.calls.kernels.push_back(kernel);
    rows.push_back(std::move(one));
  }
  CandidateRow host;
  host.command = command("^latency/");
  host.minutes = kBench;
  for (const char* what : {"launch", "host_sync"}) host.calls.machine.push_back({origin_of(s), what, 0});
  rows.push_back(std::move(host));
}

double collective_seconds(const CollectiveRow& call, const Cluster& cluster,
                          const models::CollectiveModel& model) {
  const bool across = call.ranks() > cluster.nvlink.domain;
  const auto shape = across ? models::GroupShape::uniform(call.nodes, call.gpus_per_node)
                            : models::GroupShape::uniform(1, call.ranks());
  return model.seconds(call.op, shape, call_bytes(call));
}

double dispatch_seconds(const DispatchRow& call, const Cluster& cluster) {
  const auto of = call_of(call);
  if (!of) return 1;
  const std::string ending = call.ep > cluster.nvlink.domain ? std::string(models::kNetworkLaw) : "";
  for (const char* dtype : {"bf16", "fp8"}) {
    const std::string key = "ep/" + call.kernel + "@" + dtype + ending;
    const models::ParameterSet* law = cluster.profile.find(key);
    if (!law) continue;
    const models::EpKernelModel model(cluster.profile, key, cluster.network_per_gpu(),
                                      cluster.nvlink.bandwidth);
    // Outside of the measured range a draw is off by more.
    return model.seconds(*of) * std::exp(law->beyond * models::kernel_doubt(*law, call.ep, call.tokens));
  }
  // No law: the draw's factor for an exchange of the library.
  const auto library = call.kernel.starts_with("hybridep") ? models::ExchangeLibrary::kHybridEp
                                                           : models::ExchangeLibrary::kDeepEp;
  const models::ParameterSet* judged = cluster.profile.find(models::unmeasured_kernel_key(library));
  return judged ? judged->factor : 1;
}

// Returns whether a call measures an unmeasured part.
bool speaks_of(const std::string& part, const std::string& what) {
  return part.find(what) != std::string::npos;
}

}  // namespace

std::vector<CandidateRow> candidate_rows(const Scenario& resolved) {
  std::vector<CandidateRow> rows;
  add_collectives(resolved, rows);
  add_kernels(resolved, rows);
  add_bench(resolved, rows);
  return rows;
}

namespace {

// The models of one cluster, created on demand: many rows are priced under the same draw.
class RowPrices {
 public:
  explicit RowPrices(const Cluster& cluster) : cluster_(cluster) {}

  std::vector<double> log_seconds(const CandidateRow& row,
                                  const std::vector<std::pair<std::string, double>>& doubts) {
    std::vector<double> logs;
    const auto add = [&](double seconds, const std::string& part) {
      double log = std::log(seconds);
      for (const auto& [text, factor] : doubts)
        if (!part.empty() && speaks_of(text, part)) log += factor;
      logs.push_back(log);
    };
    for (const CollectiveRow& call : row.calls.collectives)
      add(collective_seconds(call, cluster_, made(collectives_, cluster_)),
          ": " + std::string(sim::name(call.op)) + " ");
    for (const DispatchRow& call : row.calls.dispatches)
      add(dispatch_seconds(call, cluster_), call.kernel.starts_with("hybridep") ? "HybridEP " : "DeepEP ");
    for (const GroupedGemmRow& call : row.calls.grouped) {
      const std::vector<std::int64_t> experts(static_cast<std::size_t>(call.groups),
                                              static_cast<std::int64_t>(call.m_per_group));
      add(made(products_, cluster_.profile)
              .grouped_seconds(experts, static_cast<std::int64_t>(call.n), static_cast<std::int64_t>(call.k),
                               dtype_of(call.dtype)),
          "");
    }
    for (const auto& call : row.calls.kernels)
      add(made(kernels_, cluster_.profile).seconds(*models::parse_kernel_class(call.kernel), call.bytes, 0),
          "");
    for (const auto& call : row.calls.machine)
      add(call.what == "launch" ? cluster_.profile.launch().kernel : cluster_.profile.launch().host_sync, "");
    return logs;
  }

 private:
  template <class Model, class Of>
  static const Model& made(std::optional<Model>& model, const Of& of) {
    if (!model) model.emplace(of);
    return *model;
  }

  const Cluster& cluster_;
  std::optional<models::CollectiveModel> collectives_;
  std::optional<models::GemmModel> products_;
  std::optional<models::KernelModel> kernels_;
};

}  // namespace

std::vector<double> log_seconds(const CandidateRow& row, const Cluster& cluster,
                                const std::vector<std::pair<std::string, double>>& doubts) {
  return RowPrices(cluster).log_seconds(row, doubts);
}

namespace {

// Times of the choices, and log times of the candidate rows, draw by draw.
struct Draws {
  // Draws x choices, in mean times of the best choice; `quiet`: without launch errors.
  Eigen::MatrixXd times, quiet;
  std::vector<Eigen::MatrixXd> rows;  // for each candidate, draws x calls, with noise
  double regret = 0;                  // of the choice with the best mean
};

// Removes launch errors from a choice's times under each draw. No benchmark measures them; the means stay,
// and the information in rows becomes visible.
void without_launches(const models::Answer& answer, bool step, Eigen::Ref<Eigen::VectorXd> times) {
  const std::string part = models::launches_of(answer.dispatcher);
  Eigen::VectorXd off(times.size());
  for (Eigen::Index d = 0; d < off.size(); ++d)
    off[d] = models::unmeasured_factor(part, static_cast<std::size_t>(d), models::launch_sigma(step));
  off.array() -= off.mean();
  const double squares = off.squaredNorm();
  if (squares > 0) times -= off.dot(times) / squares * off;
}

Draws draws_of(const models::Comparison& c, const std::vector<CandidateRow>& candidates,
               const std::vector<const models::Answer*>& choices, double noise) {
  const auto draws = static_cast<Eigen::Index>(choices.front()->draws_us.size());
  Draws all;
  all.times.resize(draws, static_cast<Eigen::Index>(choices.size()));
  for (std::size_t a = 0; a < choices.size(); ++a)
    for (Eigen::Index d = 0; d < draws; ++d)
      all.times(d, static_cast<Eigen::Index>(a)) = choices[a]->draws_us[static_cast<std::size_t>(d)];
  all.times /= all.times.rowwise().minCoeff().mean();
  all.regret = all.times.colwise().mean().minCoeff() - 1;
  all.quiet = all.times;
  for (std::size_t a = 0; a < choices.size(); ++a)
    without_launches(*choices[a], c.scenario->is_step(), all.quiet.col(static_cast<Eigen::Index>(a)));
  // Factors of parts whose uncertainty is outside of the profile, under a draw.
  std::vector<std::string> parts;
  std::vector<std::pair<std::string, std::string>> kernels;  // parts that no one published, with dispatcher
  for (const models::Answer* answer : choices)
    for (const auto& one : answer->unmeasured) {
      if (one.exchange) kernels.emplace_back(one.part, answer->dispatcher);
      if (!one.drawn && std::find(parts.begin(), parts.end(), one.part) == parts.end())
        parts.push_back(one.part);
    }
  const Scenario& s = *c.scenario;
  Cluster drawn = *s.cluster;
  Random random(s.seed ^ kNoiseStream);
  for (Eigen::Index d = 0; d < draws; ++d) {
    drawn.profile = models::drawn_profile(*s.cluster, s.seed, static_cast<int>(d));
    std::vector<std::pair<std::string, double>> doubts;
    doubts.reserve(parts.size() + kernels.size());
    for (const std::string& part : parts)
      doubts.emplace_back(part, std::log(models::unmeasured_factor(part, static_cast<std::size_t>(d))));
    for (const auto& [part, dispatcher] : kernels)
      doubts.emplace_back(
          part, std::log(models::unpublished_kernel_factor(dispatcher, static_cast<std::size_t>(d))));
    RowPrices prices(drawn);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      std::vector<double> logs = prices.log_seconds(candidates[i], doubts);
      for (const models::Answer* answer : choices)
        if (answer->dispatcher == candidates[i].dispatcher)
          logs.push_back(std::log(answer->draws_us[static_cast<std::size_t>(d)]));
      if (d == 0) all.rows.emplace_back(draws, static_cast<Eigen::Index>(logs.size()));
      for (std::size_t k = 0; k < logs.size(); ++k)
        all.rows[i](d, static_cast<Eigen::Index>(k)) =
            logs[k] + std::hypot(noise, kPerOctave * candidates[i].apart) * random.normal();
    }
  }
  return all;
}

// Returns for each draw the savings of the choice that its rows suggest, against the choice with the best
// mean.
Eigen::VectorXd saved(const Eigen::MatrixXd& times, Eigen::MatrixXd rows) {
  const Eigen::Index draws = times.rows();
  Eigen::VectorXd result = Eigen::VectorXd::Zero(draws);
  if (rows.cols() == 0) return result;
  Eigen::Index usual = 0;
  times.colwise().mean().minCoeff(&usual);
  for (Eigen::Index j = 0; j < rows.cols(); ++j) {
    const double mean = rows.col(j).mean();
    const double spread = std::sqrt((rows.col(j).array() - mean).square().mean());
    rows.col(j) = (rows.col(j).array() - mean) / std::max(spread, 1e-12);
  }
  Eigen::MatrixXd features(draws, 1 + rows.cols());
  features.col(0).setOnes();
  features.rightCols(rows.cols()) = rows;
  for (int fold = 0; fold < kFolds; ++fold) {
    std::vector<Eigen::Index> seen, held;
    for (Eigen::Index d = 0; d < draws; ++d) (d % kFolds == fold ? held : seen).push_back(d);
    const Eigen::MatrixXd x = features(seen, Eigen::all), y = times(seen, Eigen::all);
    constexpr double kRidge = 4;
    Eigen::MatrixXd normal = x.transpose() * x;
    for (Eigen::Index j = 1; j < normal.rows(); ++j) normal(j, j) += kRidge;
    const Eigen::MatrixXd slope = normal.ldlt().solve(x.transpose() * y);
    for (const Eigen::Index d : held) {
      Eigen::Index choice = 0;
      (features.row(d) * slope).minCoeff(&choice);
      result[d] = times(d, usual) - times(d, choice);
    }
  }
  return result;
}

class Planning {
 public:
  Planning(const models::Comparison& comparison, const NextOptions& options) : o_(options) {
    for (const models::Answer& answer : comparison.answers)
      if (answer.ranked() && !answer.draws_us.empty()) choices_.push_back(&answer);
    if (choices_.size() < 2) return;
    candidates_ = candidate_rows(*comparison.scenario);
    for (const models::Answer* answer : choices_) {
      if (!o_.runs) break;
      CandidateRow run;
      run.command =
          fmt::format("time it with {0} in your framework (docs/replay.md), then add --measured {0}=TIME",
                      answer->dispatcher);
      run.minutes = kOwnRun;
      run.dispatcher = answer->dispatcher;
      candidates_.push_back(std::move(run));
    }
    draws_ = draws_of(comparison, candidates_, choices_, o_.noise);
  }

  // `sure`: standard errors by which a row must help.
  std::vector<NextRow> plan(double sure) const {
    std::vector<NextRow> rows;
    if (choices_.size() < 2) return rows;
    std::vector<std::size_t> taken;
    Eigen::VectorXd now = Eigen::VectorXd::Zero(draws_.times.rows());
    double left = o_.minutes, regret = draws_.regret;
    while (rows.size() < o_.most) {
      std::optional<std::size_t> best;
      double best_rate = 0;
      Eigen::VectorXd best_saved;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (candidates_[i].minutes > left || std::find(taken.begin(), taken.end(), i) != taken.end())
          continue;
        std::vector<std::size_t> with = taken;
        with.push_back(i);
        const Eigen::VectorXd then = saved_with(with);
        const Eigen::VectorXd gain = then - now;
        const double mean = gain.mean();
        const double error =
            std::sqrt((gain.array() - mean).square().mean() / static_cast<double>(gain.size()));
        // A gain that so many draws cannot distinguish from zero counts as zero.
        if (mean <= sure * error || mean <= 0 || mean / candidates_[i].minutes <= best_rate) continue;
        best_rate = mean / candidates_[i].minutes;
        best = i;
        best_saved = then;
      }
      if (!best) break;
      const double after = std::clamp(draws_.regret - best_saved.mean(), 0.0, regret);
      rows.push_back({candidates_[*best], regret, after});
      regret = after;
      now = best_saved;
      left -= candidates_[*best].minutes;
      taken.push_back(*best);
    }
    return rows;
  }

 private:
  Eigen::VectorXd saved_with(const std::vector<std::size_t>& measured) const {
    Eigen::MatrixXd times = draws_.quiet, rows(times.rows(), 0);
    for (const std::size_t i : measured) {
      const Eigen::Index before = rows.cols();
      rows.conservativeResize(Eigen::NoChange, before + draws_.rows[i].cols());
      rows.rightCols(draws_.rows[i].cols()) = draws_.rows[i];
      // A run of a choice also measures its launches.
      for (std::size_t a = 0; a < choices_.size(); ++a)
        if (choices_[a]->dispatcher == candidates_[i].dispatcher)
          times.col(static_cast<Eigen::Index>(a)) = draws_.times.col(static_cast<Eigen::Index>(a));
    }
    return saved(times, rows);
  }

  const NextOptions& o_;
  std::vector<const models::Answer*> choices_;
  std::vector<CandidateRow> candidates_;
  Draws draws_;
};

}  // namespace

std::vector<NextRow> next_rows(const models::Comparison& comparison, const NextOptions& options) {
  return Planning(comparison, options).plan(options.sure);
}

std::string first_measurement(const models::Comparison& comparison) {
  if (comparison.decision.verdict != models::Decision::Verdict::kOpen) return "";
  NextOptions options;
  options.minutes = 60;
  options.most = 1;
  const Planning planning(comparison, options);
  std::vector<NextRow> plan = planning.plan(options.sure);
  // Too few draws to be sure of any row: takes the one that helps most on average.
  if (plan.empty()) plan = planning.plan(0);
  return plan.empty() ? "" : plan.front().row.command;
}

}  // namespace moesim::calibration

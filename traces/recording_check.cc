#include "traces/recording_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "traces/call_roles.h"
#include "traces/recording_rules.h"

namespace moesim::traces {
namespace {

// Formats "0-3, 7, 9-12", cut after a few runs.
std::string runs_of(const std::vector<std::int32_t>& ranks) {
  std::string out;
  int shown = 0;
  for (std::size_t i = 0; i < ranks.size(); ++shown) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (shown == 6) return out + ", ...";
    out += out.empty() ? "" : ", ";
    out += last == i ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return out;
}

class Examiner {
 public:
  Examiner(const Recording& recording, const RecordingFacts& facts) : recording_(recording), facts_(facts) {}

  std::vector<Finding> run() {
    for (const RankRecording& rank : recording_.ranks) examine_rank(rank);
    last_stage_present();
    same_program_on_a_stage();
    rows_conserved();
    ranks_present();
    outliers();
    gradients();
    transfers_seen();
    habits();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
    return std::move(findings_);
  }

 private:
  void add(Severity severity, SourcePlace place, std::string text) {
    findings_.push_back({severity, std::move(place), std::move(text)});
  }

  static std::int64_t count(const RankRecording& rank, std::string_view name) {
    return std::count_if(rank.operations.begin(), rank.operations.end(),
                         [&](const Operation& op) { return op.name == name; });
  }

  static std::int32_t stage_of(const RankRecording& rank) { return rank.operations.front().stage_id; }

  void examine_rank(const RankRecording& rank) {
    std::map<std::string_view, std::int32_t> next_batch;
    const Operation* before = nullptr;
    for (const Operation& op : rank.operations) {
      if (op.form == LineForm::kGradientBucket) continue;
      std::int32_t& expected = next_batch[op.name.view()];
      if (op.batch_id != expected) {
        add(Severity::kProblem, rank.place(op),
            fmt::format("{} has batch_id {} after {} lines of that name", op.name.view(), op.batch_id,
                        expected));
        break;
      }
      ++expected;
      if (op.timestamp.is_placeholder()) continue;
      if (before != nullptr && op.timestamp.value() < before->timestamp.value()) {
        const bool late = before->timestamp.value() - op.timestamp.value() <= kRepairedMs;
        add(late ? Severity::kWarning : Severity::kProblem, rank.place(op),
            fmt::format("time runs backwards: {} ms after {} ms{}", op.timestamp.str(),
                        before->timestamp.str(), late ? " (repaired: lines keep their order)" : ""));
        if (!late) break;
      }
      before = &op;
    }
    for (const Operation& op : rank.operations)
      for (const ClockRepair& repair : repairs_in_times(rank, op))
        add(Severity::kWarning, rank.place(op), "found " + repair.what + " (repaired)");
    const std::int64_t forwards = count(rank, "forward_step");
    const std::int64_t backwards = count(rank, "backward_step");
    if (forwards == 0 || forwards != backwards)
      add(Severity::kProblem, {rank.file},
          fmt::format("rank {} has {} forward_step and {} backward_step lines", rank.rank, forwards,
                      backwards));
    if (facts_.side == Side::kScaling && forwards > 1)
      add(Severity::kProblem, {rank.file},
          fmt::format("a scaling recording holds one microbatch, rank {} has {}", rank.rank, forwards));
    if (count(rank, "optimizer_step") != 1)
      add(Severity::kWarning, {rank.file},
          fmt::format("rank {} has {} optimizer_step lines", rank.rank, count(rank, "optimizer_step")));
  }

  // The last stage computes the loss.
  void last_stage_present() {
    const RankRecording& last =
        *std::ranges::max_element(recording_.ranks, {}, [](const auto& rank) { return stage_of(rank); });
    if (count(last, "loss_func") == 0 && !says_real_run(last))
      add(Severity::kProblem, {last.file},
          fmt::format(
              "rank {} of stage {}, the last one recorded, has no loss_func: later stages are missing",
              last.rank, stage_of(last)));
  }

  // Ranks of one stage run the same program: the same operations in the same order.
  void same_program_on_a_stage() {
    std::map<std::int32_t, const RankRecording*> first;
    for (const RankRecording& rank : recording_.ranks) {
      const RankRecording& model = *first.try_emplace(stage_of(rank), &rank).first->second;
      const auto differs = std::mismatch(
          rank.operations.begin(), rank.operations.end(), model.operations.begin(), model.operations.end(),
          [](const Operation& a, const Operation& b) { return a.name == b.name; });
      if (differs.first == rank.operations.end() && differs.second == model.operations.end()) continue;
      const bool ended = differs.first == rank.operations.end();
      add(Severity::kProblem, ended ? SourcePlace{rank.file} : rank.place(*differs.first),
          fmt::format(
              "rank {} {} where rank {} of the same stage has {}", rank.rank,
              ended ? "ends" : "has " + differs.first->name.str(), model.rank,
              differs.second == model.operations.end() ? "no more lines" : differs.second->name.str()));
    }
  }

  // Ranks that train together communicate, and a run of several ranks reduces gradients.
  void transfers_seen() {
    const std::int64_t ranks =
        std::max<std::int64_t>(facts_.world.value_or(1), static_cast<std::int64_t>(recording_.ranks.size()));
    if (ranks < 2) return;
    if (facts_.transfers == 0) {
      add(Severity::kWarning, {recording_.source},
          fmt::format("suspect: {} ranks and not one transfer between them; what the recorder did not see is "
                      "priced as computing",
                      ranks));
      return;
    }
    if (std::string suspect = unseen_tensor_parallelism(recording_); !suspect.empty())
      add(Severity::kWarning, {recording_.source}, std::move(suspect));
    for (const RankRecording& rank : recording_.ranks)
      for (const Operation& op : rank.operations)
        if (op.description.view().find(" calls not seen") != std::string_view::npos) {
          add(Severity::kWarning, rank.place(op),
              fmt::format("{}: the recorder says that it did not see all transfers ({})", op.name.view(),
                          op.description.view()));
          return;
        }
  }

  // The ranks of an expert group send as many rows as they receive.
  void rows_conserved() {
    if (!recording_.named.ep || facts_.expert.dispatcher != "alltoall" ||
        recording_.named.tp.value_or(1) != 1)
      return;
    // Recordings of profilers have elements, not rows.
    if (!rows_recorded()) return;
    const std::int64_t ep = *recording_.named.ep;
    std::map<std::int64_t, std::vector<const RankRows*>> groups;
    for (const RankRows& rows : facts_.expert.ranks) groups[rows.rank / ep].push_back(&rows);
    for (const auto& [group, members] : groups) {
      if (static_cast<std::int64_t>(members.size()) != ep) continue;
      std::int64_t sent = 0, received = 0;
      for (const RankRows* rows : members) {
        sent += rows->sent;
        received += rows->received;
      }
      if (sent != received)
        add(Severity::kProblem, {recording_.source},
            fmt::format("ranks {}-{} send {} rows in the first MoE layer and receive {}", group * ep,
                        group * ep + ep - 1, sent, received));
    }
  }

  // Returns whether the experts' exchanges have a row per token.
  bool rows_recorded() const {
    for (const RankRecording& rank : recording_.ranks)
      for (const SubOperation& sub : rank.sub_operations)
        if (const auto role = role_of(sub); role && role->exchanges_tokens())
          return sub.shape.dims().size() > 1;
    return false;
  }

  void ranks_present() {
    const std::vector<std::int32_t>& missing = facts_.missing_ranks;
    if (missing.empty()) return;
    const NamedTopology& named = recording_.named;
    const std::string which = fmt::format("{} of {} ranks are missing: {}", missing.size(),
                                          missing.size() + recording_.ranks.size(), runs_of(missing));
    if (facts_.side == Side::kRealistic) {
      add(Severity::kProblem, {recording_.source}, which + "; replay --ranks-missing fills them by symmetry");
      return;
    }
    if (!named.pp || !facts_.world || *facts_.world % *named.pp != 0) {
      add(Severity::kWarning, {recording_.source}, which);
      return;
    }
    // Ranks of one stage and one expert rank do equal work, so one of them can represent the others.
    const std::int64_t per_stage = *facts_.world / *named.pp;
    const std::int64_t tp = named.tp.value_or(1);
    const std::int64_t ep = std::max<std::int64_t>(1, named.ep.value_or(1));
    std::map<std::pair<std::int64_t, std::int64_t>, bool> present;
    for (const RankRecording& rank : recording_.ranks)
      present[{rank.rank / per_stage, rank.rank / tp % ep}] = true;
    const auto wanted = static_cast<std::size_t>(*named.pp * ep);
    if (present.size() == wanted)
      add(Severity::kNote, {recording_.source},
          which + "; every pipeline stage and expert rank has a representative, symmetry fills the rest");
    else
      add(Severity::kProblem, {recording_.source},
          fmt::format("{}; {} of {} pairs of pipeline stage and expert rank have no representative", which,
                      wanted - std::min(wanted, present.size()), wanted));
  }

  // Ranks with equal layers and rows do equal work; one that took half as long again was disturbed.
  void outliers() {
    using Key = std::tuple<std::string_view, std::int64_t, std::int64_t, std::int64_t>;
    struct Sample {
      double ms = 0.0;
      const RankRecording* rank = nullptr;
      const Operation* op = nullptr;
    };
    std::map<std::int32_t, const RankRows*> rows_of;
    for (const RankRows& rows : facts_.expert.ranks) rows_of[rows.rank] = &rows;
    std::map<Key, std::vector<Sample>> groups;
    for (const RankRecording& rank : recording_.ranks) {
      const auto rows = rows_of.find(rank.rank);
      for (const Operation& op : rank.operations) {
        if (op.name != "forward_step" && op.name != "backward_step" && op.name != "optimizer_step") continue;
        // Without expert collectives only the stage is known about the work.
        const Key key = rows == rows_of.end()
                            ? Key{op.name.view(), op.stage_id, 0, 0}
                            : Key{op.name.view(), -1, rows->second->moe_layers, rows->second->received};
        groups[key].push_back({op.duration.value(), &rank, &op});
      }
    }
    for (auto& [key, samples] : groups) {
      std::stable_sort(samples.begin(), samples.end(),
                       [](const Sample& a, const Sample& b) { return a.ms < b.ms; });
      const double median = samples[(samples.size() - 1) / 2].ms;
      const auto out = std::count_if(samples.begin(), samples.end(), [&](const Sample& sample) {
        return sample.ms > 1.5 * median && sample.ms > median + 1.0;
      });
      if (out == 0) continue;
      const Sample& worst = samples.back();
      add(Severity::kWarning, worst.rank->place(*worst.op),
          fmt::format(
              "{} of {} {} that do equal work took more than 1.5 times their median of {:.2f} ms; this one "
              "{:.2f} ms",
              out, samples.size(), std::get<0>(key), median, worst.ms));
    }
  }

  void gradients() {
    bool float16 = false, placeholder = false, expert_line = false;
    SourcePlace float16_place, placeholder_place;
    for (const RankRecording& rank : recording_.ranks)
      for (const Operation& op : rank.operations) {
        expert_line |= op.name == "exp_dp_allreduce" || op.name == "ep_dp_allreduce";
        if (op.name != "dp_allreduce") continue;
        if (op.dtype == "torch.float16" && !float16) {
          float16 = true;
          float16_place = rank.place(op);
        }
        if (op.duration.is_placeholder() && !placeholder) {
          placeholder = true;
          placeholder_place = rank.place(op);
        }
      }
    if (float16 && facts_.side == Side::kScaling)
      add(Severity::kWarning, float16_place,
          "dp_allreduce is written as torch.float16; recorders of scaling runs are known to write this for "
          "gradients "
          "that are reduced in float32");
    if (placeholder)
      add(Severity::kNote, placeholder_place,
          "dp_allreduce is a placeholder: its size is recorded, its time is not");
    if (!facts_.expert.dispatcher.empty() && !expert_line)
      add(Severity::kWarning, {recording_.source},
          "no line for the gradients of the experts; dp_allreduce then holds dense and expert parameters "
          "together");
  }

  bool collectives_in_backward() const {
    for (const RankRecording& rank : recording_.ranks)
      for (const Operation& op : rank.operations)
        if (op.name == "backward_step" && op.sub_count > 0) return true;
    return false;
  }

  void habits() {
    if (facts_.side == Side::kUnclear)
      add(Severity::kWarning, {recording_.source},
          "neither clearly a scaling nor a realistic recording: " + join(facts_.side_evidence, ", "));
    if (facts_.side == Side::kScaling) {
      add(Severity::kNote, {recording_.source}, "one sample per rank: no repetition to judge its noise by");
      add(Severity::kNote, {recording_.source},
          "durations of communication are those of local stubs and say nothing about the network");
      if (facts_.expert.dispatcher == "allgather" && !collectives_in_backward())
        add(Severity::kWarning, {recording_.source},
            "no backward collectives of the allgather dispatcher: the public recorder loses them in scaling "
            "runs, "
            "and its expert compute covers about 1/EP of the rows");
    }
    if (facts_.side == Side::kRealistic)
      add(Severity::kNote, {recording_.source},
          "durations of communication contain the wait for the slowest peer");
    if (facts_.clock_domains.size() > 1)
      add(Severity::kNote, {recording_.source},
          fmt::format("{} clocks (nodes) that cannot be compared with each other",
                      facts_.clock_domains.size()));
    const bool changing = std::any_of(facts_.expert.ranks.begin(), facts_.expert.ranks.end(),
                                      [](const RankRows& rows) { return !rows.constant; });
    if (changing) add(Severity::kNote, {recording_.source}, "routing changes between layers or microbatches");
  }

  const Recording& recording_;
  const RecordingFacts& facts_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      break;
  }
  return "problem";
}

std::vector<Finding> examine(const Recording& recording, const RecordingFacts& facts) {
  return Examiner(recording, facts).run();
}

}  // namespace moesim::traces

#include "traces/recording_facts.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "traces/call_roles.h"
#include "traces/recording_rules.h"

namespace moesim::traces {
namespace {

bool is_p2p(const Operation& op) {
  return op.name == "send_forward" || op.name == "recv_forward" || op.name == "send_backward" ||
         op.name == "recv_backward";
}

bool is_gradient_reduction(const Operation& op) {
  return op.name.view().ends_with("_allreduce") && op.shape.has_dims();
}

// Sums durations per key, in the order in which keys first appeared.
class StatsTable {
 public:
  void add(const DurationStats& key, double ms) {
    const auto [at, fresh] =
        index_.try_emplace({key.name, key.parent, key.group, key.comm_func}, rows_.size());
    if (fresh) {
      rows_.push_back(key);
      rows_.back().min_ms = rows_.back().max_ms = ms;
    }
    DurationStats& row = rows_[at->second];
    ++row.count;
    row.mean_ms += ms;  // a sum until take()
    row.min_ms = std::min(row.min_ms, ms);
    row.max_ms = std::max(row.max_ms, ms);
  }

  std::vector<DurationStats> take() {
    for (DurationStats& row : rows_) row.mean_ms /= static_cast<double>(row.count);
    return std::move(rows_);
  }

 private:
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> index_;
  std::vector<DurationStats> rows_;
};

void find_durations(const Recording& recording, RecordingFacts& facts) {
  StatsTable operations;
  StatsTable subs;
  for (const RankRecording& rank : recording.ranks) {
    for (std::size_t i = 0; i < rank.operations.size(); ++i) {
      const Operation& op = rank.operations[i];
      DurationStats key;
      key.name = op.name.str();
      key.group = op.group_kind.str();
      operations.add(key, op.duration.value());
      for (const SubOperation& sub : rank.subs(op)) {
        DurationStats sub_key;
        sub_key.name = sub.source.str();
        sub_key.parent = op.name.str();
        sub_key.group = sub.group.str();
        sub_key.comm_func = sub.comm_func.str();
        subs.add(sub_key, sub.duration.value());
      }
      if (is_fused_pair(rank.operations, i)) ++facts.fused_pairs;
    }
  }
  facts.operations = operations.take();
  facts.sub_operations = subs.take();
}

void find_side(const Recording& recording, RecordingFacts& facts) {
  bool p2p = false, several = false, actual = false, said = false;
  bool simulation = false, placeholders = false, metadata = false, states = false, tp_batch = false;
  for (const RankRecording& rank : recording.ranks) {
    std::int64_t forwards = 0;
    for (const Operation& op : rank.operations) {
      p2p |= is_p2p(op);
      forwards += op.name == "forward_step" ? 1 : 0;
      simulation |= op.description.view().starts_with("simulation");
      placeholders |= op.duration.is_placeholder() && op.timestamp.is_placeholder();
      metadata |= op.op_semantics == "metadata_placeholder";
      states |= op.name == "forward_step" && !op.state.is_none();
      tp_batch |= op.name == "get_batch" && op.group_kind == "tp";
      facts.newer_writer |= op.form != LineForm::kV1;
      facts.stages = std::max<std::int64_t>(facts.stages, op.stage_id + 1);
    }
    for (const GradientBucket& bucket : rank.gradient_buckets) {
      metadata |= bucket.metadata_only;
      actual |= bucket.timing_domain == "actual";
    }
    several |= forwards > 1;
    said |= says_real_run(rank);
    facts.microbatches = std::max(facts.microbatches, forwards);
  }
  std::vector<std::string> realistic;
  if (p2p) realistic.push_back("sends and receives are recorded");
  if (several) realistic.push_back("several microbatches per rank");
  if (actual) realistic.push_back("gradient buckets with actual times");
  if (said) realistic.push_back("the files say so");
  std::vector<std::string> scaling;
  if (simulation) scaling.push_back("descriptions say simulation");
  if (placeholders) scaling.push_back("placeholder lines with duration 0 and timestamp 0");
  if (metadata) scaling.push_back("lines marked as metadata only");
  if (tp_batch) scaling.push_back("get_batch carries the group tp");
  if (realistic.empty() && scaling.empty() && facts.microbatches == 1 && !states)
    scaling.push_back("one microbatch per rank without schedule states");
  if (!realistic.empty() && scaling.empty()) facts.side = Side::kRealistic;
  if (realistic.empty() && !scaling.empty()) facts.side = Side::kScaling;
  facts.side_evidence = std::move(realistic);
  facts.side_evidence.insert(facts.side_evidence.end(), scaling.begin(), scaling.end());
}

void find_world(const Recording& recording, RecordingFacts& facts) {
  const NamedTopology& named = recording.named;
  if (named.world) {
    facts.world = named.world;
  } else if (named.pp && named.dp) {
    const std::int64_t tp = named.tp.value_or(1);
    constexpr std::int64_t kMost = 1 << 24;
    if (*named.pp <= kMost && *named.dp <= kMost / *named.pp && tp <= kMost / (*named.pp * *named.dp))
      facts.world = *named.pp * *named.dp * tp;
  }
  // Without a named size the recording only shows that the world includes its highest rank.
  const std::int64_t highest = recording.ranks.empty() ? -1 : recording.ranks.back().rank;
  constexpr std::int64_t kMostListed = 1 << 24;
  const std::int64_t end = std::min(facts.world.value_or(highest + 1), kMostListed);
  std::size_t at = 0;
  for (std::int64_t rank = 0; rank < end; ++rank) {
    while (at < recording.ranks.size() && recording.ranks[at].rank < rank) ++at;
    if (at == recording.ranks.size() || recording.ranks[at].rank != rank)
      facts.missing_ranks.push_back(static_cast<std::int32_t>(rank));
  }
}

// Layers and rows of one forward_step.
struct ForwardRows {
  std::int64_t count_gathers = 0;
  std::int64_t experts = 0;
  std::int64_t allgather_layers = 0;
  std::vector<std::int64_t> all_to_all;  // input rows, in order: dispatch and combine of every layer
};

ForwardRows rows_of(const RankRecording& rank, const Operation& forward) {
  ForwardRows rows;
  const auto subs = rank.subs(forward);
  const auto roles = roles_of(subs);
  for (std::size_t i = 0; i < subs.size(); ++i) {
    const SubOperation& sub = subs[i];
    const auto& role = roles[i];
    if (!role) continue;
    if (role->counts) {
      // an all-to-all of counts covers only some of the experts
      if (role->kind != CommKind::all_gather) continue;
      ++rows.count_gathers;
      rows.experts = sub.shape.dims()[0];
    } else if (role->combines_gathered()) {
      ++rows.allgather_layers;
    } else if (role->exchanges_tokens()) {
      rows.all_to_all.push_back(sub.shape.dims().empty() ? 0 : sub.shape.dims()[0]);
    }
  }
  return rows;
}

void find_clock_domains(const Recording& recording, RecordingFacts& facts) {
  struct Interval {
    double start = 0.0;
    double end = 0.0;
    std::int32_t rank = 0;
  };
  std::vector<Interval> intervals;
  for (const RankRecording& rank : recording.ranks) {
    std::optional<Interval> interval;
    for (const Operation& op : rank.operations) {
      if (op.timestamp.is_placeholder()) continue;
      const double end = op.timestamp.value();
      if (!interval) interval = Interval{op.start_ms(), end, rank.rank};
      interval->start = std::min(interval->start, op.start_ms());
      interval->end = std::max(interval->end, end);
    }
    if (interval) intervals.push_back(*interval);
  }
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return std::tie(a.start, a.end, a.rank) < std::tie(b.start, b.end, b.rank);
  });
  // Ranks of one run start together, fake ranks follow each other within minutes; boot times differ by more.
  constexpr double kGapMs = 10.0 * 60.0 * 1000.0;
  double reached = 0.0;
  for (const Interval& interval : intervals) {
    if (facts.clock_domains.empty() || interval.start > reached + kGapMs) facts.clock_domains.emplace_back();
    facts.clock_domains.back().push_back(interval.rank);
    reached = std::max(reached, interval.end);
  }
  for (auto& domain : facts.clock_domains) std::sort(domain.begin(), domain.end());
  std::sort(facts.clock_domains.begin(), facts.clock_domains.end());
}

void find_transfers(const Recording& recording, RecordingFacts& facts) {
  for (const RankRecording& rank : recording.ranks) {
    if (!facts.device) facts.device = device_of(rank);
    facts.transfers += static_cast<std::int64_t>(rank.gradient_buckets.size());
    facts.transfers += std::count_if(rank.operations.begin(), rank.operations.end(), [](const Operation& op) {
      return is_p2p(op) || is_gradient_reduction(op);
    });
    facts.transfers += std::count_if(rank.sub_operations.begin(), rank.sub_operations.end(),
                                     [](const SubOperation& sub) { return sub.comm_func.present(); });
  }
}

}  // namespace

bool says_real_run(const RankRecording& rank) {
  return std::find(rank.header.begin(), rank.header.end(), kRealRunHeader) != rank.header.end();
}

bool on_fake_group(const RankRecording& rank) {
  return std::ranges::any_of(rank.header, [](const std::string& line) {
    return line.starts_with(" recorded: with torch's fake process group");
  });
}

std::optional<Device> device_of(const RankRecording& rank) {
  constexpr std::string_view kDevice = " device: ", kCpu = "cpu, ", kCuda = "cuda, ";
  constexpr std::string_view kOurs = " moesim-capture ", kHostClock = ", host clock", kHost = " host: ";
  for (const std::string& line : rank.header) {
    if (!line.starts_with(kDevice)) continue;
    const std::string_view said = std::string_view(line).substr(kDevice.size());
    for (const std::string_view kind : {kCpu, kCuda})
      if (said.starts_with(kind)) return Device{kind == kCpu, std::string(said.substr(kind.size()))};
  }
  // Recordings up to 2026 name no device; those on the host's clock computed on the host.
  if (rank.header.empty() || !rank.header.front().starts_with(kOurs) ||
      rank.header.front().find(kHostClock) == std::string::npos)
    return std::nullopt;
  for (const std::string& line : rank.header)
    if (line.starts_with(kHost))
      return Device{true, line.substr(kHost.size(), line.find(',') - kHost.size())};
  return Device{true, ""};
}

std::optional<Synthetic> synthetic_of(const RankRecording& rank) {
  if (rank.header.empty() || !rank.header.front().starts_with(kSyntheticHeader)) return std::nullopt;
  Synthetic out;
  for (const std::string& line : rank.header)
    for (const std::string_view word : split(line, ' ')) {
      constexpr std::string_view kProfile = "profile=", kCluster = "cluster=";
      if (word.starts_with(kProfile)) out.profile = word.substr(kProfile.size());
      if (word.starts_with(kCluster)) out.cluster = word.substr(kCluster.size());
    }
  return out;
}

std::string_view to_string(Side side) {
  switch (side) {
    case Side::kScaling:
      return "scaling";
    case Side::kRealistic:
      return "realistic";
    case Side::kUnclear:
      break;
  }
  return "unclear";
}

ExpertRows expert_rows(const Recording& recording) {
  ExpertRows out;
  bool alltoall = false, allgather = false;
  std::map<std::int32_t, std::int64_t> layers_of_stage;
  for (const RankRecording& rank : recording.ranks) {
    RankRows summary;
    summary.rank = rank.rank;
    bool first = true;
    for (const Operation& op : rank.operations) {
      if (op.name != "forward_step") continue;
      const ForwardRows rows = rows_of(rank, op);
      if (rows.count_gathers + rows.allgather_layers == 0 && rows.all_to_all.empty()) continue;
      alltoall |= !rows.all_to_all.empty();
      allgather |= rows.allgather_layers > 0;
      out.experts = std::max(out.experts, rows.experts);
      const auto layers = rows.all_to_all.empty() ? rows.allgather_layers
                                                  : static_cast<std::int64_t>(rows.all_to_all.size() / 2);
      if (first) {
        summary.stage = op.stage_id;
        summary.moe_layers = layers;
        if (rows.all_to_all.size() >= 2) {
          summary.sent = rows.all_to_all[0];
          summary.received = rows.all_to_all[1];
        }
      }
      summary.constant &= layers == summary.moe_layers;
      for (std::size_t i = 0; i + 1 < rows.all_to_all.size(); i += 2)
        summary.constant &= rows.all_to_all[i] == summary.sent && rows.all_to_all[i + 1] == summary.received;
      first = false;
    }
    if (first) continue;
    layers_of_stage[summary.stage] = std::max(layers_of_stage[summary.stage], summary.moe_layers);
    out.ranks.push_back(summary);
  }
  for (const auto& [stage, layers] : layers_of_stage) out.moe_layers += layers;
  if (alltoall || allgather)
    out.dispatcher = alltoall && allgather ? "mixed" : alltoall ? "alltoall" : "allgather";
  return out;
}

RecordingFacts describe(const Recording& recording) {
  RecordingFacts facts;
  find_side(recording, facts);
  find_world(recording, facts);
  find_durations(recording, facts);
  facts.expert = expert_rows(recording);
  find_clock_domains(recording, facts);
  find_transfers(recording, facts);
  facts.without_role = calls_without_role(recording);
  return facts;
}

}  // namespace moesim::traces

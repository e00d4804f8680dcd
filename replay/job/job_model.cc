#include "replay/job/job_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "models/hardware/cluster.h"
#include "replay/recording/gradients.h"
#include "replay/recording/recorded_routing.h"
#include "traces/dispatching.h"

namespace moesim::replay {

namespace {

// Sizes with which a recording is another job.
constexpr std::array<std::string_view, 5> kSizes{"parallel.seq", "parallel.ep", "model.experts",
                                                 "parallel.dp", "parallel.pp"};

constexpr std::int64_t kMostTables = 4096;  // of a routing file, in a replay

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw InputError("found " + found + ", expected " + expected);
}

constexpr int kSplits = 101;
constexpr double kSmallestShape = 0.1;  // of a drawn popularity: one expert takes nearly all

// Returns rows per expert of each source rank from rows per destination rank, evenly over the experts of a
// rank.
std::vector<std::int64_t> even_counts(const std::vector<std::uint32_t>& splits, int ranks, int experts) {
  const int local = experts / ranks;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(experts));
  for (int s = 0; s < ranks; ++s)
    for (int d = 0; d < ranks; ++d) {
      const std::int64_t rows =
          splits[static_cast<std::size_t>(s) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(d)];
      for (int e = 0; e < local; ++e)
        // The remainder goes to other experts on other sources, so that totals are even too.
        counts[static_cast<std::size_t>(s) * experts + d * local + e] =
            rows / local + ((e + s) % local < rows % local ? 1 : 0);
    }
  return counts;
}

// `received`: by expert rank. Rows of the tensor-parallel ranks of a source are split evenly.
models::Routing completed_routing(const std::vector<std::int64_t>& received, std::int64_t tokens, int tp,
                                  int topk, int experts) {
  const int ranks = static_cast<int>(received.size());
  const std::vector<std::int64_t> sent(received.size(), tokens * tp * topk);
  const auto splits = recover_split_matrix(sent, received);
  const std::vector<std::int64_t> whole = even_counts(splits, ranks, experts);
  std::vector<std::int64_t> counts(whole.size() * static_cast<std::size_t>(tp));
  for (int r = 0; r < ranks; ++r) {
    std::int64_t turn = 0;  // rank that gets the odd row, so that the sums are even too
    for (int e = 0; e < experts; ++e) {
      const std::int64_t rows = whole[static_cast<std::size_t>(r) * static_cast<std::size_t>(experts) +
                                      static_cast<std::size_t>(e)];
      const auto of = [&](std::int64_t t) -> std::int64_t& {
        return counts[static_cast<std::size_t>((r * tp + t) * experts + e)];
      };
      for (int t = 0; t < tp; ++t) of(t) = rows / tp;
      for (std::int64_t i = 0; i < rows % tp; ++i) ++of(turn++ % tp);
    }
  }
  return models::Routing::from_counts(
      ranks * tp, experts, topk,
      std::vector<std::int64_t>(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(tp), tokens),
      std::move(counts));
}

const Step* forward_of(const CleanPlace& place) {
  for (const Step& step : place.steps)
    if (step.kind == StepKind::forward) return &step;
  return nullptr;
}

// Returns the gather of every token's choices, [N, K] integers, with which the AllGather dispatcher begins;
// nullptr in other recordings.
const Call* gathered_choices(const Step& forward) {
  for (const Call& call : forward.calls)
    if (call.op == sim::CollectiveOp::all_gather && call.group == GroupKind::tp_expert &&
        call.element_bytes == 8)
      return &call;
  return nullptr;
}

// Returns integers in proportion to `weights` that add up to `total`.
std::vector<std::int64_t> apportion(const std::vector<double>& weights, std::int64_t total) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> parts(weights.size());
  std::vector<std::pair<double, std::size_t>> rest;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = sum > 0 ? weights[i] / sum * static_cast<double>(total)
                                 : static_cast<double>(total) / static_cast<double>(weights.size());
    parts[i] = static_cast<std::int64_t>(exact);
    given += parts[i];
    rest.emplace_back(static_cast<double>(parts[i]) - exact, i);
  }
  std::sort(rest.begin(), rest.end());
  for (std::size_t k = 0; given < total; ++k, ++given) ++parts[rest[k % rest.size()].second];
  return parts;
}

// Draws popularities from the distribution whose sums over the experts of a rank scatter as the recorded
// ranks do: gamma, by its first two moments. The share of every recorded rank stays.
void draw_apart(std::vector<double>& weights, const JobModel& from, std::uint64_t seed) {
  const std::vector<std::int64_t> received = from.received();
  const auto ranks = static_cast<double>(received.size());
  const double mean = std::accumulate(received.begin(), received.end(), 0.0) / ranks;
  double variance = 0;
  for (const std::int64_t rows : received)
    variance += std::pow(static_cast<double>(rows) - mean, 2) / std::max(1.0, ranks - 1);
  const std::size_t local = weights.size() / received.size();
  const double relative = mean > 0 ? variance / (mean * mean) : 0;
  if (relative <= 0 || local < 2) return;
  const double shape = std::max(kSmallestShape, 1 / (static_cast<double>(local) * relative));
  Random random(seed);
  for (std::size_t r = 0; r < received.size(); ++r) {
    const auto first = weights.begin() + static_cast<std::ptrdiff_t>(r * local);
    const auto last = first + static_cast<std::ptrdiff_t>(local);
    const double share = std::accumulate(first, last, 0.0);
    std::generate(first, last, [&] { return random.gamma(shape); });
    const double drawn = std::accumulate(first, last, 0.0);
    for (auto at = first; at != last; ++at)
      *at = drawn > 0 ? *at * share / drawn : share / static_cast<double>(local);
  }
}

// Maps the popularity of the recorded experts to another number of expert ranks, experts and tokens.
models::Routing kept_popularity(const JobModel& from, const JobModel& to,
                                const std::optional<std::uint64_t>& split_seed,
                                std::vector<std::string>& warnings) {
  const std::vector<std::int64_t> totals = from.routing.expert_totals();
  const auto before = static_cast<std::int64_t>(totals.size());
  const std::int64_t after = to.architecture.experts;
  if (before % after != 0 && after % before != 0)
    refuse(fmt::format("{} experts from a recording of {}", after, before),
           "a multiple or a divisor of them, so that experts can be split or merged");
  std::vector<double> weights(static_cast<std::size_t>(after), 0.0);
  for (std::int64_t e = 0; e < before; ++e) {
    const auto share = static_cast<double>(totals[static_cast<std::size_t>(e)]);
    if (after >= before)
      for (std::int64_t k = 0; k < after / before; ++k)
        weights[static_cast<std::size_t>(e * (after / before) + k)] = share;
    else
      weights[static_cast<std::size_t>(e / (before / after))] += share;
  }
  if (after != before)
    warnings.push_back(
        fmt::format("the routing of {} experts follows from that of {} by {}: another router would choose "
                    "otherwise; set --routing",
                    after, before, after > before ? "halves of equal popularity" : "adding neighbours"));
  if (from.routing_completed && to.topology.expert > from.topology.expert)
    warnings.push_back(fmt::format(
        "the recording shows rows per expert rank of {}, not per expert: on {} expert ranks the "
        "experts of a recorded rank differ as the ranks do, by the median of {} draws; set --routing",
        from.topology.expert, to.topology.expert, kSplits));
  if (split_seed && from.routing_completed && after % from.topology.expert == 0)
    draw_apart(weights, from, *split_seed);
  const int ranks = to.topology.expert;
  const auto local = static_cast<std::size_t>(after / ranks);
  // A source rank has at most one row per token for an expert: the excess goes to the others.
  const std::int64_t total = to.tokens() * to.architecture.topk;
  std::vector<std::int64_t> row = apportion(weights, total);
  for (std::int64_t over = 1; over > 0;) {
    over = 0;
    for (std::int64_t& rows : row) {
      over += std::max<std::int64_t>(0, rows - to.tokens());
      rows = std::min(rows, to.tokens());
    }
    for (std::int64_t& rows : row) {
      const std::int64_t taken = std::min(over, to.tokens() - rows);
      rows += taken;
      over -= taken;
    }
  }
  check(local > 0, "every expert rank has an expert");
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.insert(counts.end(), row.begin(), row.end());
  return models::Routing::from_counts(ranks, static_cast<int>(after), static_cast<int>(to.architecture.topk),
                                      std::vector<std::int64_t>(static_cast<std::size_t>(ranks), to.tokens()),
                                      std::move(counts));
}

// Returns the seed of the split of recorded ranks whose busiest rank has the median of the rows that it may have; a
// rank has experts of equal popularity in the best case only. nullopt where no recorded rank is split.
std::optional<std::uint64_t> median_split(const JobModel& from, JobModel to) {
  if (!from.routing_completed || to.topology.expert <= from.topology.expert) return std::nullopt;
  std::vector<std::pair<std::int64_t, std::uint64_t>> busiest;
  for (std::uint64_t seed = 0; seed < kSplits; ++seed) {
    std::vector<std::string> told_elsewhere;
    to.routing = kept_popularity(from, to, seed, told_elsewhere);
    busiest.emplace_back(std::ranges::max(to.received()), seed);
  }
  std::ranges::nth_element(busiest, busiest.begin() + kSplits / 2);
  return busiest[kSplits / 2].second;
}

// Returns the routing of a layer and microbatch, counted over the job, from a file.
LoadedRouting routing_of_layer(const std::string& path, const JobModel& job, int layer, int microbatch) {
  const traces::Dispatching file = traces::read_dispatching(path);
  const NamedTables named = named_tables(file);
  return routing_from_dispatching(file, path, job.ranks(), job.topology.tp, job.architecture.experts,
                                  job.architecture.topk, NamedTables::of(named.layers, layer),
                                  NamedTables::of(named.microbatches, microbatch), {job.tokens(), true});
}

// Returns the routing that a user names, for a job with known sizes.
LoadedRouting named_routing(const models::RoutingSpec& spec, const JobModel& job, std::uint64_t seed) {
  if (spec.kind != models::RoutingSpec::Kind::kFile)
    return {models::make_routing(spec, job.ranks(), job.tokens(), static_cast<int>(job.architecture.experts),
                                 static_cast<int>(job.architecture.topk), seed),
            {}};
  LoadedRouting loaded = routing_of_layer(spec.path, job, 0, 0);
  if (loaded.routing.max_tokens() != job.tokens() || !loaded.routing.equal_tokens())
    refuse(fmt::format("{} tokens per rank in {}", loaded.routing.max_tokens(), spec.path),
           fmt::format("{} as in the recording, or --seq", job.tokens()));
  return loaded;
}

}  // namespace

std::vector<std::int64_t> JobModel::received() const {
  const std::vector<std::int64_t> totals = routing.expert_totals();
  const std::size_t local = totals.size() / static_cast<std::size_t>(topology.expert);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(topology.expert), 0);
  for (std::size_t e = 0; e < totals.size(); ++e) rows[e / local] += totals[e];
  return rows;
}

models::MoeLayer JobModel::moe_layer(int gpus_per_node) const {
  models::MoeLayer layer;
  layer.hidden = architecture.hidden;
  layer.expert_ffn = architecture.expert_ffn;
  layer.shared_ffn = architecture.shared_ffn;
  layer.gated = architecture.gated;
  layer.ep = topology.expert;
  // Without parallel folding, as in the recorders, experts are split over the same ranks as the rest.
  layer.etp = topology.tp;
  layer.tp = topology.tp;
  layer.ranks_per_node = gpus_per_node;
  // The recorder keeps probabilities in the type of the parameters.
  layer.router = models::DType::kBf16;
  layer.routing_given = true;
  layer.routing = &routing;
  return layer;
}

bool RecordingQuestion::changes(std::string_view path) const {
  return std::ranges::any_of(said.origins.all(), [&](const auto& one) {
    const std::string_view other = one.first;
    return other.starts_with(path) && (other.size() == path.size() || other[path.size()] == '.') &&
           one.second.kind != models::Origin::Kind::kRecording;
  });
}

const models::RoutingSpec* RecordingQuestion::routing() const {
  if (changes("routing")) return &said.routing;
  return routing_beside ? &*routing_beside : nullptr;
}

std::optional<std::int64_t> RecordingQuestion::size(std::string_view path) const {
  if (!changes(path)) return std::nullopt;
  const models::Parallel& p = said.parallel;
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"parallel.seq", p.seq},
      {"parallel.ep", p.ep},
      {"parallel.dp", p.dp},
      {"parallel.pp", p.pp},
      {"parallel.microbatches", p.microbatches},
      {"model.experts", said.model.experts},
      {"cluster.nodes", said.cluster ? said.cluster->nodes : 1}};
  return std::ranges::find(sizes, path, &std::pair<std::string_view, std::int64_t>::first)->second;
}

const models::Architecture* RecordingQuestion::model() const {
  const models::Origin* origin = said.origins.find("model");
  return origin && origin->kind != models::Origin::Kind::kRecording ? &said.model : nullptr;
}

bool RecordingQuestion::resizes() const {
  return std::ranges::any_of(kSizes, [&](std::string_view path) { return changes(path); });
}

bool RecordingQuestion::changes_job() const {
  return resizes() || received || !recorded_on.empty() || changes("routing") || changes("cluster.nodes") ||
         changes("dispatcher");
}

RecordingQuestion RecordingQuestion::as_recorded() const {
  RecordingQuestion same = *this;
  same.said.origins.erase("dispatcher");
  return same;
}

JobModel job_model(const CleanJob& job, const traces::NamedTopology& named,
                   const RecordingQuestion& question) {
  JobModel out;
  out.topology = job.topology;
  std::vector<std::int64_t> received;
  std::int64_t sent = 0;
  const Call* choices = nullptr;
  for (int e = 0; e < job.topology.expert; ++e) {
    const CleanPlace& place = job.places.at({0, 0, e});
    received.push_back(place.received_rows);
    if (const Step* forward = forward_of(place)) {
      choices = gathered_choices(*forward);
      for (const Call& call : forward->calls)
        if (is_exchange(call)) {
          sent = call.rows;
          break;
        }
    }
  }
  const bool gathered = sent == 0 && choices != nullptr;
  const models::RoutingSpec* file = question.routing();
  // The exchanges of the AlltoAll program carry columns of all ranks of a tensor-parallel group.
  if (gathered) sent = choices->rows * choices->row_elements * job.topology.tp;
  if (sent == 0 || job.topology.expert < 2)
    refuse(fmt::format("a recording of {} without exchanges between expert ranks", job.topology.str()),
           "one with expert parallelism: nothing else shows where its MoE layers are");
  const ModelFacts facts = model_facts(named, job, question.model());
  if (!facts.model && question.model() == nullptr && facts.layers <= 0)
    refuse("no number of layers in the names of the recording", "nl<N> in the folder's name, or --model");
  if (!facts.model && question.model() != nullptr)
    refuse(fmt::format("{} layers and {} experts for {}", facts.layers, facts.experts, job.topology.str()),
           "numbers that the stages and expert ranks divide");
  if (!facts.model)
    refuse(fmt::format("no built-in model with hidden size {} and the recorded gradient sizes", facts.hidden),
           "--model with the recorded one");
  out.architecture = *facts.model;
  // The recorded vocabulary, padded, determines the time at the ends of the model.
  std::vector<std::string> ignored;
  if (const std::int64_t table = gradient_sizes(job, {0, 0, 0}, facts, ignored).embedding; table > 0)
    out.architecture.vocabulary = table * job.topology.tp / out.architecture.hidden;
  out.micro_batch = std::max<std::int64_t>(1, named.micro_batch.value_or(1));
  out.seq = named.seq.value_or(question.size("parallel.seq").value_or(0));
  if (out.seq == 0)
    refuse("no sequence length in the names of the recording", "sl<N> in the folder's name, or --seq");
  const std::int64_t tokens = out.seq * out.micro_batch;
  if (out.seq < 1 || sent % tokens != 0)
    refuse(fmt::format("{} rows in a dispatch of {} tokens", sent, tokens), "a whole number per token");
  if (tokens % job.topology.tp != 0)
    refuse(fmt::format("{} tokens with tp {}", tokens, job.topology.tp), "a multiple of tp");
  // Twice the rows are twice the choices or twice the sequences, which only a name distinguishes.
  const std::int64_t topk = std::exchange(out.architecture.topk, sent / tokens);
  if (!named.micro_batch && out.architecture.topk != topk)
    refuse(fmt::format("{} rows in a dispatch of {} tokens, where {} chooses {} experts", sent, tokens,
                       out.architecture.name, topk),
           "bs<N> in the folder's name, the sequences of a microbatch");
  if (gathered) {
    if (file == nullptr)
      refuse("a recording of the AllGather dispatcher, whose calls have the same rows on every rank",
             "--routing with what was routed: it decides what the experts computed");
    out.routing = named_routing(*file, out, question.said.seed).routing;
    return out;
  }
  // The file knows the experts of a rank apart, which the exchanges do not show.
  if (!question.changes("routing") && file != nullptr && out.topology.tp == 1 &&
      rows_of_ranks(*file, out.topology.expert, sent * out.topology.expert) == received) {
    out.routing = named_routing(*file, out, question.said.seed).routing;
    return out;
  }
  out.routing =
      completed_routing(received, out.tokens(), out.topology.tp, static_cast<int>(out.architecture.topk),
                        static_cast<int>(out.architecture.experts));
  out.routing_completed = true;
  return out;
}

RoutedLayers routed_layers(const JobModel& job, const RecordingQuestion& question) {
  RoutedLayers out;
  const models::RoutingSpec& routing = question.said.routing;
  if (!question.changes("routing") || routing.kind != models::RoutingSpec::Kind::kFile) return out;
  const NamedTables named = named_tables(traces::read_dispatching(routing.path));
  if (named.one_for_all()) return out;
  const int layers = static_cast<int>(job.architecture.layers);
  const int microbatches = static_cast<int>(std::max<std::size_t>(1, named.microbatches.size()));
  const std::size_t tables = std::max<std::size_t>(1, named.layers.size());
  if (std::int64_t{microbatches} * static_cast<std::int64_t>(tables) > kMostTables)
    refuse(fmt::format("{} layers x {} microbatches in {}", tables, microbatches, routing.path),
           fmt::format("at most {} together", kMostTables));
  for (int m = 0; m < microbatches; ++m) {
    out.table.emplace_back();
    for (int l = 0; l < layers; ++l) {
      const std::size_t at = static_cast<std::size_t>(l) % tables;
      if (static_cast<std::size_t>(l) == at) {
        out.jobs.push_back(job);
        out.jobs.back().routing = routing_of_layer(routing.path, job, l, m).routing;
      }
      out.table.back().push_back(
          static_cast<std::size_t>(m) * std::min<std::size_t>(tables, static_cast<std::size_t>(layers)) + at);
    }
  }
  return out;
}

JobModel changed_job(const JobModel& job, const RecordingQuestion& question,
                     std::vector<std::string>& warnings) {
  JobModel to = job;
  if (job.topology.tp > 1 && question.resizes())
    refuse(fmt::format("other sizes for a recording of tp {}", job.topology.tp),
           "tp 1: what tensor parallelism adds to the layers is not in the models of a replay");
  const auto size = [&](std::string_view path, std::int64_t recorded) {
    const std::int64_t value = question.size(path).value_or(recorded);
    if (value < 1 || value > (std::int64_t{1} << 22))
      refuse(fmt::format("{} {}", path, value), "a size from 1 to 4194304");
    return static_cast<int>(value);
  };
  to.seq = size("parallel.seq", job.seq);
  to.architecture.experts = size("model.experts", job.architecture.experts);
  to.topology.pp = size("parallel.pp", job.topology.pp);
  const int ep = size("parallel.ep", job.topology.expert), dp = size("parallel.dp", job.topology.dp());
  if (dp % ep != 0) refuse(fmt::format("ep {} with dp {}", ep, dp), "an ep that divides dp");
  if (ep < 2) refuse("--ep 1", "at least 2: a layer without exchanges was not recorded");
  to.topology.expert = ep;
  to.topology.expert_dp = dp / ep;
  to.topology.check_sizes("the rescaled job");
  if (to.architecture.layers % to.topology.pp != 0)
    refuse(fmt::format("pp {} with {} layers", to.topology.pp, to.architecture.layers),
           "a pp that divides the layers");
  if (to.architecture.experts % ep != 0 || to.architecture.topk > to.architecture.experts)
    refuse(fmt::format("{} experts with ep {} and top-{}", to.architecture.experts, ep, to.architecture.topk),
           "a multiple of ep, and at least top-k of them");
  if (question.received) {
    to.routing_given = true;
    const std::vector<std::int64_t>& received = *question.received;
    const auto rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    if (static_cast<int>(received.size()) != ep || rows != to.tokens() * to.architecture.topk * to.ranks())
      refuse(fmt::format("{} rows received by {} expert ranks", rows, received.size()),
             fmt::format("{} on {}", to.tokens() * to.architecture.topk * to.ranks(), ep));
    to.routing =
        completed_routing(received, to.tokens(), to.topology.tp, static_cast<int>(to.architecture.topk),
                          static_cast<int>(to.architecture.experts));
  } else if (question.changes("routing")) {
    to.routing_given = true;
    to.routing_completed = false;
    LoadedRouting loaded = named_routing(question.said.routing, to, question.said.seed);
    for (std::string& warning : loaded.warnings) warnings.push_back(std::move(warning));
    to.routing = std::move(loaded.routing);
  } else if (to.topology.expert != job.topology.expert || to.seq != job.seq ||
             to.architecture.experts != job.architecture.experts) {
    to.routing =
        kept_popularity(job, to, question.split_seed ? question.split_seed : median_split(job, to), warnings);
  }
  return to;
}

traces::NamedTopology names_of(const JobModel& job, traces::NamedTopology named) {
  named.world = job.topology.world();
  named.pp = job.topology.pp;
  named.ep = job.topology.expert;
  named.dp = job.topology.dp();
  named.experts = job.architecture.experts;
  named.layers = job.architecture.layers;
  named.hidden = job.architecture.hidden;
  named.seq = job.seq;
  return named;
}

}  // namespace moesim::replay

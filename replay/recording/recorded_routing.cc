#include "replay/recording/recorded_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/input_error.h"
#include "traces/dispatching.h"

namespace moesim::replay {

namespace {

// Returns received rows per expert, split over the sources as evenly as integers allow.
std::vector<std::int64_t> spread_evenly(const std::vector<std::int64_t>& received, int ranks) {
  const std::size_t experts = received.size();
  std::vector<std::int64_t> counts(ranks * experts);
  std::int64_t turn = 0;  // next source of an odd row, so that the sums are even too
  for (std::size_t e = 0; e < experts; ++e) {
    for (int r = 0; r < ranks; ++r) counts[r * experts + e] = received[e] / ranks;
    for (std::int64_t i = 0; i < received[e] % ranks; ++i) ++counts[(turn++ % ranks) * experts + e];
  }
  return counts;
}

// Returns the rows that every expert receives, `total` in all. The ranks without an entry receive what the others
// leave, each of their experts in proportion to what the file takes in their place. Returns nullopt where no rank
// lacks, where the total is not known (0), and where the file is of other tokens, so that only its shares say
// something: there the ranks with an entry receive less than half of a balanced share.
std::optional<std::vector<std::int64_t>> completed(const traces::DispatchingTable& table, std::int64_t ep,
                                                   std::int64_t total, const SourcePlace& place) {
  if (table.missing.empty() || total == 0) return std::nullopt;
  std::vector<std::int64_t> rows = table.received;
  const auto local = static_cast<std::int64_t>(rows.size()) / ep;
  std::vector<std::size_t> open;
  for (const std::int64_t rank : table.missing)
    for (std::int64_t e = 0; e < local; ++e) open.push_back(static_cast<std::size_t>(rank * local + e));
  std::int64_t taken = 0;
  for (const std::size_t e : open) taken += rows[e];
  const std::int64_t known = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) - taken;
  if (2 * known * ep < total * (ep - static_cast<std::int64_t>(table.missing.size()))) return std::nullopt;
  const std::int64_t left = total - known;
  if (left < 0)
    throw InputError(place, fmt::format("{} rows received by the ranks with an entry", known),
                     fmt::format("at most {}: the ranks' tokens x top-k", total));
  std::int64_t share = 0, before = 0;  // up to this expert
  for (const std::size_t e : open) {
    share += taken > 0 ? rows[e] : 1;
    const std::int64_t after = left * share / (taken > 0 ? taken : static_cast<std::int64_t>(open.size()));
    rows[e] = after - std::exchange(before, after);
  }
  return rows;
}

// Returns rows of `ranks` ranks with so many tokens each, spread over the experts in proportion to their
// loads, exactly: every rank has tokens x topk, and no expert more rows of a rank than it has tokens.
models::Routing routing_of_loads(const std::vector<std::int64_t>& loads, int ranks, std::int64_t tokens,
                                 std::int64_t topk) {
  const std::size_t experts = loads.size();
  const double rows = static_cast<double>(tokens * topk);
  std::vector<double> wanted(experts, -1);  // per rank; -1: open
  double left = rows, load = 0;
  for (const std::int64_t one : loads) load += static_cast<double>(one);
  // Experts wanted by more than all tokens get all tokens, the others share the rest.
  for (bool settled = true; settled && load > 0;) {
    settled = false;
    for (std::size_t e = 0; e < experts; ++e)
      if (wanted[e] < 0 && left * static_cast<double>(loads[e]) / load > static_cast<double>(tokens)) {
        wanted[e] = static_cast<double>(tokens);
        left -= wanted[e], load -= static_cast<double>(loads[e]);
        settled = true;
      }
  }
  std::size_t open = 0;  // without a load, where the others are full
  for (std::size_t e = 0; e < experts; ++e) open += wanted[e] < 0;
  for (std::size_t e = 0; e < experts; ++e)
    if (wanted[e] < 0)
      wanted[e] = load > 0 ? left * static_cast<double>(loads[e]) / load : left / static_cast<double>(open);
  std::vector<std::int64_t> counts;
  std::vector<double> owed(experts, 0);  // rounding remainders of an expert on earlier ranks
  for (int r = 0; r < ranks; ++r) {
    std::vector<std::int64_t> mine(experts);
    std::int64_t given = 0;
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t e = 0; e < experts; ++e) {
      owed[e] += wanted[e];
      mine[e] = std::clamp<std::int64_t>(static_cast<std::int64_t>(owed[e]), 0, tokens);
      given += mine[e];
    }
    const auto remainder = [&](std::size_t e) { return owed[e] - static_cast<double>(mine[e]); };
    std::ranges::stable_sort(order,
                             [&](std::size_t a, std::size_t b) { return remainder(a) > remainder(b); });
    for (std::size_t i = 0; given != tokens * topk; i = (i + 1) % experts) {
      const std::size_t e = given < tokens * topk ? order[i] : order[experts - 1 - i];
      if (given < tokens * topk && mine[e] < tokens)
        ++mine[e], ++given;
      else if (given > tokens * topk && mine[e] > 0)
        --mine[e], --given;
    }
    for (std::size_t e = 0; e < experts; ++e) owed[e] -= static_cast<double>(mine[e]);
    counts.insert(counts.end(), mine.begin(), mine.end());
  }
  return models::Routing::from_counts(ranks, static_cast<int>(experts), static_cast<int>(topk),
                                      std::vector<std::int64_t>(static_cast<std::size_t>(ranks), tokens),
                                      std::move(counts));
}

}  // namespace

LoadedRouting routing_from_dispatching(const traces::Dispatching& dispatching, const std::string& file,
                                       int ranks, int etp, std::int64_t experts, std::int64_t topk,
                                       std::int64_t layer, std::int64_t microbatch,
                                       const JobTokens& job_tokens) {
  const SourcePlace place{file};
  LoadedRouting loaded;
  if (dispatching.experts != experts)
    throw InputError(place, fmt::format("routing of {} experts", dispatching.experts),
                     fmt::format("the model's {} experts", experts));
  const traces::DispatchingTable* table = dispatching.find(layer, microbatch);
  if (!table)
    throw InputError(place, fmt::format("nothing for layer {}, microbatch {}", layer, microbatch),
                     "a table for it");
  const auto& scaling = dispatching.scaling;
  // Received rows came from all ranks of the imitated group.
  const bool from_all = table->sent.empty() && scaling && scaling->fake_tp > 1;
  const bool same_ranks = dispatching.ep * std::max(1, etp) == ranks;
  const std::int64_t all_rows = job_tokens.per_rank * topk * (from_all ? ranks : dispatching.ep);
  const std::int64_t known = same_ranks ? std::max<std::int64_t>(0, all_rows) : 0;
  const auto whole = completed(*table, dispatching.ep, known, place);
  const std::vector<std::int64_t>& received = whole ? *whole : table->received;
  if (whole)
    loaded.warnings.push_back(fmt::format(
        "{}: EP rank{} {} without an entry: the rest of {} rows is taken, the tokens x top-{} of the ranks",
        file, table->missing.size() == 1 ? "" : "s", fmt::join(table->missing, ", "), known, topk));
  else if (!table->not_representative.empty())
    loaded.warnings.push_back(file + ": " + table->not_representative);
  if (table->sent.empty() && table->topk.empty() && !scaling && job_tokens.per_rank > 0 && topk > 0 &&
      topk <= experts) {
    std::int64_t total = 0;
    for (const std::int64_t one : received) total += one;
    const bool fits = total == job_tokens.per_rank * topk * ranks;
    if (dispatching.loads || !same_ranks || (job_tokens.required && !fits)) {
      loaded.routing = routing_of_loads(received, ranks, job_tokens.per_rank, topk);
      loaded.warnings.push_back(
          fmt::format("{}: loads of experts, not who sent what: the same shares of {} tokens x top-{} on "
                      "each of {} ranks",
                      file, job_tokens.per_rank, topk, ranks));
      return loaded;
    }
  }
  if (scaling && scaling->topk && topk > 0 && *scaling->topk != topk)
    throw InputError(place, fmt::format("moe_router_topk {}", *scaling->topk),
                     fmt::format("top-{} as the model or --topk says", topk));
  if (scaling && scaling->fake_tp > 1 && (scaling->fake_tp != etp || dispatching.ep * etp != ranks))
    throw InputError(place, fmt::format("fake_tp {} and {} EP ranks", scaling->fake_tp, dispatching.ep),
                     fmt::format("a dispatch group of {} ranks, here etp {} x ep {}",
                                 scaling->fake_tp * dispatching.ep, etp, ranks / std::max(1, etp)));
  const bool replicate = etp > 1 && dispatching.ep * etp == ranks;
  if (dispatching.ep != ranks && !replicate)
    throw InputError(place, fmt::format("routing of {} ranks", dispatching.ep),
                     fmt::format("{} ranks, the size of the dispatch group (etp x ep)", ranks));
  if (replicate && !from_all)
    loaded.warnings.push_back(
        fmt::format("{}: {} ranks for etp {} x ep {}: every rank of an ETP group gets the same "
                    "routing",
                    file, dispatching.ep, etp, dispatching.ep));
  const auto source = [&](int rank) { return replicate && !from_all ? rank / etp : rank; };

  if (!table->topk.empty()) {
    const std::int64_t K = table->topk.front().topk;
    if (topk > 0 && K != topk)
      throw InputError(place, fmt::format("top-{} choices", K),
                       fmt::format("top-{} as the model or --topk says", topk));
    std::vector<std::vector<std::int32_t>> choices;
    choices.reserve(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) choices.push_back(table->topk[source(r)].experts);
    loaded.routing =
        models::Routing::from_choices(static_cast<int>(experts), static_cast<int>(K), std::move(choices));
    return loaded;
  }
  std::vector<std::int64_t> sent = table->sent;
  if (sent.empty()) {
    sent = spread_evenly(received, from_all ? ranks : static_cast<int>(dispatching.ep));
    loaded.warnings.push_back(file +
                              ": holds received counts only; they are spread evenly over the sending ranks");
  }
  std::vector<std::int64_t> counts, tokens;
  for (int r = 0; r < ranks; ++r) {
    const auto row = sent.begin() + source(r) * experts;
    counts.insert(counts.end(), row, row + experts);
    const std::int64_t rows = std::accumulate(row, row + experts, std::int64_t{0});
    tokens.push_back((rows + topk - 1) / topk);
    if (rows % topk != 0)
      loaded.warnings.push_back(
          fmt::format("{}: rank {} sends {} rows, not a multiple of top-{}: some were dropped, or "
                      "the top-k differs",
                      file, r, rows, topk));
  }
  loaded.routing = models::Routing::from_counts(ranks, static_cast<int>(experts), static_cast<int>(topk),
                                                std::move(tokens), std::move(counts));
  return loaded;
}

NamedTables named_tables(const traces::Dispatching& dispatching) {
  NamedTables out;
  const auto note = [](std::vector<std::int64_t>& known, std::optional<std::int64_t> one) {
    if (one && std::find(known.begin(), known.end(), *one) == known.end()) known.push_back(*one);
  };
  for (const traces::DispatchingEntry& entry : dispatching.entries) {
    note(out.layers, entry.layer);
    note(out.microbatches, entry.microbatch);
  }
  return out;
}

namespace {

class DispatchingRouting : public models::RoutingFile {
 public:
  explicit DispatchingRouting(const std::string& path)
      : path_(path), dispatching_(traces::read_dispatching(path)), tables_(named_tables(dispatching_)) {}

  models::Routing routing(const Job& job, int ordinal, int microbatch,
                          std::vector<std::string>& warnings) const override {
    LoadedRouting loaded = routing_from_dispatching(dispatching_, path_, job.ranks, job.etp, job.experts,
                                                    job.topk, NamedTables::of(tables_.layers, ordinal),
                                                    NamedTables::of(tables_.microbatches, microbatch),
                                                    {job.tokens, job.tokens_required});
    warnings.insert(warnings.end(), loaded.warnings.begin(), loaded.warnings.end());
    return std::move(loaded.routing);
  }

  bool one_for_all() const override { return tables_.one_for_all(); }

 private:
  std::string path_;
  traces::Dispatching dispatching_;
  NamedTables tables_;
};

}  // namespace

void open_routing(models::RoutingSpec& spec) {
  if (spec.kind == models::RoutingSpec::Kind::kFile && !spec.file)
    spec.file = std::make_shared<const DispatchingRouting>(spec.path);
}

std::vector<std::uint32_t> recover_split_matrix(std::span<const std::int64_t> sent,
                                                std::span<const std::int64_t> received) {
  const std::size_t n = sent.size();
  const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
  const std::int64_t arrived = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  if (n != received.size() || total != arrived)
    throw InputError(SourcePlace{}, fmt::format("{} rows received by {} ranks", arrived, received.size()),
                     fmt::format("the {} rows that {} ranks sent", total, n));
  if (total >= std::int64_t{1} << 31)
    throw InputError(SourcePlace{}, fmt::format("{} rows in one all-to-all", total), "fewer than 2^31");
  std::vector<std::uint32_t> rows(n * n, 0);
  std::vector<std::int64_t> missing(received.begin(), received.end());
  std::int64_t missing_total = total;
  std::vector<std::size_t> order(n);
  std::vector<std::int64_t> remainder(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (missing_total == 0) break;
    std::int64_t left = sent[i];
    for (std::size_t j = 0; j < n; ++j) {
      const std::int64_t share = sent[i] * missing[j];  // both below 2^31
      const std::int64_t whole = share / missing_total;
      remainder[j] = share % missing_total;
      rows[i * n + j] = static_cast<std::uint32_t>(whole);
      left -= whole;
    }
    // Largest remainders take the rows lost in rounding down; a column with a remainder has room for one.
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
    for (std::size_t k = 0; left > 0; ++k, --left) ++rows[i * n + order[k]];
    for (std::size_t j = 0; j < n; ++j) missing[j] -= rows[i * n + j];
    missing_total -= sent[i];
  }
  return rows;
}

std::vector<std::int64_t> rows_of_ranks(const models::RoutingSpec& routing, int ranks, std::int64_t total) {
  if (routing.kind != models::RoutingSpec::Kind::kFile) return {};
  const traces::Dispatching file = traces::read_dispatching(routing.path);
  if (file.loads || file.entries.size() != 1 || file.experts % ranks != 0) return {};
  const traces::DispatchingTable& table = file.entries.front().table;
  const std::vector<std::int64_t> experts =
      completed(table, file.ep, file.ep == ranks ? total : 0, SourcePlace{routing.path})
          .value_or(table.received);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
  for (std::size_t e = 0; e < experts.size(); ++e) rows[e / (experts.size() / rows.size())] += experts[e];
  return rows;
}

}  // namespace moesim::replay

// The routing of a recorded job, from a dispatching file and from the rows that its ranks exchanged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/routing/routing.h"
#include "replay/recording/steps.h"

namespace moesim::traces {
struct Dispatching;
}

namespace moesim::replay {

struct LoadedRouting {
  models::Routing routing;
  std::vector<std::string> warnings;
};

// Returns the routing of one layer and microbatch for a dispatch group of `ranks` = ETP x EP ranks.
//
// The file's ranks are the source ranks of the group. `topk` > 0 must match the file where it lists choices.
// Tokens per rank: from the choices; else rows / topk. A file with received counts only is spread evenly over
// the sources, with a warning. Throws InputError where file, group and model contradict each other.
//
// Received counts only give the popularity of experts: where `tokens.per_rank` is known, a plain table of
// loads, and files for another number of ranks or tokens, become the same shares of rows on every rank.
struct JobTokens {
  std::int64_t per_rank = 0;  // 0: unknown, the file's are taken
  bool required = false;      // the file's must not replace them
};
LoadedRouting routing_from_dispatching(const traces::Dispatching& dispatching, const std::string& file,
                                       int ranks, int etp, std::int64_t experts, std::int64_t topk,
                                       std::int64_t layer = 0, std::int64_t microbatch = 0,
                                       const JobTokens& tokens = {});
// The layers and microbatches named by the tables of a file, in order; further ones of a job repeat from the
// start. Empty: one table holds for all.
struct NamedTables {
  std::vector<std::int64_t> layers, microbatches;
  bool one_for_all() const { return layers.empty() && microbatches.empty(); }
  static std::int64_t of(const std::vector<std::int64_t>& named, int index) {
    return named.empty() ? index : named[static_cast<std::size_t>(index) % named.size()];
  }
};
NamedTables named_tables(const traces::Dispatching& dispatching);

// Reads the file that a spec names into models::RoutingSpec::file. Does nothing for named distributions.
// Throws InputError as the reader does.
void open_routing(models::RoutingSpec& spec);

// Recovers the split matrix of an all-to-all from rows sent and received per rank, since a recording does not
// hold them per pair. Returns rows[sender * n + receiver] with exactly these row sums and column sums, each row spread like the
// remaining column sums, that is sent[i] * received[j] / total up to rounding. That is correct where the
// popularity of experts is the same for all tokens, as in the public recordings (docs/replay.md). Throws
// InputError when the sums differ.
std::vector<std::uint32_t> recover_split_matrix(std::span<const std::int64_t> sent,
                                                std::span<const std::int64_t> received);

// Returns the rows that each of `ranks` expert ranks receives under a dispatching file, `total` in all (0: unknown);
// empty: the file does not cover the whole job.
std::vector<std::int64_t> rows_of_ranks(const models::RoutingSpec& routing, int ranks, std::int64_t total);

}  // namespace moesim::replay

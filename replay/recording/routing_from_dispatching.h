// Converts a dispatching file to the routing of a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/routing/routing.h"

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

}  // namespace moesim::replay

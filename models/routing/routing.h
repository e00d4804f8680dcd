// Who sends how many rows to which expert: one object per MoE layer and microbatch, for one dispatch group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// n[r][e] of docs/spec.md 1.2, with the token-level choices where they are known. Source ranks are in the
// order of the dispatch group (ETP fastest, then EP).
class Routing {
 public:
  Routing() = default;

  // `counts` is [ranks][experts] row-major. tokens[r] is T_r. Throws InputError unless counts are >= 0, no
  // expert gets more rows from a rank than it has tokens, and each rank's rows are at most T_r * topk.
  static Routing from_counts(int ranks, int experts, int topk, std::vector<std::int64_t> tokens,
                             std::vector<std::int64_t> counts);
  // `choices[r]` is [T_r][topk] expert ids, -1 for a dropped assignment. Throws InputError for an id out of
  // range or an expert chosen twice by one token.
  static Routing from_choices(int experts, int topk, std::vector<std::vector<std::int32_t>> choices);

  int ranks() const { return ranks_; }
  int experts() const { return experts_; }
  int topk() const { return topk_; }
  std::int64_t tokens(int rank) const { return tokens_[rank]; }
  std::int64_t max_tokens() const;
  bool equal_tokens() const;
  std::int64_t count(int rank, int expert) const { return counts_[std::size_t(rank) * experts_ + expert]; }
  std::span<const std::int64_t> counts(int rank) const {
    return {counts_.data() + std::size_t(rank) * experts_, std::size_t(experts_)};
  }
  std::int64_t rows(int rank) const;                // in[r]
  std::vector<std::int64_t> expert_totals() const;  // N_e

  // Marks counts that come from slot f = t*K + k going to expert f mod E, so that duplicates are known
  // exactly.
  void set_round_robin() { round_robin_ = true; }

  bool has_choices() const { return !choices_.empty(); }
  std::span<const std::int32_t> choices(int rank) const { return choices_[rank]; }

  // S[r][d], [ranks][blocks] row-major: rows of rank r for the d-th of `blocks` equal blocks of experts.
  std::vector<std::int64_t> split_matrix(int blocks) const;
  // D[r][d]: tokens of r with at least one expert in block d. Exact where choices are known; otherwise its
  // expectation when experts are chosen independently of each other, which equals identity 8 of
  // docs/spec.md 6.1 for uniform routing, rounded and kept within [S/min(K, E/blocks), min(S, T)].
  std::vector<std::int64_t> dedup_matrix(int blocks) const;

  // The same after limiting the rows of rank r to any expert to capacity[r] (by position where choices are
  // known, so that they stay consistent).
  Routing limited_to(const std::vector<std::int64_t>& capacity) const;
  // Every count raised to the next multiple, by tokens that are switched on for this; choices are lost.
  Routing padded_to(std::int64_t multiple) const;

  // All ranks route as rank 0 does.
  Routing replicated() const;
  // Group-limited routing (DeepSeek): experts lie in `groups` blocks, a token uses at most `topk_groups` of
  // them. Only what dedup_matrix() expects of counts without choices changes.
  void set_group_limit(int groups, int topk_groups) { groups_ = groups, topk_groups_ = topk_groups; }

  // max_e N_e / mean, max_d R_d / mean (over at most a block per expert), and the Gini coefficient of N_e.
  double expert_skew() const;
  double rank_imbalance(int blocks) const;
  double gini() const;

 private:
  int ranks_ = 0, experts_ = 0, topk_ = 0;
  std::vector<std::int64_t> tokens_;
  std::vector<std::int64_t> counts_;
  std::vector<std::vector<std::int32_t>> choices_;
  bool round_robin_ = false;
  int groups_ = 1, topk_groups_ = 1;
};

// Gini coefficient of non-negative loads: 0 when all are equal, towards 1 when one holds everything.
double gini_of(std::vector<double> load);

// Routings that a file holds. Implemented where the formats are known (replay/recording/).
class RoutingFile {
 public:
  virtual ~RoutingFile() = default;
  // What a job asks for.
  struct Job {
    int ranks = 1, etp = 1;  // of the dispatch group; ranks = etp x ep
    std::int64_t experts = 0;
    std::int64_t topk = 0;
    std::int64_t tokens = 0;       // of a rank, where the job has a size of its own; 0: the file's
    bool tokens_required = false;  // its user gave them
  };
  // Of the `ordinal`-th MoE layer and a microbatch; those that the file does not have are repeated from the
  // start. Appends what is to be said. Throws InputError where file and job disagree.
  virtual Routing routing(const Job& job, int ordinal, int microbatch,
                          std::vector<std::string>& warnings) const = 0;
  virtual bool one_for_all() const = 0;  // whether it holds one layer and microbatch only
};

// A named distribution of expert popularity, or a file. Text form "zipf:1.2", "gini:0.3", "balanced"; object
// form
// {"name": "zipf", "exponent": 1.2}; anything with a '/' or ending in ".json" is a path.
struct RoutingSpec {
  enum class Kind : std::uint8_t {
    kBalanced,    // every expert equally often (largest remainders), the same on every rank
    kRoundRobin,  // slot f = t*K + k of a rank goes to expert f mod E
    kUniform,     // every token draws K different experts at random
    kZipf,        // popularity ~ 1 / place^exponent, places shuffled by the seed
    kDirichlet,   // popularity ~ Dirichlet(alpha)
    kLogNormal,   // popularity ~ exp(sigma * normal)
    kGini,        // popularity with a target Gini coefficient of the load (power of place, as Zipf)
    kHotExperts,  // a share `parameter` of all rows to one eighth of the experts (at least one)
    kFile,
  };
  Kind kind = Kind::kBalanced;
  double parameter = 0;                     // exponent, alpha, sigma, Gini or share
  bool shared = false;                      // one draw for all layers and microbatches, "zipf:1.2:shared"
  std::string path;                         // kFile
  std::shared_ptr<const RoutingFile> file;  // kFile, once somebody has opened it
  std::string text = "balanced";            // as the user wrote it

  static RoutingSpec parse(const std::string& text);
  static RoutingSpec parse(const JsonNode& node);
  static std::span<const std::string> names();
  // What a name means, with its parameter: "shares with this Gini coefficient; ... (gini:0.25; 0 to 0.99)".
  static std::string about(std::string_view name);
};

// Draws the routing of one layer and microbatch: expert popularity from (seed, layer), counts per rank from
// (seed, layer, microbatch). Deterministic. spec.kind must not be kFile. Sum of counts is tokens*topk on
// every rank.
Routing make_routing(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                     std::uint64_t seed, int layer = 0, int microbatch = 0);

}  // namespace moesim::models

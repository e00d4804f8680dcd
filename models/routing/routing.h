// The routing of one MoE layer and microbatch in one dispatch group: rows from every rank to every expert.
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

// n[r][e] of docs/spec.md 1.2, with token-level choices where they are known. Source ranks are in the order
// of the dispatch group (ETP fastest, then EP).
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

  // Marks counts from the rule "slot f = t*K + k goes to expert f mod E", so that duplicates are known
  // exactly.
  void set_round_robin() { round_robin_ = true; }

  bool has_choices() const { return !choices_.empty(); }
  std::span<const std::int32_t> choices(int rank) const { return choices_[rank]; }

  // Returns S[r][d], [ranks][blocks] row-major: rows of rank r for the d-th of `blocks` equal blocks of
  // experts.
  std::vector<std::int64_t> split_matrix(int blocks) const;
  // Returns D[r][d]: tokens of r with at least one expert in block d. Exact where choices are known;
  // otherwise the expectation for independently chosen experts, which equals identity 8 of docs/spec.md 6.1
  // for uniform routing, rounded and clamped to [S/min(K, E/blocks), min(S, T)].
  std::vector<std::int64_t> dedup_matrix(int blocks) const;

  // Returns the routing with rank r's rows to any expert limited to capacity[r] (by position where choices
  // are known, which stay consistent).
  Routing limited_to(const std::vector<std::int64_t>& capacity) const;
  // Returns the routing with every count rounded up to the multiple, by activating further tokens; choices
  // are lost.
  Routing padded_to(std::int64_t multiple) const;

  // Returns a routing in which all ranks route as rank 0.
  Routing replicated() const;
  // Sets group-limited routing (DeepSeek): experts lie in `groups` blocks, of which a token uses at most
  // `topk_groups`. It changes only the expectation in dedup_matrix() for counts without choices.
  void set_group_limit(int groups, int topk_groups) { groups_ = groups, topk_groups_ = topk_groups; }

  // max_e N_e / mean, max_d R_d / mean (over at most one block per expert), and the Gini coefficient of N_e.
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

// Returns the Gini coefficient of non-negative loads: 0 when all are equal, towards 1 when one holds
// everything.
double gini_of(std::vector<double> load);

// Routings read from a file. Implemented where the formats are known (replay/recording/).
class RoutingFile {
 public:
  virtual ~RoutingFile() = default;
  // The job's requirements.
  struct Job {
    int ranks = 1, etp = 1;  // of the dispatch group; ranks = etp x ep
    std::int64_t experts = 0;
    std::int64_t topk = 0;
    std::int64_t tokens = 0;       // per rank, where the job sets it; 0: the file's
    bool tokens_required = false;  // the user gave the tokens
  };
  // Returns the routing of the `ordinal`-th MoE layer and a microbatch; missing ones repeat the file from its
  // start. Appends warnings. Throws InputError where file and job contradict each other.
  virtual Routing routing(const Job& job, int ordinal, int microbatch,
                          std::vector<std::string>& warnings) const = 0;
  virtual bool one_for_all() const = 0;  // whether it holds a single layer and microbatch
};

// A named distribution of expert popularity, or a file. Text form "zipf:1.2", "gini:0.3", "balanced"; object
// form {"name": "zipf", "exponent": 1.2}; any text with a '/' or ending in ".json" is a path.
struct RoutingSpec {
  enum class Kind : std::uint8_t {
    kBalanced,    // all experts equally often (largest remainders), the same on every rank
    kRoundRobin,  // slot f = t*K + k of a rank goes to expert f mod E
    kUniform,     // every token draws K different experts at random
    kZipf,        // popularity ~ 1 / rank^exponent, experts shuffled by the seed
    kDirichlet,   // popularity ~ Dirichlet(alpha)
    kLogNormal,   // popularity ~ exp(sigma * normal)
    kGini,        // popularity with a target Gini coefficient of the load (power law, as Zipf)
    kHotExperts,  // a share `parameter` of all rows goes to one eighth of the experts (at least one)
    kFile,
  };
  Kind kind = Kind::kBalanced;
  double parameter = 0;                     // exponent, alpha, sigma, Gini or share
  bool shared = false;                      // one draw for all layers and microbatches, "zipf:1.2:shared"
  std::string path;                         // kFile
  std::shared_ptr<const RoutingFile> file;  // kFile, once it has been opened
  std::string text = "balanced";            // as the user wrote it

  static RoutingSpec parse(const std::string& text);
  static RoutingSpec parse(const JsonNode& node);
  static std::span<const std::string> names();
  // Returns the meaning of a name with its parameter: "shares with this Gini coefficient; ... (gini:0.25; 0
  // to 0.99)".
  static std::string about(std::string_view name);
};

// Draws the routing of one layer and microbatch: expert popularity from (seed, layer), counts per rank from
// (seed, layer, microbatch). Deterministic. spec.kind must not be kFile. Sum of counts is tokens*topk on
// every rank.
Routing make_routing(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                     std::uint64_t seed, int layer = 0, int microbatch = 0);

}  // namespace moesim::models

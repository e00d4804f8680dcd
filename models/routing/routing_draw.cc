// Named routings: popularity of the experts, then rows per rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/random.h"
#include "base/text.h"
#include "models/routing/routing.h"
#include "models/routing/routing_cache.h"

namespace moesim::models {

namespace {

struct Named {
  const char* name;
  RoutingSpec::Kind kind;
  const char* parameter;  // "" without a parameter
  double fallback, low, high;
  const char* about;
};

// The presets at the end are Gini coefficients of the expert load on real text (docs/spec.md 7.7, from
// arXiv 2605.20982), and the skew classes of the Megatron fork's scaling mode (docs/spec.md 3.1, c), whose
// hottest expert was published as a class, not as a number: the Gini of each is ours.
constexpr const char* kRealText = "the skew of this model on real text: as gini with";
// Fitted: with it a step of DeepSeek-V3 on 64 MI355X at EP 8 takes 8 to 14 % longer than with a balanced
// routing, as dropless arms on C4 did against padded ones (ROCm/rocm-blogs maxtext-dropless-moe @450d0386).
constexpr const char* kRealTraining = "the skew of this model in training on C4, from scratch: as gini with";
constexpr std::array kNamed{
    Named{"balanced", RoutingSpec::Kind::kBalanced, "", 0, 0, 0,
          "every expert gets as many rows, on every rank"},
    Named{"round-robin", RoutingSpec::Kind::kRoundRobin, "", 0, 0, 0,
          "experts in turn, row by row: what benchmarks with forced routing do"},
    Named{"uniform", RoutingSpec::Kind::kUniform, "", 0, 0, 0,
          "every token draws its experts at random, all alike: balanced but for chance"},
    Named{"zipf", RoutingSpec::Kind::kZipf, "exponent", 1.0, 0, 20,
          "the k-th most popular expert gets a share in proportion to k^-exponent; 0: uniform"},
    Named{"dirichlet", RoutingSpec::Kind::kDirichlet, "alpha", 1.0, 1e-3, 1e6,
          "shares are drawn from a Dirichlet distribution; the smaller alpha, the more skewed"},
    Named{"lognormal", RoutingSpec::Kind::kLogNormal, "sigma", 0.5, 0, 10,
          "shares in proportion to exp(sigma x a normal number); 0: uniform"},
    Named{"gini", RoutingSpec::Kind::kGini, "target", 0.25, 0, 0.99,
          "shares with this Gini coefficient; 0: all alike, towards 1: all to one"},
    Named{"hot", RoutingSpec::Kind::kHotExperts, "share", 0.5, 0.125, 1,
          "an eighth of the experts gets this share of the rows; 0.125: their fair share"},
    Named{"measured:deepseek-moe-16b", RoutingSpec::Kind::kGini, "target", 0.105, 0, 0.99, kRealText},
    Named{"measured:nemotron-30b", RoutingSpec::Kind::kGini, "target", 0.150, 0, 0.99, kRealText},
    Named{"measured:deepseek-v2-lite", RoutingSpec::Kind::kGini, "target", 0.26, 0, 0.99, kRealText},
    Named{"measured:qwen3-30b", RoutingSpec::Kind::kGini, "target", 0.20, 0, 0.99, kRealText},
    Named{"measured:deepseek-v3", RoutingSpec::Kind::kGini, "target", 0.32, 0, 0.99, kRealTraining},
    Named{"moderate-skew", RoutingSpec::Kind::kGini, "target", 0.20, 0, 0.99,
          "a class of skew of Megatron's scaling mode: as gini with"},
    Named{"strong-skew", RoutingSpec::Kind::kGini, "target", 0.45, 0, 0.99,
          "a class of skew of Megatron's scaling mode: as gini with"},
};

const Named* find_named(std::string_view name) {
  for (const Named& n : kNamed)
    if (name == n.name) return &n;
  return nullptr;
}

RoutingSpec spec_of(const Named& named, double parameter, std::string text) {
  RoutingSpec spec;
  spec.kind = named.kind;
  spec.parameter = parameter;
  spec.text = std::move(text);
  return spec;
}

RoutingSpec file_spec(const std::string& path) {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kFile;
  spec.path = path;
  spec.text = path;
  return spec;
}

bool looks_like_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json") || text.ends_with(".pt") ||
         text.ends_with(".pth");
}

std::string out_of_range(const Named& named, std::string_view value) {
  return fmt::format("routing {}: found {} {}, expected a number from {} to {}", named.name, named.parameter,
                     in_quotes(value), named.low, named.high);
}

}  // namespace

std::span<const std::string> RoutingSpec::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(std::size(kNamed));
    for (const Named& n : kNamed) all.emplace_back(n.name);
    return all;
  }();
  return names;
}

std::string RoutingSpec::about(std::string_view name) {
  const Named* named = find_named(name);
  check(named, "a routing of names()");
  std::string text = named->about;
  if (*named->parameter == '\0') return text;
  if (text.ends_with(" with")) return fmt::format("{} {}", text, named->fallback);  // a preset
  return fmt::format("{} ({}:{}; {:g} to {:g})", text, named->name, named->fallback, named->low, named->high);
}

RoutingSpec RoutingSpec::parse(const std::string& text) {
  if (looks_like_path(text)) return file_spec(text);
  constexpr std::string_view kShared = ":shared";
  if (text.ends_with(kShared)) {
    RoutingSpec spec = parse(text.substr(0, text.size() - kShared.size()));
    spec.shared = true;
    spec.text = text;
    return spec;
  }
  const Named* named = find_named(text);
  const std::size_t colon = named ? std::string::npos : text.find(':');
  const std::string name = text.substr(0, colon);
  if (!named) named = find_named(name);
  if (!named)
    throw InputError(fmt::format("routing: found {}, expected one of {} or the path of a JSON file{}",
                                 in_quotes(name), join(names(), ", "), did_you_mean(name, names())));
  if (colon == std::string::npos) return spec_of(*named, named->fallback, text);
  std::string_view value = std::string_view(text).substr(colon + 1);
  if (*named->parameter == '\0')
    throw InputError(
        fmt::format("routing {}: found {}, expected no parameter", named->name, in_quotes(value)));
  const std::string prefix = std::string(named->parameter) + "=";
  if (value.starts_with(prefix)) value.remove_prefix(prefix.size());
  const std::optional<double> number = parse_number(value);
  if (!number || *number < named->low || *number > named->high) throw InputError(out_of_range(*named, value));
  return spec_of(*named, *number, text);
}

RoutingSpec RoutingSpec::parse(const JsonNode& node) {
  if (node.is_string()) {
    try {
      return parse(node.string());
    } catch (const InputError& error) {
      node.fail(error.what());
    }
  }
  JsonObject object(node);
  if (const auto path = object.find("path")) {
    object.finish();
    return file_spec(path->string());
  }
  const JsonNode name = object.at("name");
  const Named* named = find_named(name.string());
  if (!named)
    name.fail(name.describe(), "one of " + join(names(), ", ") + did_you_mean(name.string(), names()));
  double parameter = named->fallback;
  if (*named->parameter != '\0')
    parameter = object.number(named->parameter, parameter, named->low, named->high);
  const bool shared = object.boolean("shared", false);
  object.finish();
  std::string text = named->name;
  if (*named->parameter != '\0') text += fmt::format(":{}", parameter);
  if (shared) text += ":shared";
  RoutingSpec spec = spec_of(*named, parameter, text);
  spec.shared = shared;
  return spec;
}

namespace {

// Returns popularity ~ 1 / place^exponent.
std::vector<double> power_of_place(int experts, double exponent) {
  std::vector<double> p(experts);
  for (int e = 0; e < experts; ++e) p[e] = std::pow(e + 1.0, -exponent);
  return p;
}

// Scales p to a sum of K with no entry above 1: a token chooses an expert at most once. Water-filling: the
// excess goes to the others in proportion.
void to_inclusion(std::vector<double>& p, int topk) {
  std::vector<char> full(p.size(), 0);
  double left = topk;
  for (;;) {
    double sum = 0;
    for (std::size_t e = 0; e < p.size(); ++e)
      if (!full[e]) sum += p[e];
    if (sum <= 0) {
      // No other expert has any popularity: the rest is shared equally.
      std::int64_t open = 0;
      for (const char f : full) open += f == 0;
      for (std::size_t e = 0; e < p.size(); ++e)
        if (!full[e]) p[e] = open > 0 ? left / static_cast<double>(open) : 0;
      break;
    }
    bool cut = false;
    for (std::size_t e = 0; e < p.size(); ++e)
      if (!full[e] && p[e] / sum * left > 1) full[e] = 1, cut = true;
    if (!cut) {
      for (std::size_t e = 0; e < p.size(); ++e)
        if (!full[e]) p[e] *= left / sum;
      break;
    }
    left = topk;
    for (std::size_t e = 0; e < p.size(); ++e)
      if (full[e]) p[e] = 1, left -= 1;
  }
  for (double& x : p) x = std::clamp(x, 0.0, 1.0);
}

}  // namespace

// Bisects the exponent of the power law.
std::vector<double> popularity_with_gini(int experts, int topk, double target) {
  double low = 0, high = 40;
  std::vector<double> p;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    p = power_of_place(experts, middle);
    to_inclusion(p, topk);
    (gini_of(p) < target ? low : high) = middle;
  }
  return p;
}

namespace {

std::vector<double> popularity(const RoutingSpec& spec, int experts, int topk,
                               std::span<const double> by_gini, Random& random) {
  std::vector<double> p(experts, 1.0);
  switch (spec.kind) {
    case RoutingSpec::Kind::kZipf:
      p = power_of_place(experts, spec.parameter);
      break;
    case RoutingSpec::Kind::kDirichlet:
      for (double& x : p) x = random.gamma(spec.parameter);
      break;
    case RoutingSpec::Kind::kLogNormal:
      for (double& x : p) x = std::exp(spec.parameter * random.normal());
      break;
    case RoutingSpec::Kind::kGini:
      if (by_gini.empty())
        p = popularity_with_gini(experts, topk, spec.parameter);
      else
        p.assign(by_gini.begin(), by_gini.end());
      break;
    case RoutingSpec::Kind::kHotExperts: {
      const int hot = std::max(1, experts / 8);
      for (int e = 0; e < experts; ++e)
        p[e] = e < hot ? spec.parameter / hot : (1 - spec.parameter) / std::max(1, experts - hot);
      break;
    }
    default:
      break;
  }
  to_inclusion(p, topk);
  for (std::size_t i = p.size(); i > 1; --i) std::swap(p[i - 1], p[random.below(i)]);
  return p;
}

// std::popcount is a library call where the processor's instruction may not be used.
int bits_set(std::uint64_t x) {
  x -= (x >> 1) & 0x5555555555555555ULL;
  x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
  return static_cast<int>((x * 0x0101010101010101ULL) >> 56);
}

// Returns a normal number from one draw of 64 bits: the number of set bits among 48, spread evenly between
// the integers. Rows are rounded anyway.
double coarse_normal(Random& random) {
  const std::uint64_t bits = random.next();
  const double set = bits_set(bits >> 16) - 24;
  constexpr double kWidth = 0.28767798089123053;  // 1 / sqrt(12 + 1/12)
  return (set + static_cast<double>(bits & 0xffff) * 0x1.0p-16 - 0.5) * kWidth;
}

// Rows are drawn for so many ranks at a time: sums of doubles have an order, and those of several ranks run beside
// each other.
constexpr std::size_t kLanes = 4;
using Lanes = std::array<double, kLanes>;

// Apportions integer rows with the given sum, 0 <= n[e] <= tokens, in proportion to the wishes, which lie in
// the same range: rounds the running sum of the wishes, so that every count is within one of its wish. `n`: of
// each lane, in rows of `experts`.
void apportion(std::span<const Lanes> wish, std::int64_t tokens, std::int64_t total, std::int64_t* n) {
  const std::size_t experts = wish.size();
  Lanes sum{}, scale{}, running{};
  for (const Lanes& w : wish)
    for (std::size_t k = 0; k < kLanes; ++k) sum[k] += w[k];
  for (std::size_t k = 0; k < kLanes; ++k) scale[k] = sum[k] > 0 ? static_cast<double>(total) / sum[k] : 0;
  std::array<std::int64_t, kLanes> given{};
  constexpr double kHalf = 0.5;  // none of the sums is negative
  for (std::size_t e = 0; e + 1 < experts; ++e)
    for (std::size_t k = 0; k < kLanes; ++k) {
      running[k] += wish[e][k] * scale[k];
      const auto upto = static_cast<std::int64_t>(running[k] + kHalf);
      n[k * experts + e] = upto - given[k];
      given[k] = upto;
    }
  for (std::size_t k = 0; k < kLanes; ++k) {
    const std::span<std::int64_t> row(n + k * experts, experts);
    row.back() = total - given[k];
    // An expert takes every token at most once: the excess goes round to experts with room.
    std::int64_t over = 0;
    for (std::int64_t& rows : row) {
      const std::int64_t wished = std::exchange(rows, std::clamp<std::int64_t>(rows, 0, tokens));
      over += wished - rows;
    }
    while (over != 0) {
      const std::int64_t before = over;
      for (std::size_t e = 0; e < experts && over != 0; ++e) {
        const std::int64_t one = over > 0 ? 1 : -1;
        if (row[e] + one >= 0 && row[e] + one <= tokens) row[e] += one, over -= one;
      }
      check(over != before, "tokens x top-k rows have room on the experts");
    }
  }
}

}  // namespace

Routing make_routing(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                     std::uint64_t seed, int layer, int microbatch) {
  const auto popularity = [&] { return draw_popularity(spec, experts, topk, seed, layer); };
  return make_routing(spec, ranks, tokens, experts, topk, microbatch, popularity);
}

Routing make_routing(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                     int microbatch, const std::function<Popularity()>& popularity) {
  check(spec.kind != RoutingSpec::Kind::kFile, "a routing file is read, not drawn");
  if (topk < 1 || topk > experts)
    throw InputError(
        fmt::format("routing: found top-{} of {} experts, expected 1 to {}", topk, experts, experts));
  if (tokens < 0 || tokens > (std::int64_t{1} << 40) ||
      std::int64_t{ranks} * experts > (std::int64_t{1} << 28))
    throw InputError(
        fmt::format("routing: found {} tokens on each of {} ranks for {} experts, expected sizes that fit "
                    "in memory",
                    tokens, ranks, experts));
  std::vector<std::int64_t> counts(std::size_t(ranks) * experts);
  const std::int64_t total = tokens * topk;
  const auto row = [&](int r) {
    return std::span<std::int64_t>(counts).subspan(std::size_t(r) * experts, experts);
  };

  if (spec.kind == RoutingSpec::Kind::kBalanced || spec.kind == RoutingSpec::Kind::kRoundRobin) {
    // Round robin gives the first T*K mod E experts one more on every rank; balanced moves that offset from
    // rank to rank, so that the group as a whole is as even as possible.
    const std::int64_t each = total / experts, extra = total % experts;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t first = spec.kind == RoutingSpec::Kind::kBalanced ? r * extra % experts : 0;
      for (int e = 0; e < experts; ++e) row(r)[e] = each;
      for (std::int64_t i = 0; i < extra; ++i) ++row(r)[(first + i) % experts];
    }
    Routing even = Routing::from_counts(ranks, experts, topk, std::vector<std::int64_t>(ranks, tokens),
                                        std::move(counts));
    if (spec.kind == RoutingSpec::Kind::kRoundRobin) even.set_round_robin();
    return even;
  }

  return draw_rows(popularity(), ranks, tokens, topk, microbatch);
}

Popularity draw_popularity(const RoutingSpec& spec, int experts, int topk, std::uint64_t seed, int layer,
                           std::span<const double> by_gini) {
  Random random = Random::for_item(seed, static_cast<std::uint64_t>(layer));
  Popularity p;
  p.inclusion = popularity(spec, experts, topk, by_gini, random);
  p.seed = random.next();
  return p;
}

Routing draw_rows(const Popularity& popularity, int ranks, std::int64_t tokens, int topk, int microbatch) {
  const std::size_t experts = popularity.inclusion.size();
  const std::size_t rows = (static_cast<std::size_t>(ranks) + kLanes - 1) / kLanes * kLanes;
  std::vector<std::int64_t> counts(rows * experts);
  std::vector<double> mean(experts), deviation(experts);
  std::vector<Lanes> wish(experts);
  // Rows to an expert are a sum of T independent choices with probability `inclusion`: binomial, here by its
  // normal approximation; the sum over experts is then made exact.
  for (std::size_t e = 0; e < experts; ++e) {
    const double p = popularity.inclusion[e];
    mean[e] = p * static_cast<double>(tokens);
    deviation[e] = std::sqrt(mean[e] * (1 - p));
  }
  const auto most = static_cast<double>(tokens);
  for (std::size_t r = 0; r < rows; r += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      Random random =
          Random::for_item(popularity.seed, (static_cast<std::uint64_t>(microbatch) << 32) + (r + k));
      for (std::size_t e = 0; e < experts; ++e)
        wish[e][k] = std::max(0.0, std::min(mean[e] + deviation[e] * coarse_normal(random), most));
    }
    apportion(wish, tokens, tokens * topk, counts.data() + r * experts);
  }
  counts.resize(static_cast<std::size_t>(ranks) * experts);
  return Routing::from_counts(ranks, static_cast<int>(experts), topk,
                              std::vector<std::int64_t>(static_cast<std::size_t>(ranks), tokens),
                              std::move(counts));
}

}  // namespace moesim::models

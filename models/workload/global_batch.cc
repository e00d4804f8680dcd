#include "models/workload/global_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr double kMost = 1e18;

// Returns a power of 1000 by its letter; 0: none.
double multiple_of(char letter) {
  switch (letter) {
    case 'k':
    case 'K':
      return 1e3;
    case 'M':
      return 1e6;
    case 'B':
    case 'G':
      return 1e9;
    case 'T':
      return 1e12;
    default:
      return 0;
  }
}

struct Published {
  std::string_view model;
  double tokens;
  const char* source;
};

// Batches in reports of a model's training, the one used for most of it.
constexpr std::array kPublished{
    Published{"deepseek-v3", 15360 * 4096.0, "15,360 sequences of 4,096: arXiv 2412.19437, 4.2"},
    Published{"deepseek-v2", 9216 * 4096.0, "9,216 sequences of 4,096: arXiv 2405.04434, 3.1.2"},
    Published{"deepseek-v2-lite", 4608 * 4096.0, "4,608 sequences of 4,096: arXiv 2405.04434, B.1"},
    Published{"kimi-k2", 16384 * 4096.0, "67 M tokens: arXiv 2507.20534, 2.5"},
    Published{"olmoe", 1024 * 4096.0, "1,024 sequences of 4,096: arXiv 2409.02060, B"},
};

constexpr double kOfMostModels = 1024 * 4096.0;

}  // namespace

GlobalBatch GlobalBatch::parse(std::string_view text) {
  const std::string_view whole = trim(text);
  const auto refuse = [&]() -> GlobalBatch {
    throw InputError(
        fmt::format("global batch: found {}, expected sequences such as 1024, or tokens such as 4Mtokens",
                    in_quotes(text)));
  };
  GlobalBatch batch;
  constexpr std::string_view kTokens = "tokens";
  if (whole.ends_with(kTokens)) {
    const std::string_view number = trim(whole.substr(0, whole.size() - kTokens.size()));
    batch.tokens = parse_count("global batch", number);
    if (batch.tokens < 1) return refuse();
    return batch;
  }
  const auto sequences = parse_int(whole);
  if (!sequences || *sequences < 1 || *sequences > (std::int64_t{1} << 31)) return refuse();
  batch.sequences = *sequences;
  return batch;
}

std::string GlobalBatch::text() const {
  if (sequences > 0) return std::to_string(sequences);
  return tokens > 0 ? fmt::format("{}tokens", tokens) : "";
}

std::int64_t GlobalBatch::microbatches(std::int64_t dp, std::int64_t micro_batch, std::int64_t seq) const {
  const std::int64_t unit = dp * micro_batch;
  if (sequences > 0) return sequences % unit == 0 ? sequences / unit : 0;
  const double exact = tokens / (static_cast<double>(unit) * static_cast<double>(seq));
  const double whole = std::max(1.0, std::round(exact));
  return std::abs(whole - exact) <= kNear * exact && whole < 0x1p31 ? static_cast<std::int64_t>(whole) : 0;
}

double parse_count(std::string_view what, std::string_view text) {
  std::string_view number = trim(text);
  double times = 1;
  if (!number.empty())
    if (const double found = multiple_of(number.back()); found > 0) {
      times = found;
      number = trim(number.substr(0, number.size() - 1));
    }
  const auto value = parse_number(number);
  if (!value || !(*value > 0) || *value * times > kMost)
    throw InputError(
        fmt::format("{}: found {}, expected a number such as 15T, 4M or 300000", what, in_quotes(text)));
  return *value * times;
}

std::string format_count(double count) {
  for (const auto& [size, letter] : {std::pair{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
    if (count >= size) return fmt::format("{:.3g} {}", count / size, letter);
  return fmt::format("{:.3g}", count);
}

UsualBatch usual_batch(std::string_view model, std::int64_t seq) {
  const auto of_tokens = [&](double tokens) {
    GlobalBatch batch;
    batch.sequences = std::max<std::int64_t>(1, std::llround(tokens / static_cast<double>(seq)));
    return batch;
  };
  for (const Published& p : kPublished)
    if (p.model == model) return {of_tokens(p.tokens), fmt::format("its published training: {}", p.source)};
  return {of_tokens(kOfMostModels), "4.2 M tokens, as no published one is known"};
}

}  // namespace moesim::models

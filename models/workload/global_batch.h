// The number of sequences or tokens of a training step, however the plan splits them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesim::models {

struct GlobalBatch {
  std::int64_t sequences = 0;  // 0: given in tokens, or not at all
  double tokens = 0;           // 0: given in sequences, or not at all

  // Tolerance of whole microbatches to a batch in tokens, which is a target.
  static constexpr double kNear = 0.05;

  bool given() const { return sequences > 0 || tokens > 0; }
  friend bool operator==(const GlobalBatch&, const GlobalBatch&) = default;

  // Reads "1024" (sequences), "4Mtokens" or "4194304 tokens". Throws InputError for anything else.
  static GlobalBatch parse(std::string_view text);
  std::string text() const;  // for parse(); empty: not given

  // Returns the microbatches of every data-parallel rank that make the batch; 0: none do, because the
  // sequences do not divide, or the tokens are further than kNear from whole microbatches.
  std::int64_t microbatches(std::int64_t dp, std::int64_t micro_batch, std::int64_t seq) const;
};

// Reads a large number with a suffix: "15T", "4M", "2.5e9", "300k"; M, G or B, T: powers of 1000. Throws
// InputError naming `what` for anything else and for values not above 0.
double parse_count(std::string_view what, std::string_view text);
// Formats with three digits: "15 T", "4.19 M".
std::string format_count(double count);

// The batch of a model's published training with its source; for a model without a known one, the rule that
// replaces it.
struct UsualBatch {
  GlobalBatch batch;
  std::string source;  // one clause: "its published training: arXiv 2412.19437, 4.2"
};
UsualBatch usual_batch(std::string_view model, std::int64_t seq);

}  // namespace moesim::models

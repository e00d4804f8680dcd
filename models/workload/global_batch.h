// How many sequences, or tokens, a training step is for, however the plan deals them out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesim::models {

struct GlobalBatch {
  std::int64_t sequences = 0;  // 0: said in tokens, or not at all
  double tokens = 0;           // 0: said in sequences, or not at all

  // How far from a number of tokens whole microbatches may be: a batch in tokens is an aim.
  static constexpr double kNear = 0.05;

  bool given() const { return sequences > 0 || tokens > 0; }
  friend bool operator==(const GlobalBatch&, const GlobalBatch&) = default;

  // Reads "1024" (sequences), "4Mtokens" or "4194304 tokens". Throws InputError for anything else.
  static GlobalBatch parse(std::string_view text);
  std::string text() const;  // that parse() reads back; empty: not given

  // Microbatches of every data-parallel rank that make the batch; 0: none do, because the sequences do not
  // divide, or the tokens are further than kNear from whole microbatches.
  std::int64_t microbatches(std::int64_t dp, std::int64_t micro_batch, std::int64_t seq) const;
};

// Reads a number as people write large ones: "15T", "4M", "2.5e9", "300k"; M, G or B, T: powers of 1000.
// Throws InputError that names `what` for anything else, and for what is not above 0.
double parse_count(std::string_view what, std::string_view text);
// "15 T", "4.19 M": three digits.
std::string format_count(double count);

// The batch of a model's published training, and where that stands; for a model of which none is known, the
// rule that is taken for it.
struct UsualBatch {
  GlobalBatch batch;
  std::string source;  // one clause: "its published training: arXiv 2412.19437, 4.2"
};
UsualBatch usual_batch(std::string_view model, std::int64_t seq);

}  // namespace moesim::models

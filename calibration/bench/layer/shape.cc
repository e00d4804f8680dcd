#include "layer/shape.h"

namespace moesim::bench {

std::string problem_of(const LayerShape& s) {
  const auto found = [](const char* what, int value, const std::string& expected) {
    return std::string("found ") + what + " " + std::to_string(value) + ", expected " + expected;
  };
  constexpr int kMostTokens = 1 << 20, kMostExperts = 4096, kMostWidth = 1 << 17, kMostCopies = 64,
                kMostRanks = 1024;
  if (s.ep < 1 || s.ep > kMostRanks) return found("--ep", s.ep, "1 to 1024");
  if (s.tokens < 1 || s.tokens > kMostTokens) return found("--tokens", s.tokens, "1 to 1048576");
  // A thread moves 16 bytes, eight elements of bf16.
  if (s.hidden < 8 || s.hidden > kMostWidth || s.hidden % 8 != 0)
    return found("--hidden", s.hidden, "a multiple of 8, to 131072");
  if (s.ffn < 8 || s.ffn > kMostWidth || s.ffn % 8 != 0)
    return found("--ffn", s.ffn, "a multiple of 8, to 131072");
  if (s.experts < 1 || s.experts > kMostExperts) return found("--experts", s.experts, "1 to 4096");
  if (s.experts % s.ep != 0)
    return found("--experts", s.experts, "a multiple of --ep " + std::to_string(s.ep));
  if (s.topk < 1 || s.topk > s.experts || s.topk > kMostCopies)
    return found("--topk", s.topk, "1 to 64, and at most the experts");
  if (static_cast<double>(s.tokens) * s.topk * s.ep > 1 << 30)
    return found("--tokens", s.tokens, "at most 2^30 rows, tokens x topk x ep");
  if (!(s.skew >= 0 && s.skew <= 10)) return "found --skew " + std::to_string(s.skew) + ", expected 0 to 10";
  return {};
}

}  // namespace moesim::bench

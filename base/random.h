// Deterministic random numbers: the same seed gives the same draws on every platform and thread count.
#pragma once

#include <cstdint>

namespace moesim {

// splitmix64 (Steele, Lea, Flood 2014); small, fast, and independent of the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // Inline, since a routing draws one number for every rank and expert.
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  double uniform();                          // [0, 1)
  std::uint64_t below(std::uint64_t bound);  // [0, bound), unbiased; bound > 0
  double normal();                           // mean 0, standard deviation 1
  double gamma(double shape);                // scale 1; shape > 0 (Marsaglia and Tsang 2000)

  // Returns an independent stream for item `index`, so that draws do not depend on the order of work.
  static Random for_item(std::uint64_t seed, std::uint64_t index);

 private:
  std::uint64_t state_;
};

}  // namespace moesim

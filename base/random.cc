#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace moesim {

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::uint64_t Random::below(std::uint64_t bound) {
  check(bound > 0, "Random::below needs a positive bound");
  const std::uint64_t reject_from = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t draw = next();
  while (draw >= reject_from) draw = next();
  return draw % bound;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

double Random::gamma(double shape) {
  if (shape < 1.0) return gamma(shape + 1.0) * std::pow(1.0 - uniform(), 1.0 / shape);
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    if (std::log1p(-uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

Random Random::for_item(std::uint64_t seed, std::uint64_t index) {
  Random mixer(seed ^ (index * 0xd1342543de82ef95ULL));
  return Random(mixer.next());
}

}  // namespace moesim

#include "layer/check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "layer/reference.h"

namespace moesim::bench {
namespace {

using Vector = std::vector<double>;

std::size_t size(int n) { return static_cast<std::size_t>(n); }

// Returns values as the device holds them, from element `first` on.
Vector elements(LayerDevice& device, const void* data, std::size_t first, std::size_t count) {
  const std::size_t one = size_of(device.element());
  std::vector<unsigned char> raw(count * one);
  device.download(raw.data(), static_cast<const unsigned char*>(data) + first * one, raw.size());
  Vector out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = one == sizeof(Bf16) ? to_float(reinterpret_cast<const Bf16*>(raw.data())[i])
                                 : to_float(reinterpret_cast<const float*>(raw.data())[i]);
  return out;
}

template <class T>
std::vector<T> numbers(LayerDevice& device, const Memory& memory, std::size_t first, std::size_t count) {
  std::vector<T> out(count);
  device.download(out.data(), memory.as<T>() + first, count * sizeof(T));
  return out;
}

Vector floats(LayerDevice& device, const Memory& memory, std::size_t first, std::size_t count) {
  const auto values = numbers<float>(device, memory, first, count);
  return {values.begin(), values.end()};
}

// Compares two complete rows of values: a large error is judged by the size of all values.
class Comparison {
 public:
  void add(double is, double should) {
    is_.push_back(is);
    should_.push_back(should);
  }
  void add(const Vector& is, const Vector& should, double factor = 1) {
    for (std::size_t i = 0; i < should.size(); ++i) add(i < is.size() ? is[i] : NAN, factor * should[i]);
  }
  Finding finding(const std::string& what) const {
    double squares = 0, off_squares = 0;
    for (std::size_t i = 0; i < is_.size(); ++i) {
      squares += should_[i] * should_[i];
      off_squares += (is_[i] - should_[i]) * (is_[i] - should_[i]);
    }
    const double count = std::max<double>(static_cast<double>(is_.size()), 1),
                 root = std::sqrt(squares / count);
    Finding finding{what, std::sqrt(off_squares / count) / std::max(root, 1e-30), 0, is_.size()};
    for (std::size_t i = 0; i < is_.size(); ++i) {
      const double off = std::abs(is_[i] - should_[i]) / std::max(std::abs(should_[i]) + root, 1e-30);
      // NaN is the largest error.
      finding.worst = off <= finding.worst ? finding.worst : std::isfinite(off) ? off : INFINITY;
    }
    if (!std::isfinite(finding.deviation)) finding.deviation = INFINITY;
    return finding;
  }

 private:
  Vector is_, should_;
};

using Comparisons = std::map<std::string, Comparison>;

std::vector<Finding> findings_of(const Comparisons& comparisons) {
  std::vector<Finding> out;
  static const std::set<std::string> kInFloat{
      "choices of the router", "logits",          "router weights",   "loss",
      "optimizer, mean",       "optimizer, step", "optimizer, square"};
  for (const auto& [what, comparison] : comparisons) {
    out.push_back(comparison.finding(what));
    out.back().in_float = kInFloat.count(what) > 0;
  }
  return out;
}

// The weights of a world's experts, downloaded on demand.
class Weights {
 public:
  explicit Weights(World& world) : world_(world) {
    const RankLayer& first = *world.ranks().front();
    reference.gate = elements(world.device(), first.gate.weights.get(), 0, first.gate.elements);
    reference.up = [this](int expert) -> const Vector& { return of(up_, expert, &RankLayer::up); };
    reference.down = [this](int expert) -> const Vector& { return of(down_, expert, &RankLayer::down); };
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;
  void take_all() const {
    for (int e = 0; e < world_.shape().experts; ++e) reference.up(e), reference.down(e);
  }

  ReferenceWeights reference;

 private:
  const Vector& of(std::map<int, Vector>& known, int expert, Parameter RankLayer::*which) {
    const auto found = known.find(expert);
    if (found != known.end()) return found->second;
    const int local = world_.shape().local_experts();
    const Parameter& parameter = (*world_.ranks()[size(expert / local)]).*which;
    const std::size_t one = parameter.elements / size(local);
    return known[expert] =
               elements(world_.device(), parameter.weights.get(), size(expert % local) * one, one);
  }

  World& world_;
  std::map<int, Vector> up_, down_;
};

// Returns by how much the worst chosen score is below the best one that was not chosen.
double choice_error(const Vector& logits, const std::vector<float>& bias, const std::vector<int>& chosen) {
  const std::set<int> taken(chosen.begin(), chosen.end());
  if (taken.size() != chosen.size()) return INFINITY;
  double least = INFINITY, most = -INFINITY;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const double score = logits[e] + static_cast<double>(bias[e]);
    if (taken.count(static_cast<int>(e)))
      least = std::min(least, score);
    else
      most = std::max(most, score);
  }
  return std::max(0.0, most - least);
}

// Compares one token of a rank with the reference.
ReferenceToken compare_token(World& world, const Weights& weights, RankLayer& rank, int token,
                             Comparisons& found, ReferenceGradients* gradients) {
  LayerDevice& device = world.device();
  const LayerShape& shape = world.shape();
  const std::size_t width = size(shape.hidden), at = size(token) * width, copies = size(shape.topk);
  const auto chosen = numbers<int>(device, rank.chosen, size(token) * copies, copies);
  for (const int e : chosen)
    if (e < 0 || e >= shape.experts) {
      found["choices of the router"].add(INFINITY, 1);
      return {};
    }
  const auto bias = numbers<float>(device, rank.bias, 0, size(shape.experts));
  ReferenceToken reference =
      reference_token(shape, weights.reference, elements(device, rank.x.get(), at, width),
                      elements(device, rank.target.get(), at, width), chosen, 1.0 / shape.tokens, gradients);
  // Compares 1 + the loss of a choice with 1, so that its error is in units of a logit.
  found["choices of the router"].add(1 + choice_error(reference.logits, bias, chosen), 1);
  found["logits"].add(floats(device, rank.logits, size(token) * size(shape.experts), size(shape.experts)),
                      reference.logits);
  found["router weights"].add(floats(device, rank.weights, size(token) * copies, copies), reference.weights);
  found["outputs"].add(elements(device, rank.y.get(), at, width), reference.y);
  found["gradients of tokens"].add(elements(device, rank.dx.get(), at, width), reference.dx);
  return reference;
}

// Returns the mean loss of a rank's tokens, from the device.
double loss_of(LayerDevice& device, const RankLayer& rank) {
  const std::size_t tokens = size(rank.shape().tokens), values = tokens * size(rank.shape().hidden);
  const Vector y = elements(device, rank.y.get(), 0, values),
               target = elements(device, rank.target.get(), 0, values);
  double sum = 0;
  for (std::size_t i = 0; i < values; ++i) sum += (y[i] - target[i]) * (y[i] - target[i]) / 2;
  return sum / static_cast<double>(tokens);
}

// Compares the first step of AdamW.
void compare_optimizer(LayerDevice& device, const Parameter& parameter, const Vector& before,
                       const Vector& gradient, float rate, Comparisons& found) {
  const auto master = floats(device, parameter.master, 0, parameter.elements);
  const auto mean = floats(device, parameter.mean, 0, parameter.elements);
  const auto square = floats(device, parameter.square, 0, parameter.elements);
  const Vector weights = elements(device, parameter.weights.get(), 0, parameter.elements);
  for (std::size_t i = 0; i < parameter.elements; ++i) {
    const double g = gradient[i];
    // A first step follows the sign: the mean and the root of the square both equal the gradient.
    const double wanted =
        before[i] - static_cast<double>(rate) * (g / (std::abs(g) + 1e-8) + 0.1 * before[i]);
    found["optimizer, mean"].add(mean[i], 0.1 * g);
    found["optimizer, square"].add(square[i], 0.05 * g * g);
    found["optimizer, step"].add((master[i] - before[i]) / static_cast<double>(rate),
                                 (wanted - before[i]) / static_cast<double>(rate));
    found["new weights"].add(weights[i], master[i]);
  }
}

Vector gradient_of(LayerDevice& device, const Parameter& parameter, std::size_t first, std::size_t count) {
  return parameter.float_gradient ? floats(device, parameter.gradient, first, count)
                                  : elements(device, parameter.gradient.get(), first, count);
}

// Compares some elements of gradient[i, j] = sum over the rows of left[row, i] right[row, j], rows from
// `begin` to `end`.
void compare_outer(World& world, const void* left, int left_width, const void* right, int right_width,
                   int begin, int end, const Vector& gradient, Comparison& found) {
  const std::size_t rows = size(end - begin), lw = size(left_width), rw = size(right_width);
  const Vector l = elements(world.device(), left, size(begin) * lw, rows * lw);
  const Vector r = elements(world.device(), right, size(begin) * rw, rows * rw);
  constexpr std::size_t kSamples = 16;
  for (std::size_t s = 0; s < kSamples; ++s) {
    // Corners first, then positions across both widths.
    const std::size_t i = s == 0   ? 0
                          : s == 1 ? lw - 1
                                   : s * 7919 % lw,
                      j = s == 0   ? 0
                          : s == 1 ? rw - 1
                                   : s * 104729 % rw;
    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row) sum += l[row * lw + i] * r[row * rw + j];
    found.add(gradient[i * rw + j], sum / world.shape().ep);
  }
}

void compare_weight_gradients(World& world, RankLayer& rank, Comparisons& found) {
  LayerDevice& device = world.device();
  const LayerShape& shape = world.shape();
  const auto& starts = rank.plan().expert_starts;
  const int local = shape.local_experts();
  int fullest = 0;
  for (int e = 0; e < local; ++e)
    if (starts[size(e) + 1] - starts[size(e)] > starts[size(fullest) + 1] - starts[size(fullest)])
      fullest = e;
  for (const int e : std::set<int>{0, fullest, local - 1}) {
    const int begin = starts[size(e)], end = starts[size(e) + 1];
    const auto gradient = [&](const Parameter& parameter) {
      const std::size_t one = parameter.elements / size(local);
      return gradient_of(device, parameter, size(e) * one, one);
    };
    compare_outer(world, rank.rows, shape.hidden, rank.d_hidden, 2 * shape.ffn, begin, end, gradient(rank.up),
                  found["gradients of up weights"]);
    compare_outer(world, rank.act, shape.ffn, rank.d_out, shape.hidden, begin, end, gradient(rank.down),
                  found["gradients of down weights"]);
  }
  compare_outer(world, rank.x.get(), shape.hidden, rank.d_logits.get(), shape.experts, 0, shape.tokens,
                gradient_of(device, rank.gate, 0, rank.gate.elements), found["gradients of gate weights"]);
}

}  // namespace

Allowed allowed(Element element, bool in_float) {
  if (element == Element::kFloat) return {2e-5, 2e-4};
  // Sums of many numbers in another order.
  if (in_float) return {1e-4, 1e-3};
  // bf16 has eight bits: half a step is 0.2 to 0.4 % of a value, and a gradient passes through about ten of
  // them.
  return {0.015, 0.08};
}

std::vector<Finding> check_all(LayerDevice& device, const LayerShape& shape) {
  constexpr float kRate = 1e-2f;
  World world(device, shape);
  for (auto& rank : world.ranks()) rank->rate = kRate;
  const Weights weights(world);
  weights.take_all();
  world.step();
  Comparisons found;
  ReferenceGradients all(shape);
  for (auto& rank : world.ranks()) {
    ReferenceGradients own(shape);  // the gate's covers the rank's tokens
    for (int t = 0; t < shape.tokens; ++t) compare_token(world, weights, *rank, t, found, &own);
    found["loss"].add(floats(device, rank->loss, 0, 1).front(), loss_of(device, *rank));
    const double share = 1.0 / shape.ep;
    const Vector gate = gradient_of(device, rank->gate, 0, rank->gate.elements);
    found["gradients of gate weights"].add(gate, own.gate, share);
    compare_optimizer(device, rank->gate, weights.reference.gate, gate, kRate, found);
    for (std::size_t e = 0; e < all.up.size(); ++e) {
      for (std::size_t i = 0; i < all.up[e].size(); ++i) all.up[e][i] += own.up[e][i];
      for (std::size_t i = 0; i < all.down[e].size(); ++i) all.down[e][i] += own.down[e][i];
    }
  }
  for (auto& rank : world.ranks()) {
    const auto compare = [&](const char* what, const Parameter& parameter,
                             const std::vector<Vector>& reference,
                             const std::function<const Vector&(int)>& weights_of) {
      const Vector gradient = gradient_of(device, parameter, 0, parameter.elements);
      Vector wanted, before;
      for (int e = 0; e < shape.local_experts(); ++e) {
        const int expert = rank->rank() * shape.local_experts() + e;
        wanted.insert(wanted.end(), reference[size(expert)].begin(), reference[size(expert)].end());
        before.insert(before.end(), weights_of(expert).begin(), weights_of(expert).end());
      }
      found[what].add(gradient, wanted, 1.0 / shape.ep);
      compare_optimizer(device, parameter, before, gradient, kRate, found);
    };
    compare("gradients of up weights", rank->up, all.up, weights.reference.up);
    compare("gradients of down weights", rank->down, all.down, weights.reference.down);
  }
  return findings_of(found);
}

std::vector<Finding> check_some(World& world) {
  const Weights weights(world);
  Comparisons found;
  const int last = world.shape().tokens - 1;
  for (auto& rank : world.ranks()) {
    for (const int token : std::set<int>{0, last / 2, last})
      compare_token(world, weights, *rank, token, found, nullptr);
    compare_weight_gradients(world, *rank, found);
  }
  return findings_of(found);
}

std::string wrong(const std::vector<Finding>& findings, Element element) {
  for (const Finding& finding : findings) {
    const Allowed most = allowed(element, finding.in_float);
    if (!(finding.deviation <= most.deviation && finding.worst <= most.worst)) {
      char text[256];
      std::snprintf(
          text, sizeof text,
          "%s: found values off by %.3g in the mean and %.3g at worst, expected at most %.3g and %.3g",
          finding.what.c_str(), finding.deviation, finding.worst, most.deviation, most.worst);
      return text;
    }
  }
  return {};
}

}  // namespace moesim::bench

#include "layer/reference.h"

#include <algorithm>
#include <cmath>

namespace moesim::bench {
namespace {

using Vector = std::vector<double>;

// x W and W y^T for W [x][y], row-major.
Vector times(const Vector& x, const Vector& w, std::size_t columns) {
  Vector out(columns);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < columns; ++j) out[j] += x[i] * w[i * columns + j];
  return out;
}

Vector times_turned(const Vector& y, const Vector& w, std::size_t rows) {
  Vector out(rows);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < y.size(); ++j) out[i] += y[j] * w[i * y.size() + j];
  return out;
}

void add_outer(const Vector& x, const Vector& y, Vector& w) {
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < y.size(); ++j) w[i * y.size() + j] += x[i] * y[j];
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

struct ExpertPath {
  Vector hidden, act, out;
};

ExpertPath through(const Vector& x, const Vector& up, const Vector& down, std::size_t ffn) {
  ExpertPath path;
  path.hidden = times(x, up, 2 * ffn);
  path.act.resize(ffn);
  for (std::size_t f = 0; f < ffn; ++f) path.act[f] = silu(path.hidden[f]) * path.hidden[ffn + f];
  path.out = times(path.act, down, x.size());
  return path;
}

}  // namespace

ReferenceGradients::ReferenceGradients(const LayerShape& shape) {
  const std::size_t hidden = static_cast<std::size_t>(shape.hidden),
                    experts = static_cast<std::size_t>(shape.experts);
  const std::size_t ffn = static_cast<std::size_t>(shape.ffn);
  gate.resize(hidden * experts);
  up.assign(experts, Vector(hidden * 2 * ffn));
  down.assign(experts, Vector(ffn * hidden));
}

ReferenceToken reference_token(const LayerShape& shape, const ReferenceWeights& weights, const Vector& x,
                               const Vector& target, const std::vector<int>& chosen, double share,
                               ReferenceGradients* gradients) {
  const std::size_t experts = static_cast<std::size_t>(shape.experts),
                    ffn = static_cast<std::size_t>(shape.ffn);
  ReferenceToken token;
  token.logits = times(x, weights.gate, experts);
  double most = -INFINITY, sum = 0;
  for (const int e : chosen) most = std::max(most, token.logits[static_cast<std::size_t>(e)]);
  for (const int e : chosen) sum += std::exp(token.logits[static_cast<std::size_t>(e)] - most);
  std::vector<ExpertPath> paths;
  token.y.resize(x.size());
  for (const int e : chosen) {
    token.weights.push_back(std::exp(token.logits[static_cast<std::size_t>(e)] - most) / sum);
    paths.push_back(through(x, weights.up(e), weights.down(e), ffn));
    for (std::size_t i = 0; i < x.size(); ++i) token.y[i] += token.weights.back() * paths.back().out[i];
  }
  Vector dy(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = token.y[i] - target[i];
    token.loss += off * off / 2;
    dy[i] = off * share;
  }
  token.dx.resize(x.size());
  Vector d_weights, d_logits(experts);
  double mean = 0;
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const int e = chosen[k];
    const ExpertPath& path = paths[k];
    double d_weight = 0;
    Vector d_out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      d_weight += dy[i] * path.out[i];
      d_out[i] = token.weights[k] * dy[i];
    }
    d_weights.push_back(d_weight);
    mean += token.weights[k] * d_weight;
    const Vector d_act = times_turned(d_out, weights.down(e), ffn);
    Vector d_hidden(2 * ffn);
    for (std::size_t f = 0; f < ffn; ++f) {
      d_hidden[f] = d_act[f] * path.hidden[ffn + f] * silu_slope(path.hidden[f]);
      d_hidden[ffn + f] = d_act[f] * silu(path.hidden[f]);
    }
    const Vector through_expert = times_turned(d_hidden, weights.up(e), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) token.dx[i] += through_expert[i];
    if (gradients) {
      add_outer(path.act, d_out, gradients->down[static_cast<std::size_t>(e)]);
      add_outer(x, d_hidden, gradients->up[static_cast<std::size_t>(e)]);
    }
  }
  for (std::size_t k = 0; k < chosen.size(); ++k)
    d_logits[static_cast<std::size_t>(chosen[k])] = token.weights[k] * (d_weights[k] - mean);
  const Vector through_gate = times_turned(d_logits, weights.gate, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) token.dx[i] += through_gate[i];
  if (gradients) add_outer(x, d_logits, gradients->gate);
  return token;
}

}  // namespace moesim::bench

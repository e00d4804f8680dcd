// The memory-bound operations of a layer, each as the work of one thread (`item`) or of one lane of a warp
// (`lane`, `join`, `finish`); T is the element of activations and weights. A device runs all items of a work.
#pragma once

#include <variant>

#include "layer/arithmetic.h"

namespace moesim::bench {

constexpr int kLanes = 32;

// Normal numbers times `scale`.
struct FillNormal {
  void* to;
  std::size_t elements;
  unsigned seed;
  float scale;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return elements;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    static_cast<T*>(to)[i] = from_float<T>(scale * normal_of((static_cast<std::uint64_t>(seed) << 40) + i));
  }
};

// Packs of a row.
template <class T>
MOESIM_BOTH std::size_t packs_of(int columns) {
  return static_cast<std::size_t>(columns / Pack<T>::kSize);
}

// Row r of `to` is row map[r] / copies of `from`; with `scatter` row r of `from` goes to row map[r] of `to`.
struct MoveRows {
  const void* from;
  const int* map;
  void* to;
  std::size_t rows;
  int width, copies;
  bool scatter;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return rows * packs_of<T>(width);
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const std::size_t packs = packs_of<T>(width), row = i / packs, at = i % packs;
    const std::size_t other = static_cast<std::size_t>(map[row] / copies);
    if (scatter)
      store<T>(to, other * packs + at, load<T>(from, i));
    else
      store<T>(to, i, load<T>(from, other * packs + at));
  }
};

// Position of pack i of the gates in rows of gate[packs], value[packs]; its value lies `packs` further.
MOESIM_BOTH inline std::size_t gate_at(std::size_t i, std::size_t packs) {
  return i / packs * 2 * packs + i % packs;
}

// act = silu(gate) * value, where a row of `hidden` is gate[ffn], value[ffn].
struct SwiGlu {
  const void* hidden;
  void* act;
  std::size_t rows;
  int ffn;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return rows * packs_of<T>(ffn);
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const std::size_t packs = packs_of<T>(ffn), at = gate_at(i, packs);
    const Pack<T> gate = load<T>(hidden, at), value = load<T>(hidden, at + packs);
    Pack<T> out;
    for (int e = 0; e < Pack<T>::kSize; ++e) {
      const float g = to_float(gate.v[e]);
      out.v[e] = from_float<T>(g * sigmoid(g) * to_float(value.v[e]));
    }
    store<T>(act, i, out);
  }
};

struct SwiGluBackward {
  const void* hidden;
  const void* d_act;
  void* d_hidden;
  std::size_t rows;
  int ffn;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return rows * packs_of<T>(ffn);
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const std::size_t packs = packs_of<T>(ffn), at = gate_at(i, packs);
    const Pack<T> gate = load<T>(hidden, at), value = load<T>(hidden, at + packs), d = load<T>(d_act, i);
    Pack<T> d_gate, d_value;
    for (int e = 0; e < Pack<T>::kSize; ++e) {
      const float g = to_float(gate.v[e]), s = sigmoid(g), upper = to_float(d.v[e]);
      d_gate.v[e] = from_float<T>(upper * to_float(value.v[e]) * s * (1 + g * (1 - s)));
      d_value.v[e] = from_float<T>(upper * g * s);
    }
    store<T>(d_hidden, at, d_gate);
    store<T>(d_hidden, at + packs, d_value);
  }
};

// y[t] = sum over the copies k of weights[t, k] * rows[places[t, k]], in float; null weights are 1.
struct Combine {
  const void* rows;
  const int* places;
  const float* weights;
  void* y;
  std::size_t tokens;
  int copies, width;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return tokens * packs_of<T>(width);
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const std::size_t packs = packs_of<T>(width), at = i % packs;
    const std::size_t first = i / packs * static_cast<std::size_t>(copies);
    float sum[Pack<T>::kSize] = {};
    for (int k = 0; k < copies; ++k) {
      const std::size_t choice = first + static_cast<std::size_t>(k);
      const Pack<T> row = load<T>(rows, static_cast<std::size_t>(places[choice]) * packs + at);
      const float weight = weights ? weights[choice] : 1.0f;
      for (int e = 0; e < Pack<T>::kSize; ++e) sum[e] += weight * to_float(row.v[e]);
    }
    Pack<T> out;
    for (int e = 0; e < Pack<T>::kSize; ++e) out.v[e] = from_float<T>(sum[e]);
    store<T>(y, i, out);
  }
};

// d_logits[t, e] = w (d_w - sum over the token's copies of w d_w) for a chosen expert, 0 for others.
struct RouteBackward {
  const int* chosen;
  const float *weights, *d_weights;
  void* d_logits;
  std::size_t tokens;
  int copies, experts;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return tokens * static_cast<std::size_t>(experts);
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const int expert = static_cast<int>(i % static_cast<std::size_t>(experts));
    const std::size_t first = i / static_cast<std::size_t>(experts) * static_cast<std::size_t>(copies);
    float mean = 0, weight = 0, gradient = 0;
    for (int k = 0; k < copies; ++k) {
      const std::size_t at = first + static_cast<std::size_t>(k);
      mean += weights[at] * d_weights[at];
      if (chosen[at] == expert) weight = weights[at], gradient = d_weights[at];
    }
    static_cast<T*>(d_logits)[i] = from_float<T>(weight * (gradient - mean));
  }
};

// places[order[i]] = i.
struct Invert {
  const int* order;
  int* places;
  std::size_t elements;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return elements;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    places[order[i]] = static_cast<int>(i);
  }
};

// starts[e] = first index in `sorted` whose value is at least e, for e from 0 to `values`.
struct FindStarts {
  const int* sorted;
  int* starts;
  int elements, values;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return static_cast<std::size_t>(elements) + 1;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const int low = i == 0 ? 0 : sorted[i - 1] + 1;
    const int high = i == static_cast<std::size_t>(elements) ? values : sorted[i];
    for (int e = low; e <= high; ++e) starts[e] = static_cast<int>(i);
  }
};

// Rows move in pieces: piece c from from_starts[c] to to_starts[c]. Row r of the target comes from row
// map[r].
struct MapPieces {
  const int *to_starts, *from_starts;
  int* map;
  std::size_t rows;
  int pieces;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return rows;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const int row = static_cast<int>(i), piece = piece_of(to_starts, pieces, row);
    map[i] = from_starts[piece] + row - to_starts[piece];
  }
};

// values *= factor; in float or in elements.
struct Scale {
  void* values;
  std::size_t elements;
  float factor;
  bool in_float;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return elements;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    if (in_float) {
      static_cast<float*>(values)[i] *= factor;
    } else {
      T& value = static_cast<T*>(values)[i];
      value = from_float<T>(to_float(value) * factor);
    }
  }
};

// AdamW with master weights and moments in float; the first step's corrections are in `rate` and `second`.
struct AdamW {
  float *master, *mean, *square;
  void* parameter;
  const void* gradient;
  std::size_t elements;
  bool float_gradient;
  float rate, decay, keep_mean, keep_square, correct_mean, correct_square, epsilon;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return elements;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    const float g = float_gradient ? static_cast<const float*>(gradient)[i]
                                   : to_float(static_cast<const T*>(gradient)[i]);
    mean[i] = keep_mean * mean[i] + (1 - keep_mean) * g;
    square[i] = keep_square * square[i] + (1 - keep_square) * g * g;
    const float step = mean[i] * correct_mean / (sqrtf(square[i] * correct_square) + epsilon);
    master[i] -= rate * (step + decay * master[i]);
    static_cast<T*>(parameter)[i] = from_float<T>(master[i]);
  }
};

// master = parameter, moments 0.
struct StartAdamW {
  float *master, *mean, *square;
  const void* parameter;
  std::size_t elements;
  static constexpr bool kWarp = false;
  template <class T>
  MOESIM_BOTH std::size_t items() const {
    return elements;
  }
  template <class T>
  MOESIM_BOTH void item(std::size_t i) const {
    master[i] = to_float(static_cast<const T*>(parameter)[i]);
    mean[i] = square[i] = 0;
  }
};

// One warp per token: the `copies` experts with the highest logit + bias in descending order, and the softmax
// over their logits.
struct Route {
  const float *logits, *bias;
  int* chosen;
  float* weights;
  std::size_t tokens;
  int copies, experts;
  static constexpr bool kWarp = true;
  using Value = Best;
  MOESIM_BOTH std::size_t count() const { return tokens; }
  MOESIM_BOTH int rounds() const { return copies; }
  // Best expert of this lane that no earlier round took.
  template <class T>
  MOESIM_BOTH Best lane(std::size_t token, int round, int lane) const {
    const int* taken = chosen + token * static_cast<std::size_t>(copies);
    Best best{-INFINITY, experts};
    for (int e = lane; e < experts; e += kLanes) {
      bool free = true;
      for (int k = 0; k < round; ++k) free = free && taken[k] != e;
      if (free)
        best = better(
            best,
            {logits[token * static_cast<std::size_t>(experts) + static_cast<std::size_t>(e)] + bias[e], e});
    }
    return best;
  }
  MOESIM_BOTH static Best join(Best a, Best b) { return better(a, b); }
  template <class T>
  MOESIM_BOTH void finish(std::size_t token, int round, Best best) const {
    const std::size_t first = token * static_cast<std::size_t>(copies);
    // NaN logits have no best expert: take any, so that no index is out of bounds.
    chosen[first + static_cast<std::size_t>(round)] = best.expert < experts ? best.expert : round;
    if (round + 1 < copies) return;
    const float* mine = logits + token * static_cast<std::size_t>(experts);
    float most = -INFINITY, sum = 0;
    for (int k = 0; k < copies; ++k) most = fmaxf(most, mine[chosen[first + static_cast<std::size_t>(k)]]);
    for (int k = 0; k < copies; ++k) sum += expf(mine[chosen[first + static_cast<std::size_t>(k)]] - most);
    for (int k = 0; k < copies; ++k) {
      const std::size_t at = first + static_cast<std::size_t>(k);
      weights[at] = expf(mine[chosen[at]] - most) / sum;
    }
  }
};

// Shared parts of warps that sum.
struct Adding {
  static constexpr bool kWarp = true;
  using Value = float;
  MOESIM_BOTH int rounds() const { return 1; }
  MOESIM_BOTH static float join(float a, float b) { return a + b; }
};

// One warp per copy of a token: d_rows[place] = weight * d_y[token], d_weight = d_y[token] . rows[place].
struct CombineBackward : Adding {
  const void *rows, *d_y;
  const int* places;
  const float* weights;
  void* d_rows;
  float* d_weights;
  std::size_t choices;
  int copies, width;
  MOESIM_BOTH std::size_t count() const { return choices; }
  template <class T>
  MOESIM_BOTH float lane(std::size_t choice, int, int lane) const {
    const std::size_t packs = packs_of<T>(width);
    const std::size_t token = choice / static_cast<std::size_t>(copies),
                      row = static_cast<std::size_t>(places[choice]);
    float sum = 0;
    for (std::size_t at = static_cast<std::size_t>(lane); at < packs; at += kLanes) {
      const Pack<T> upper = load<T>(d_y, token * packs + at), value = load<T>(rows, row * packs + at);
      Pack<T> out;
      for (int e = 0; e < Pack<T>::kSize; ++e) {
        const float d = to_float(upper.v[e]);
        sum += d * to_float(value.v[e]);
        out.v[e] = from_float<T>(weights[choice] * d);
      }
      store<T>(d_rows, row * packs + at, out);
    }
    return sum;
  }
  template <class T>
  MOESIM_BOTH void finish(std::size_t choice, int, float sum) const {
    d_weights[choice] = sum;
  }
};

// One warp per token: loss[t] = |y - target|^2 / 2, d_y = (y - target) / tokens, the gradient of the mean
// loss.
struct Loss : Adding {
  const void *y, *target;
  void* d_y;
  float* losses;
  std::size_t tokens;
  int width;
  MOESIM_BOTH std::size_t count() const { return tokens; }
  template <class T>
  MOESIM_BOTH float lane(std::size_t token, int, int lane) const {
    const std::size_t packs = packs_of<T>(width);
    float sum = 0;
    for (std::size_t at = static_cast<std::size_t>(lane); at < packs; at += kLanes) {
      const Pack<T> is = load<T>(y, token * packs + at), wanted = load<T>(target, token * packs + at);
      Pack<T> out;
      for (int e = 0; e < Pack<T>::kSize; ++e) {
        const float off = to_float(is.v[e]) - to_float(wanted.v[e]);
        sum += off * off / 2;
        out.v[e] = from_float<T>(off / static_cast<float>(tokens));
      }
      store<T>(d_y, token * packs + at, out);
    }
    return sum;
  }
  template <class T>
  MOESIM_BOTH void finish(std::size_t token, int, float sum) const {
    losses[token] = sum;
  }
};

// One warp: the mean.
struct Mean : Adding {
  const float* values;
  float* mean;
  std::size_t elements;
  MOESIM_BOTH std::size_t count() const { return 1; }
  template <class T>
  MOESIM_BOTH float lane(std::size_t, int, int lane) const {
    float sum = 0;
    for (std::size_t i = static_cast<std::size_t>(lane); i < elements; i += kLanes) sum += values[i];
    return sum;
  }
  template <class T>
  MOESIM_BOTH void finish(std::size_t, int, float sum) const {
    *mean = sum / static_cast<float>(elements);
  }
};

using Work =
    std::variant<FillNormal, MoveRows, SwiGlu, SwiGluBackward, Combine, RouteBackward, Invert, FindStarts,
                 MapPieces, Scale, AdamW, StartAdamW, Route, CombineBackward, Loss, Mean>;

}  // namespace moesim::bench

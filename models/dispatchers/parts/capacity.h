// Expert capacity and the rows it drops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"
#include "models/routing/routing.h"

namespace moesim::models {

// Returns C = ceil(T*K/E * factor) rows per source rank and expert (docs/spec.md 2.2.3).
std::int64_t capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor);
// Returns the capacity of every rank of a routing, from its own tokens.
std::vector<std::int64_t> capacities(const Routing& routing, double factor);
// Returns the rows that `after` lacks against `before`, summed over ranks and experts where it has fewer.
std::int64_t total_dropped(const Routing& before, const Routing& after);

// Shared parts of DeepSpeed and Tutel (docs/spec.md 2.13): every rank sends C rows to every expert whatever
// the routing; rows above C are dropped, missing rows are padding.

struct FixedCapacity {
  // `rows_per_expert`: C, rows of every rank for every expert.
  FixedCapacity(const MoeLayer& layer, std::int64_t rows_per_expert);

  // Returns the rule that a layer violates, if any.
  static std::optional<std::string> illegal(const MoeLayer& layer);
  // Returns the most rows that any rank sends to any expert: the capacity that drops nothing.
  static std::int64_t largest_count(const Routing& routing);

  LayerSizes sizes;  // sent, arrived, computed and experts at their padded sizes
  std::int64_t C = 0;
  std::int64_t rows = 0;  // E * C rows of the send and of the receive buffer
  std::int64_t dropped = 0;
};

// Equal all-to-all of padded chunks (docs/spec.md 2.7).

// Source of a chunk's zero rows: F.pad, or concatenation with rows of zeros.
enum class Padding : std::uint8_t { kPad, kConcatenate };
Padding padding_option(DispatcherOptions& options);  // option pad_with

struct EqualSplit {
  explicit EqualSplit(const LayerSizes& sizes);

  std::int64_t m = 0;             // the largest entry of the split matrix, over the whole group
  std::vector<double> overheads;  // per rank; infinite where a rank neither sends nor receives rows
  double worst() const;

  // Pads chunks at their end to m rows, exchanges and compacts them. `there`: from the sender's rows to the
  // receiver's.
  void exchange(ProgramBuilder& builder, std::string_view name, Category category, DType dtype,
                const LayerSizes& sizes, bool there, Padding padding) const;
};

}  // namespace moesim::models

// Equal all-to-all of padded chunks (docs/spec.md 2.7).
#pragma once

#include <cstdint>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

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

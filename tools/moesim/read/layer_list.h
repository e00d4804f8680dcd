// Megatron's lists of layers in short form: "([0]*3+[1]*58)".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

// Length of the longest list.
inline constexpr std::size_t kMaxLayerList = std::size_t{1} << 20;

// Returns the numbers of a list expression of [ ], ( ), + and *; nullopt for other text or a longer list.
std::optional<std::vector<std::int64_t>> layer_list(std::string_view text);

// The layers with experts, as in Architecture: after `dense` layers every `every`-th.
struct ExpertLayers {
  std::int64_t dense = 0, every = 1;
};
// Returns the list expression of the form for so many layers.
std::string layer_list_text(const ExpertLayers& form, std::int64_t layers);

}  // namespace moesim::tools

// The sections of Megatron's table of arguments, and what they share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/read/arguments.h"

namespace moesim::tools::megatron {

// Rules in the order in which arguments are written.
std::vector<ArgumentRule> shape_rules();  // sizes, vocabulary, attention and its kernel
std::vector<ArgumentRule> expert_rules();
std::vector<ArgumentRule> hybrid_rules();    // layers by letter, Mamba
std::vector<ArgumentRule> parallel_rules();  // parallel sizes, batch
std::vector<ArgumentRule> precision_rules();
std::vector<ArgumentRule> training_rules();  // recomputation, sharding, overlap, optimizer, CUDA graphs
std::vector<ArgumentRule> dispatcher_rules();
std::vector<ArgumentRule> order_rules();  // order of the ranks

inline void put_flag(Arguments& out, bool value, const char* name) {
  if (value) out.emplace_back(name, true);
}

// Returns whether a file contains any sizes of a model.
bool has_model(JobReader& reader);
// Reads a switch that the command line negates and files name directly.
bool switched(JobReader& reader, const char* name, const char* off, bool fallback);
// Returns the inner size of a dense FFN.
std::int64_t inner_size(JobReader& reader, std::int64_t hidden);
// Whether the arguments can say a dispatcher.
bool writes_dispatcher(std::string_view name);
// Returns what a model's layers have that the arguments cannot say; nullptr: nothing.
const char* unwritten_layers(const models::Architecture& model);
// Returns the experts of a layer, under Megatron's name or that of MegaBlocks' version; 0: none.
std::int64_t experts_of(JobReader& reader);

// "M*|E-/*E/*E": layers by letter in stages, with an MTP layer after every /.
struct HybridPattern {
  std::string layers;
  std::int64_t stages = 1, mtp = 0;
};

HybridPattern hybrid_pattern(JobReader& reader);
// Returns "bf16", "fp8", ... of the arguments; "" where they do not set it.
std::string precision_of(JobReader& reader);

}  // namespace moesim::tools::megatron

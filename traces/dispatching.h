// Routing as data: how many rows every expert-parallel rank sends to every expert, and optionally which
// expert every token chose (docs/formats.md has the JSON). Plain counts; models/ turns them into its routing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::traces {

// The choice of every token of one rank: experts[t * topk + k].
struct TopkIndices {
  std::int64_t tokens = 0;
  std::int64_t topk = 0;
  std::vector<std::int32_t> experts;
  friend bool operator==(const TopkIndices&, const TopkIndices&) = default;
};

// The routing of one MoE layer in one microbatch.
struct DispatchingTable {
  // sent[r * experts + e]: rows that EP rank r sends to expert e (num_local_tokens_per_expert of rank r, row
  // r of num_global_tokens_per_expert). Empty when the file holds received counts only.
  std::vector<std::int64_t> sent;
  // received[e]: rows that expert e gets from all ranks (tokens_per_local_expert of the rank that holds e).
  // Always filled; the column sums of `sent` where both are known.
  std::vector<std::int64_t> received;
  // One per EP rank, or empty when the file has none.
  std::vector<TopkIndices> topk;
  // Why `received` is not what a job did: ranks without an entry, whose rows are a histogram of something
  // else (the fallback of a recorder in scaling mode). "": everything is known.
  std::string not_representative;
  friend bool operator==(const DispatchingTable&, const DispatchingTable&) = default;
};

// A table for one layer, one microbatch, or one of both; nullopt means every one.
struct DispatchingEntry {
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> microbatch;
  DispatchingTable table;
  friend bool operator==(const DispatchingEntry&, const DispatchingEntry&) = default;
};

// What a recorder in scaling mode said of itself (docs/spec.md 3.1).
struct ScalingMode {
  std::int64_t fake_tp = 1;              // tensor-parallel size of the job that one GPU imitated
  std::optional<std::int64_t> exp_rank;  // the EP rank that it was when it wrote this
  std::optional<std::int64_t> topk;
  friend bool operator==(const ScalingMode&, const ScalingMode&) = default;
};

struct Dispatching {
  std::int64_t ep = 0;       // expert-parallel ranks; rank d holds experts [d * E/EP, (d + 1) * E/EP)
  std::int64_t experts = 0;  // E
  // Sorted by layer, then microbatch, "every one" first; each pair at most once.
  std::vector<DispatchingEntry> entries;
  std::optional<ScalingMode> scaling;  // of files with the recorder's settings
  // The counts are loads of experts alone ([layers][experts]), of nobody's ranks and tokens; `ep` is 1.
  bool loads = false;
  friend bool operator==(const Dispatching&, const Dispatching&) = default;

  // The most particular table for this layer and microbatch: both named, then the layer, then the microbatch,
  // then the one for all. nullptr when the file says nothing about it.
  const DispatchingTable* find(std::int64_t layer, std::int64_t microbatch) const;
};

// Limits of one file: rows that a rank may send, and entries of the EP x E matrix.
inline constexpr std::int64_t kMaxRowsPerRank = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t kMaxMatrixEntries = std::int64_t{1} << 26;

// Reads a plain array of expert loads, [experts] or [layers][experts], the same under "logical_count" as
// SGLang and vLLM dump it (layers of zeros, which have no experts, left out), moesim's own form and that of a
// recorder in scaling mode, whose config holds per_rank_dispatching_results, is_scaling_mode, fake_tp and
// exp_rank. A rank without an entry gets the histogram that the recorder's fallback makes, and the table says
// so (not_representative). Throws InputError with file and line for wrong types or sizes, negative or
// overflowing counts, a rank that is out of range, and parts that contradict each other (received counts that
// are not the column sums of the sent ones, histograms that are not those of the top-k indices, ...).
Dispatching read_dispatching(const std::filesystem::path& path);
Dispatching parse_dispatching(std::string_view text, const std::string& file);

// The JSON text; parse_dispatching gives the same Dispatching back.
std::string write_dispatching(const Dispatching& dispatching);

}  // namespace moesim::traces

// Routing as data: rows from every expert-parallel rank to every expert, and optionally the experts of every
// token (docs/formats.md describes the JSON). Plain counts; models/ converts them to its routing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::traces {

// Choices of every token of one rank: experts[t * topk + k].
struct TopkIndices {
  std::int64_t tokens = 0;
  std::int64_t topk = 0;
  std::vector<std::int32_t> experts;
  friend bool operator==(const TopkIndices&, const TopkIndices&) = default;
};

// The routing of one MoE layer in one microbatch.
struct DispatchingTable {
  // sent[r * experts + e]: rows that EP rank r sends to expert e (num_local_tokens_per_expert of rank r, row
  // r of num_global_tokens_per_expert). Empty when the file contains received counts only.
  std::vector<std::int64_t> sent;
  // received[e]: rows that expert e receives from all ranks (tokens_per_local_expert of its rank). Always
  // filled; the column sums of `sent` where both are known.
  std::vector<std::int64_t> received;
  // One per EP rank, or empty when the file has none.
  std::vector<TopkIndices> topk;
  // Why `received` is not from a real job: ranks without an entry, whose rows are a histogram of something
  // else (the fallback of a recorder in scaling mode). "": everything is known.
  std::string not_representative;
  std::vector<std::int64_t>
      missing;  // those ranks; who knows the tokens and top-k knows the sum of their rows
  friend bool operator==(const DispatchingTable&, const DispatchingTable&) = default;
};

// A table for one layer, one microbatch, or one of both; nullopt means all.
struct DispatchingEntry {
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> microbatch;
  DispatchingTable table;
  friend bool operator==(const DispatchingEntry&, const DispatchingEntry&) = default;
};

// Settings of a recorder in scaling mode (docs/spec.md 3.1).
struct ScalingMode {
  std::int64_t fake_tp = 1;              // tensor-parallel size of the job that one GPU imitated
  std::optional<std::int64_t> exp_rank;  // the EP rank that it imitated when it wrote this
  std::optional<std::int64_t> topk;
  friend bool operator==(const ScalingMode&, const ScalingMode&) = default;
};

struct Dispatching {
  std::int64_t ep = 0;       // expert-parallel ranks; rank d holds experts [d * E/EP, (d + 1) * E/EP)
  std::int64_t experts = 0;  // E
  // Sorted by layer, then microbatch, nullopt first; each pair at most once.
  std::vector<DispatchingEntry> entries;
  std::optional<ScalingMode> scaling;  // in files with the recorder's settings
  // The counts are loads of experts alone ([layers][experts]), without ranks and tokens; `ep` is 1.
  bool loads = false;
  friend bool operator==(const Dispatching&, const Dispatching&) = default;

  // Returns the most specific table for this layer and microbatch: both named, then the layer, then the
  // microbatch, then the one for all. nullptr when the file has none.
  const DispatchingTable* find(std::int64_t layer, std::int64_t microbatch) const;
};

// Limits of one file: rows sent by a rank, and entries of the EP x E matrix.
inline constexpr std::int64_t kMaxRowsPerRank = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t kMaxMatrixEntries = std::int64_t{1} << 26;

// Reads a plain array of expert loads, [experts] or [layers][experts], the same under "logical_count" as
// SGLang and vLLM dump it (without layers of zeros, which have no experts), moesim's own form, and that of a
// recorder in scaling mode, whose config holds per_rank_dispatching_results, is_scaling_mode, fake_tp and
// exp_rank. A rank without an entry gets the histogram of the recorder's fallback, marked in the table
// (not_representative). Throws InputError with file and line for wrong types or sizes, negative or
// overflowing counts, a rank out of range, and contradictory parts (received counts other than the column
// sums of the sent ones, histograms other than those of the top-k indices, ...).
Dispatching read_dispatching(const std::filesystem::path& path);
Dispatching parse_dispatching(std::string_view text, const std::string& file);

// Returns JSON text that parse_dispatching reads back to an equal Dispatching.
std::string write_dispatching(const Dispatching& dispatching);

}  // namespace moesim::traces

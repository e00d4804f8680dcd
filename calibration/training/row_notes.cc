#include "calibration/training/row_notes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace moesim::calibration {

namespace {

// Words of notes, longer ones before shorter ones of the same path: the first match decides.
struct Phrase {
  std::string_view words, path, value;
};
constexpr std::array<Phrase, 16> kPhrases{{
    {"recompute norm, act", "training.recompute", "layernorm+moe_act"},
    {"recompute mlp", "training.recompute", "mlp"},
    {"full recomputation", "training.recompute", "full"},
    {"activation checkpointing", "training.recompute", "full"},
    {"no recomputation", "training.recompute", "none"},
    {"no recompute", "training.recompute", "none"},
    {"recomputation off", "training.recompute", "none"},
    {"full-iteration graphs", "training.launch", "graphs"},
    {"no expert-communication overlap", "training.overlap.expert_communication", "false"},
    {"no overlap of communication", "training.overlap.expert_communication", "false"},
    {"A2A overlap", "training.overlap.expert_communication", "true"},
    {"all-to-all overlap", "training.overlap.expert_communication", "true"},
    {"expert-parallel overlap", "training.overlap.expert_communication", "true"},
    {"expert communication overlapped", "training.overlap.expert_communication", "true"},
    {"eight gradients delayed", "training.overlap.delayed_wgrad", "true"},
    {"FSDP2", "training.sharding", "fsdp"},
}};

struct Size {
  std::string_view letters, path;
};
constexpr std::array<Size, 7> kSizes{{{"TP", "parallel.tp"},
                                      {"PP", "parallel.pp"},
                                      {"CP", "parallel.cp"},
                                      {"EP", "parallel.ep"},
                                      {"ETP", "parallel.etp"},
                                      {"VPP", "parallel.vpp"},
                                      {"mbs", "parallel.micro_batch"}}};

// Returns the integer of "EP8" or "EP 8"; nullopt for none or a range.
std::optional<std::int64_t> size_after(std::string_view text, std::string_view letters) {
  for (std::size_t at = text.find(letters); at != std::string_view::npos; at = text.find(letters, at + 1)) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1]))) continue;
    std::string_view rest = text.substr(at + letters.size());
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (end == 0 || (end < rest.size() && (rest[end] == '-' || rest[end] == '.'))) continue;
    return parse_int(rest.substr(0, end));
  }
  return std::nullopt;
}

}  // namespace

std::vector<RowSetting> settings_of_note(std::string_view note) {
  std::vector<RowSetting> all;
  for (const auto& [words, path, value] : kPhrases) {
    if (note.find(words) == std::string_view::npos) continue;
    if (std::ranges::find(all, path, &RowSetting::path) != all.end()) continue;
    all.push_back({std::string(path), value == "true"    ? nlohmann::json(true)
                                      : value == "false" ? nlohmann::json(false)
                                                         : nlohmann::json(value)});
  }
  for (const auto& [letters, path] : kSizes)
    if (const auto size = size_after(note, letters); size && *size > 0)
      all.push_back({std::string(path), *size});
  return all;
}

std::string dispatcher_of_text(std::string_view text, std::string_view alltoall) {
  const auto is = [&](std::string_view start) { return text.starts_with(start); };
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("HybridEP")) return "flex-hybridep";
  if (is("flex (DeepEP") || is("DeepEP")) return "flex-deepep";
  // Tokens of all tensor-parallel ranks. Permutation kernels are fused only with --moe-permute-fusion.
  if (text == "TP") return "allgather:permute_fusion=false";
  if (is("alltoall") || is("NCCL alltoall") || is("MSCCL++ shim")) return std::string(alltoall);
  return "";
}

}  // namespace moesim::calibration

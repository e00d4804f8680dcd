// The interface of a token dispatcher and the registry of all of them. A new dispatcher is one file in
// models/dispatchers/ and one line in models/dispatchers/registry.cmake (docs/contributing.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/dtype.h"
#include "models/programs/program.h"
#include "models/routing/routing.h"
#include "models/workload/dispatcher_spec.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

struct Scenario;

// Copies of experts on ranks other than their own (docs/spec.md 2.15).
struct ExpertMoves {
  // [ep][ep]: number of the first rank's experts that the second holds copies of
  std::vector<std::int64_t> copies;
  std::vector<std::int64_t> foreign;  // by rank: copies of other ranks' experts
  // true: weights travel before the products of every pass and gradients after them; false: copies stay and
  // their gradients are summed once a step.
  bool every_pass = true;
};

// One MoE layer on one dispatch group: the input of a dispatcher.
struct MoeLayer {
  std::int64_t hidden = 0;      // H (or the latent width)
  std::int64_t expert_ffn = 0;  // F
  std::int64_t shared_ffn = 0;
  bool gated = true;
  int ep = 1, etp = 1, tp = 1, cp = 1;
  int ranks_per_node = 8;  // ranks of the dispatch group, in consecutive blocks, that share NVLink
  int ranks_per_host = 0;  // ranks that share a machine, where NVLink joins machines; 0: it does not
  bool straddles = false;  // the group does not consist of such blocks: parts of unequal size or mixed order
  DType activation = DType::kBf16;
  DType router = DType::kFp32;
  DType weight = DType::kBf16;
  Recompute recompute = Recompute::kNone;
  bool train = true;
  bool routing_given = false;     // from a file or recording: every rank's rows are fixed
  bool placed = false;            // the routing's experts are slots to which experts were assigned
  bool fp8 = true;                // the GPU supports 8-bit floats
  bool own_links = true;          // NVLink or xGMI joins the GPUs of a node; else PCIe alone
  std::int64_t microbatches = 1;  // per step
  int gradient_bytes = 4;         // per weight of a gradient that is summed over copies
  std::int64_t lora_rank = 0;     // of adapters of the routed experts, whose weights are frozen; 0: none
  int routing_groups = 1;         // blocks of experts, of which a token uses routing_topk_groups
  int routing_topk_groups = 1;
  const Routing* routing = nullptr;
  const std::vector<std::int64_t>* load = nullptr;  // rows per expert at the last assignment of experts
  const ExpertMoves* moves = nullptr;

  int ranks() const { return ep * etp; }
  int experts() const { return routing->experts(); }
  int local_experts() const { return routing->experts() / ep; }
  int topk() const { return routing->topk(); }
};

// Options of one dispatcher, read by name. An option that is never read is an error that names the nearest
// known one.
class DispatcherOptions {
 public:
  DispatcherOptions() = default;
  DispatcherOptions(std::string dispatcher, std::map<std::string, std::string, std::less<>> values,
                    std::string origin);

  bool flag(std::string_view key, bool fallback);  // true/false/1/0/yes/no/on/off
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t low, std::int64_t high);
  double number(std::string_view key, double fallback, double low, double high);
  // Returns the index of the value among `choices`.
  std::size_t choice(std::string_view key, std::size_t fallback, std::span<const std::string_view> choices);
  bool given(std::string_view key) const;
  void finish() const;  // throws InputError for an option that was never read

  const std::string& dispatcher() const { return dispatcher_; }
  // Throws InputError "dispatcher: message".
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string dispatcher_, origin_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> known_;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  // Returns the rule that forbids this dispatcher (with its options) on this layer, in one clause; nullopt
  // when legal.
  virtual std::optional<std::string> illegal(const MoeLayer& layer) const = 0;
  // Whether it splits the inner size of experts, so that the ranks need not divide the experts: where there
  // are more ranks than experts (MegaBlocks), or always (expert tensor parallelism).
  virtual bool splits_experts() const { return false; }
  // Whether its rows go to whole experts on any rank, so that experts can be copied and moved.
  virtual bool balances() const { return false; }
  // Returns the experts that the group holds, including permanent copies.
  virtual int expert_slots(const MoeLayer& layer) const { return layer.experts(); }
  // Returns the program of one layer. Precondition: the layer is legal.
  virtual Program build(const MoeLayer& layer) const = 0;
};

// Returns the first violated rule: rules that hold for every dispatcher, then illegal().
std::optional<std::string> rule_against(const Dispatcher& dispatcher, const MoeLayer& layer);

struct DispatcherEntry {
  std::string_view name;
  std::string_view summary;  // one line for `moesim list dispatchers`
  std::unique_ptr<Dispatcher> (*make)(DispatcherOptions& options);
};

// A value for DispatcherEntry::make.
template <class D>
std::unique_ptr<Dispatcher> make_dispatcher_of(DispatcherOptions& options) {
  return std::make_unique<D>(options);
}

// All dispatchers, in the order of `moesim list`.
std::span<const DispatcherEntry> dispatcher_registry();

// Parses "a,b:k=v", or "all". Throws InputError for an unknown name or option, with the nearest one.
std::vector<DispatcherSpec> parse_dispatchers(const std::string& text);
std::unique_ptr<Dispatcher> make_dispatcher(const DispatcherSpec& spec);

// Replaces "all" in a scenario by the names of all dispatchers. Throws InputError for an unknown name or
// option, with the nearest one.
void name_dispatchers(Scenario& scenario);

}  // namespace moesim::models

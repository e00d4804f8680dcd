// Prices of a program's operations on a cluster: the duration of each operation on every rank, for lockstep
// execution.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/costs/attention.h"
#include "models/costs/collectives.h"
#include "models/costs/domain_report.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/gemm.h"
#include "models/costs/group_shapes.h"
#include "models/costs/kernels.h"
#include "models/costs/recipe.h"
#include "models/costs/training_products.h"
#include "models/programs/program.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

struct Cluster;

[[noreturn]] void refuse_price(double seconds);

// Longest operation that is priced: no product or exchange of a step takes a quarter of an hour.
inline constexpr double kLongestSeconds = 1e3;

// Converts seconds to picoseconds. Throws InputError above kLongestSeconds and for NaN.
inline std::int64_t to_ps(double seconds) {
  if (!(seconds <= kLongestSeconds)) refuse_price(seconds);
  return std::llround(seconds * 1e12);
}

// Returns whether a library's dispatch or combine kernels were measured on this GPU: inside a domain, or
// across nodes over the network of the profile.
bool kernel_is_measured(const Profile& profile, ExchangeLibrary library, bool across_nodes);

class ProgramPricer {
 public:
  // Resolves the cluster's profile.
  explicit ProgramPricer(const Cluster& cluster, const Recipe& recipe = Recipe::bare());

  // Prices a pass of a program: operation i of the result is operation i of the pass. A collective's duration
  // starts at the arrival of its last member.
  sim::LockstepProgram price(const Program& program, const std::vector<Op>& pass, const GroupShapes& shapes,
                             const UnevenLoads& loads) const;

  std::int64_t launch_ps() const { return launch_ps_; }  // host time of one launch under the recipe
  // Returns the slowdowns of computing and transferring while the other runs on the same GPU: measured by the
  // profile, and from the share of SMs that the dispatcher's communication kernels hold.
  sim::Overlap overlap(const Program& dispatcher) const;
  // Returns the slowdown of computing beside NCCL's collectives, such as those of parameters and gradients.
  double computing_beside_nccl() const { return computing_beside(kNcclSms); }
  const CollectiveModel& collectives() const { return collectives_; }
  double memory_seconds_per_byte() const { return memory_seconds_; }  // for a kernel that only moves bytes
  const Recipe& recipe() const { return recipe_; }

  // Adds the operations of a priced pass, `times` each, to the report of prices outside of the measured
  // range.
  void report(const Program& program, const std::vector<Op>& pass, const sim::LockstepProgram& priced,
              const GroupShapes& shapes, DomainReport& into, double times = 1) const;

  // Returns whether every dispatch and combine kernel of a program has a law that was measured on this machine.
  bool measures_exchanges(const Program& program) const;

  // Returns the kernels that the host launches for both passes of a program, without the experts' products,
  // which every dispatcher has.
  std::int64_t launches(const Program& program) const;

 private:
  // A measured dispatch or combine kernel of a library.
  struct ExchangeKernel {
    std::string key;
    EpKernelModel model;
    bool network = false;  // measured across nodes
    DomainRange ranks, tokens;
    int rows = 0;
    double beyond = 0;       // ParameterSet::beyond
    std::string unmeasured;  // source of the law where it is not from rows of the library on this network
    bool derived = false, of_kin = false;  // as ParameterSet has them
    double doubt = 1;                      // drawn factor where the law is another library's
  };

  void add_exchange_kernels(const Cluster& cluster);
  // Returns the law with the most rows that covers the operation's stages; nullptr where the profile has
  // none.
  const ExchangeKernel* kernel_of(const Program& program, const Op& op) const {
    return kernel_of(program, op, op.across_nodes);
  }
  const ExchangeKernel* kernel_of(const Program& program, const Op& op, bool across_nodes) const;
  // Whether a collective is a dispatch or combine kernel that no row of its library on this machine prices.
  bool unpublished(const Program& program, const Op& op) const;
  // Whether it is one that no row of its library on this machine or its kin prices.
  bool stands_in(const Program& program, const Op& op) const;
  std::optional<OutsideDomain> outside(const Program& program, const std::vector<Op>& pass, std::size_t index,
                                       int rank, const GroupShapes& shapes) const;

  // Prices of one operation: one value where all ranks take equally long, else one per rank.
  using Prices = std::vector<std::int64_t>;
  void price_collective(const Program& program, const std::vector<Op>& pass, std::size_t index,
                        const GroupShapes& shapes, const UnevenLoads& loads, Prices& out) const;
  void price_exchange(const Program& program, const std::vector<Op>& pass, std::size_t index,
                      const ExchangeKernel& kernel, Prices& out) const;
  void price_product(const Program& program, const Op& op, Prices& out) const;
  void price_kernel(const Program& program, const Op& op, Prices& out) const;
  double attention_seconds(const Program& program, const Op& op, const GroupShapes& shapes) const;
  double ring_bytes(const AttentionCore& core, GemmPass pass) const;
  // host seconds of the operation where it is an isolated call (Recipe::isolated_call)
  double isolated_seconds(const Op& op) const;
  // Kernels that the host launches for the operation.
  int launches_of(const Program& program, const Op& op) const;
  sim::LockstepOp lockstep_op(const Program& program, const Op& op) const;

  Recipe recipe_;
  std::string profile_name_, network_name_;
  // [library - 1][combine], most rows first; inside a domain, and across.
  std::array<std::vector<ExchangeKernel>, 2 * kExchangeLibraries.size()> kernels_of_libraries_,
      network_kernels_;
  // [library - 1]: factor on prices that no law of the library gives; 1 unless drawn.
  std::array<double, kExchangeLibraries.size()> unmeasured_ = [] {
    std::array<double, kExchangeLibraries.size()> ones;
    ones.fill(1);
    return ones;
  }();
  CollectiveModel collectives_;
  GemmModel gemms_;
  KernelModel kernels_;
  AttentionModel attention_;
  std::optional<TrainingProducts> products_;  // with a framework's recipe only
  std::int64_t launch_ps_ = 0, bare_launch_ps_ = 0, host_sync_ps_ = 0, copy_ps_ = 0;
  sim::Overlap overlap_;  // from the profile
  // SMs held by NCCL's kernels: one per channel, 16 in recipes that state it (Megatron-Bridge). Library kernels
  // hold the SMs of their programs, DeepEP 20 by default (also in the DeepSeek-V3 chunk's grids).
  static constexpr int kNcclSms = 16;
  double computing_beside(int sms) const;
  int all_sms_ = 0;
  double power_ = 1;  // power_slowdown() of the slowest GPU
  double memory_seconds_ = 0;
  double exchange_in_step_ = 1;  // kExchangeInStep
  double scan_rate_ = 0;         // FLOP/s of state-space scans
};

}  // namespace moesim::models

#include "models/costs/layer_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace moesim::models {

namespace {

// Share of the dense peak that causal flash attention reaches, forward and backward, where the profile has no
// constant of its own: FlashAttention-3 on H100 (arXiv 2407.08608, figures 5 and 6: head size 128, causal,
// 4k-16k tokens) 550-640 forward and 450-550 backward of 989 TFLOP/s.
constexpr double kAttentionForward = 0.58, kAttentionBackward = 0.48;

// Host time of one call of eager PyTorch: the low end of 11 to 18 us for small kernels in a public log
// (NVIDIA/dgxc-benchmarking). Programs of frameworks that were measured as a whole do not count calls.
constexpr double kEagerCall = 11e-6;

// The size that the collective model asks for (docs/spec.md 1.3).
double asked_bytes(const Program& program, const Op& op, int rank) {
  const bool piece_out = op.comm == CommKind::kReduceScatter || op.comm == CommKind::kReduceScatterV;
  return static_cast<double>(program.value(piece_out ? op.out : op.in, rank));
}

std::string_view name_of(ExchangeLibrary library) {
  return library == ExchangeLibrary::kDeepEp ? "DeepEP" : "HybridEP";
}

// Log standard deviations that an octave of ranks or of tokens outside of what was measured adds to a
// dispatch kernel's time: EP sizes left out were off by 16 % in the median and 44 % in the mean, decades of
// tokens by 13 % (docs/calibration.md).
constexpr double kPerRankOctave = 0.2, kPerTokenOctave = 0.04;

// Everything, where the fit saw no such quantity.
DomainRange range_of(const ParameterSet& set, std::string_view quantity) {
  const DomainRange* range = set.range(quantity);
  return range ? *range : DomainRange{std::string(quantity), 0, std::numeric_limits<double>::infinity()};
}

std::size_t slot_of(ExchangeLibrary library, bool combine) {
  return (static_cast<std::size_t>(library) - 1) * 2 + (combine ? 1 : 0);
}

}  // namespace

GroupShapes::GroupShapes(const Cluster& cluster, const Program& program, std::int64_t first_rank,
                         std::int64_t stride) {
  std::vector<std::int32_t> members;
  for (const GroupKind kind : {GroupKind::kTpEp, GroupKind::kEp, GroupKind::kTp, GroupKind::kDense}) {
    auto& shapes = shapes_[static_cast<int>(kind)];
    const int size = program.group_size(kind);
    for (int group = 0; group < program.group_count(kind); ++group) {
      members.clear();
      for (int m = 0; m < size; ++m)
        members.push_back(static_cast<std::int32_t>(first_rank + stride * program.rank_of(kind, group, m)));
      shapes.push_back(GroupShape::of(cluster, members));
    }
  }
}

GroupShapes::GroupShapes(const Cluster& cluster, const Program& program,
                         std::span<const std::int32_t> ranks) {
  std::vector<std::int32_t> members;
  for (const GroupKind kind : {GroupKind::kTpEp, GroupKind::kEp, GroupKind::kTp, GroupKind::kDense}) {
    const int size = program.group_size(kind);
    for (int group = 0; group < program.group_count(kind); ++group) {
      members.clear();
      for (int m = 0; m < size; ++m)
        members.push_back(ranks[static_cast<std::size_t>(program.rank_of(kind, group, m))]);
      shapes_[static_cast<int>(kind)].push_back(GroupShape::of(cluster, members));
    }
  }
}

UnevenLoads::UnevenLoads(const Program& program, const GroupShapes& shapes)
    : loads_(program.matrices().size() * 2) {
  for (const auto* pass : {&program.forward(), &program.backward()})
    for (const Op& op : *pass) {
      if (op.kind != OpKind::kCollective || op.matrix < 0) continue;
      auto& loads = loads_[static_cast<std::size_t>(op.matrix) * 2 + (op.transposed ? 1 : 0)];
      if (!loads.empty()) continue;
      for (int group = 0; group < program.group_count(op.group); ++group)
        loads.push_back(CollectiveModel::load_of(shapes.of(op.group, group), program.matrix(op.matrix, group),
                                                 op.transposed));
    }
}

LayerCosts::LayerCosts(const Cluster& cluster)
    : profile_name_(cluster.profile.name()),
      collectives_(cluster),
      gemms_(cluster.profile),
      kernels_(cluster.profile) {
  const Profile& profile = cluster.profile;
  const double port = cluster.gpus_per_node > 0 ? cluster.nic.bandwidth * cluster.nic.ports_per_node /
                                                      static_cast<double>(cluster.gpus_per_node)
                                                : 0;
  struct Law {
    ExchangeLibrary library;
    bool combine;
    const char* key;
  };
  // Laws of the transfer kernels alone: what a library's API adds (metadata, permutation) are operations of
  // the programs.
  static constexpr std::array<Law, 10> kLaws{
      {{ExchangeLibrary::kDeepEp, false, "ep/deepep_v1_normal_dispatch@fp8"},
       {ExchangeLibrary::kDeepEp, false, "ep/deepep_v1_normal_dispatch@bf16"},
       {ExchangeLibrary::kDeepEp, false, "ep/deepep_v2_dispatch@fp8"},
       {ExchangeLibrary::kDeepEp, false, "ep/deepep_v2_dispatch@bf16"},
       {ExchangeLibrary::kDeepEp, true, "ep/deepep_v1_normal_combine@bf16"},
       {ExchangeLibrary::kDeepEp, true, "ep/deepep_v2_combine@bf16"},
       {ExchangeLibrary::kHybridEp, false, "ep/hybridep_dispatch_kernel@bf16"},
       {ExchangeLibrary::kHybridEp, false, "ep/hybridep_dispatch_kernel@fp8"},
       {ExchangeLibrary::kHybridEp, true, "ep/hybridep_combine_kernel@bf16"},
       {ExchangeLibrary::kHybridEp, true, "ep/hybridep_combine_kernel@fp8"}}};
  for (const Law& law : kLaws)
    if (const ParameterSet* set = profile.find(law.key)) {
      kernels_of_libraries_[slot_of(law.library, law.combine)].push_back(
          {law.key, EpKernelModel(profile, law.key, port, cluster.nvlink.bandwidth),
           set->get("network_share", 0) > 0 && port > 0, range_of(*set, "ranks"), range_of(*set, "tokens"),
           set->rows, set->beyond});
    }
  for (auto& kernels : kernels_of_libraries_)
    std::stable_sort(kernels.begin(), kernels.end(),
                     [](const ExchangeKernel& a, const ExchangeKernel& b) { return a.rows > b.rows; });
  launch_ps_ = to_ps(profile.launch().kernel);
  copy_ps_ = to_ps(profile.launch().d2h_copy);
  host_sync_ps_ = std::max<std::int64_t>(0, to_ps(profile.launch().host_sync) - copy_ps_);
  const double peak =
      profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)] / profile.attention_factor();
  attention_forward_ = peak * profile.constant("attention_forward_efficiency", kAttentionForward);
  attention_backward_ = peak * profile.constant("attention_backward_efficiency", kAttentionBackward);
}

const LayerCosts::ExchangeKernel* LayerCosts::kernel_of(const Program& program, const std::vector<Op>& pass,
                                                        std::size_t index) const {
  const Op& op = pass[index];
  if (op.library == ExchangeLibrary::kNone) return nullptr;
  const auto ranks = static_cast<double>(program.group_size(op.group));
  const ExchangeKernel* outside = nullptr;
  for (const ExchangeKernel& kernel : kernels_of_libraries_[slot_of(op.library, op.transposed)]) {
    if (op.across_nodes && !kernel.network) continue;
    if (kernel.ranks.low <= ranks && ranks <= kernel.ranks.high) return &kernel;
    if (!outside) outside = &kernel;
  }
  return outside;
}

// The stages of one kernel (the network stage first, then NVLink) overlap. What travels beside the rows (ids,
// weights) is in the measured times of the rows already.
void LayerCosts::price_kernel(const Program& program, const std::vector<Op>& pass, std::size_t index,
                              const ExchangeKernel& kernel, std::int64_t* out) const {
  const Op& op = pass[index];
  const int g = program.group_size(op.group);
  const double ranks_outside = octaves_outside(kernel.ranks, g);
  for (int r = 0; r < program.ranks(); ++r) {
    const auto tokens = static_cast<double>(program.tokens[static_cast<std::size_t>(r)]);
    const double off =
        kernel.beyond == 0
            ? 1
            : std::exp(kernel.beyond * (kPerRankOctave * ranks_outside +
                                        kPerTokenOctave * octaves_outside(kernel.tokens, tokens)));
    double nvlink = 0, network = 0;
    for (std::size_t i = index; i < pass.size() && (i == index || pass[i].fused); ++i) {
      if (pass[i].name != op.name) continue;
      const auto bytes =
          static_cast<double>(std::max(program.value(pass[i].tx, r), program.value(pass[i].rx, r)));
      (pass[i].across_nodes ? network : nvlink) += bytes;
    }
    out[r] = to_ps(off * kernel.model.seconds(tokens, g, nvlink, network, op.sms));
  }
}

LayerCosts::LayerCosts(const Cluster& cluster, const ProductRecipe& recipe) : LayerCosts(cluster) {
  products_ = std::make_shared<const TrainingProducts>(cluster.profile, recipe);
  // A framework calls HybridEP through its API, whose measured times hold the metadata, the permutation and
  // the staging around the transfer; where the GPU was not measured, the one with the same links was.
  static constexpr std::array<std::pair<std::string_view, const char*>, 2> kSameLinks{
      {{"gb300", "gb200"}, {"b300-sxm", "b200-sxm"}}};
  const double port = cluster.gpus_per_node > 0 ? cluster.nic.bandwidth * cluster.nic.ports_per_node /
                                                      static_cast<double>(cluster.gpus_per_node)
                                                : 0;
  for (const bool combine : {false, true}) {
    const std::string key = combine ? "ep/hybridep_combine_api@bf16" : "ep/hybridep_dispatch_api@bf16";
    Profile holder = cluster.profile;
    if (!holder.find(key))
      for (const auto& [name, relative] : kSameLinks)
        if (name == cluster.profile.name())
          if (const Profile other = Profile::load(relative); other.find(key)) holder.set(key, other.at(key));
    const ParameterSet* set = holder.find(key);
    if (!set) continue;
    auto& kernels = kernels_of_libraries_[slot_of(ExchangeLibrary::kHybridEp, combine)];
    kernels.insert(kernels.begin(), {key, EpKernelModel(holder, key, port, cluster.nvlink.bandwidth),
                                     set->get("network_share", 0) > 0 && port > 0, range_of(*set, "ranks"),
                                     range_of(*set, "tokens"), set->rows, set->beyond});
  }
}

void LayerCosts::price_collective(const Program& program, const std::vector<Op>& pass, std::size_t index,
                                  const GroupShapes& shapes, const UnevenLoads& loads,
                                  std::int64_t* out) const {
  const Op& op = pass[index];
  if (const ExchangeKernel* kernel = kernel_of(program, pass, index)) {
    price_kernel(program, pass, index, *kernel, out);
    return;
  }
  const int g = program.group_size(op.group);
  std::array<double, 512> few;
  std::vector<double> many;
  double* seconds = few.data();
  if (g > static_cast<int>(few.size())) {
    many.resize(g);
    seconds = many.data();
  }
  // Bytes that travel inside this collective without a launch of their own.
  std::int64_t row_bytes = op.row_bytes;
  std::size_t next = index + 1;
  for (; next < pass.size() && pass[next].fused && pass[next].matrix == op.matrix; ++next)
    row_bytes += pass[next].row_bytes;
  for (int group = 0; group < program.group_count(op.group); ++group) {
    const GroupShape& shape = shapes.of(op.group, group);
    if (op.comm == CommKind::kAllToAllV) {
      collectives_.all_to_all_v(shape, loads.of(op.matrix, op.transposed, group),
                                static_cast<double>(row_bytes), {seconds, static_cast<std::size_t>(g)});
    } else {
      double time = 0;
      if (op.comm == CommKind::kAllGatherV || op.comm == CommKind::kReduceScatterV) {
        const bool gather = op.comm == CommKind::kAllGatherV;
        for (int m = 0; m < g; ++m)
          seconds[m] = static_cast<double>(
              program.value(gather ? op.in : op.out, program.rank_of(op.group, group, m)));
        const std::span<const double> pieces(seconds, static_cast<std::size_t>(g));
        time =
            gather ? collectives_.all_gather_v(shape, pieces) : collectives_.reduce_scatter_v(shape, pieces);
      } else {
        time = collectives_.seconds(simulated(op.comm), shape,
                                    asked_bytes(program, op, program.rank_of(op.group, group, 0)));
      }
      std::fill(seconds, seconds + g, time);
    }
    for (int m = 0; m < g; ++m) out[program.rank_of(op.group, group, m)] = to_ps(seconds[m]);
  }
  // A second stage of the same kernel (the NVLink fan-out behind the network) overlaps with the first.
  if (next < pass.size() && pass[next].fused) {
    std::vector<std::int64_t> stage(static_cast<std::size_t>(program.ranks()));
    price_collective(program, pass, next, shapes, loads, stage.data());
    for (int r = 0; r < program.ranks(); ++r) out[r] = std::max(out[r], stage[r]);
  }
}

PricedPass LayerCosts::price(const Program& program, const std::vector<Op>& pass, const GroupShapes& shapes,
                             const UnevenLoads& loads) const {
  PricedPass priced;
  priced.ranks = program.ranks();
  const auto R = static_cast<std::size_t>(priced.ranks);
  priced.ps.assign(pass.size() * R, 0);
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const Op& op = pass[i];
    std::int64_t* out = priced.ps.data() + i * R;
    switch (op.kind) {
      case OpKind::kCollective:
        if (!op.fused) price_collective(program, pass, i, shapes, loads, out);
        break;
      case OpKind::kKernel: {
        const bool same = program.uniform(op.read) && program.uniform(op.written);
        for (std::size_t r = 0; r < R; ++r) {
          const int rank = static_cast<int>(r);
          out[r] = same && r > 0 ? out[0]
                                 : to_ps(kernels_.seconds(
                                       op.kernel, static_cast<double>(program.value(op.read, rank)),
                                       static_cast<double>(program.value(op.written, rank)), op.launches));
        }
        break;
      }
      case OpKind::kGemm:
        for (std::size_t r = 0; r < R; ++r) {
          const auto rows = program.expert_rows(op.table, static_cast<int>(r));
          // Ranks with the same row counts (all of a dense product) cost the same.
          if (r > 0 && std::ranges::equal(rows, program.expert_rows(op.table, static_cast<int>(r) - 1))) {
            out[r] = out[r - 1];
          } else if (products_) {
            out[r] = to_ps(op.repeat * products_->grouped(rows, op.n, op.k, op.pass, op.backend));
          } else {
            out[r] =
                to_ps(op.repeat * gemms_.grouped_seconds(rows, op.n, op.k, op.dtype, op.pass, op.backend));
          }
        }
        break;
      case OpKind::kAttention:
        for (std::size_t r = 0; r < R; ++r) {
          const auto queries = static_cast<double>(program.expert_rows(op.table, static_cast<int>(r))[0]);
          const double flops = 2 * queries * static_cast<double>(op.keys) * static_cast<double>(op.n + op.k);
          // Five products backward for two forward.
          out[r] = to_ps(op.pass == GemmPass::kForward ? flops / attention_forward_
                                                       : 2.5 * flops / attention_backward_);
        }
        break;
      case OpKind::kCopyToHost:
        std::fill(out, out + R, copy_ps_);
        break;
      case OpKind::kHostWait:
        std::fill(out, out + R, host_sync_ps_);
        break;
      case OpKind::kHost:
        std::fill(out, out + R,
                  std::max<std::int64_t>(0, to_ps(kEagerCall) * op.launches - launch_ps_ * op.repeat));
        break;
      case OpKind::kAllocate:
      case OpKind::kFree:
        break;
    }
  }
  return priced;
}

std::optional<OutsideDomain> LayerCosts::outside(const Program& program, const std::vector<Op>& pass,
                                                 std::size_t index, int rank,
                                                 const GroupShapes& shapes) const {
  const Op& op = pass[index];
  if (op.kind == OpKind::kGemm) {
    const auto rows = program.expert_rows(op.table, rank);
    return products_ ? products_->grouped_outside(rows, op.n, op.k, op.pass, op.backend)
                     : gemms_.grouped_outside(rows, op.n, op.k, op.dtype, op.pass, op.backend);
  }
  if (op.kind != OpKind::kCollective) return std::nullopt;
  if (op.library == ExchangeLibrary::kNone)
    return collectives_.outside(simulated(op.comm), shapes.of(op.group, 0), asked_bytes(program, op, rank));
  const std::string price = fmt::format("{}: {} {} kernel", profile_name_, name_of(op.library),
                                        op.transposed ? "combine" : "dispatch");
  const ExchangeKernel* kernel = kernel_of(program, pass, index);
  if (!kernel)
    return OutsideDomain{price,
                         fmt::format("was not measured {}, priced as an all-to-all of its rows",
                                     op.across_nodes ? "across nodes" : "inside a node"),
                         {},
                         0};
  FarthestOutside farthest;
  farthest.try_range(&kernel->ranks, program.group_size(op.group));
  farthest.try_range(&kernel->tokens, static_cast<double>(program.tokens[static_cast<std::size_t>(rank)]));
  return farthest.of(price);
}

void LayerCosts::report(const Program& program, const std::vector<Op>& pass, const PricedPass& priced,
                        const GroupShapes& shapes, DomainReport& into, double times) const {
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const auto first = priced.ps.begin() + static_cast<std::ptrdiff_t>(i) * priced.ranks;
    const auto slowest = std::max_element(first, first + priced.ranks);
    if (*slowest > 0)
      into.add(times * static_cast<double>(*slowest) * 1e-12,
               outside(program, pass, i, static_cast<int>(slowest - first), shapes));
  }
}

}  // namespace moesim::models

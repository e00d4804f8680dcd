#include "models/costs/program_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/costs/ep_kernel.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/network.h"
#include "models/workload/placement.h"

namespace moesim::models {

void refuse_price(double seconds) {
  throw InputError(
      fmt::format("prices: found an operation of {:.3g} s, expected at most {:.0f} s: its tokens are more, "
                  "or its links slower, than any machine has",
                  seconds, kLongestSeconds));
}

namespace {

using sim::LockstepOp;

// Host time of one call of eager PyTorch: the low end of 11 to 18 us for small kernels in a public log
// (NVIDIA/dgxc-benchmarking). Programs of frameworks measured as a whole contain no calls.
constexpr double kEagerCall = 11e-6;
// FLOPs of a chunked state-space scan per clock and SM: its Triton kernels spend their time on exponentials,
// masks and on-chip memory, which grow with SMs and clock, not with the matrix units or the bandwidth (arXiv
// 2405.21060, figure 10: Mamba-2's scan takes as long as FlashAttention-2 at a sequence of 2k on A100, 37
// TFLOP/s on 108 SMs at 1.41 GHz).
constexpr double kScanFlopsPerClock = 243;

// Returns the size that the collective model expects (docs/spec.md 1.3).
double asked_bytes(const Program& program, const Op& op, int rank) {
  const bool piece_out = op.comm == CommKind::kReduceScatter || op.comm == CommKind::kReduceScatterV;
  return static_cast<double>(program.value(piece_out ? op.out : op.in, rank));
}

// Returns the whole axis where the fit has no such quantity.
DomainRange range_of(const ParameterSet& set, std::string_view quantity) {
  const DomainRange* range = set.range(quantity);
  return range ? *range : DomainRange{std::string(quantity), 0, std::numeric_limits<double>::infinity()};
}

std::size_t slot_of(ExchangeLibrary library, bool combine) {
  return (static_cast<std::size_t>(library) - 1) * 2 + (combine ? 1 : 0);
}

constexpr std::array kGroupKinds{GroupKind::kTpEp, GroupKind::kEp, GroupKind::kTp, GroupKind::kDense};

}  // namespace

GroupShapes::GroupShapes(const Cluster& cluster, const Program& program, std::int64_t first_rank,
                         std::int64_t stride) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(program.ranks()));
  for (std::size_t r = 0; r < ranks.size(); ++r)
    ranks[r] = static_cast<std::int32_t>(first_rank + stride * static_cast<std::int64_t>(r));
  add(cluster, program, ranks);
}

GroupShapes::GroupShapes(const Placement& placement, const Program& program,
                         std::span<const std::int32_t> gpus)
    : context_pair_(placement.context_pair()) {
  add(placement.cluster(), program, gpus);
  shapes_[static_cast<int>(GroupKind::kDense)] = placement.tensor();
}

bool GroupShapes::across_domains(GroupKind kind) const {
  const auto& shapes = shapes_[static_cast<int>(kind)];
  return std::any_of(shapes.begin(), shapes.end(),
                     [](const GroupShape& shape) { return shape.across_domains(); });
}

void GroupShapes::add(const Cluster& cluster, const Program& program, std::span<const std::int32_t> ranks) {
  std::vector<std::int32_t> members;
  auto meetings = std::make_shared<sim::LockstepGroups>();
  for (const GroupKind kind : kGroupKinds) {
    const int size = std::min(program.group_size(kind), program.ranks());
    for (int group = 0; group < program.group_count(kind); ++group) {
      members.clear();
      for (int m = 0; m < size; ++m)
        members.push_back(ranks[static_cast<std::size_t>(program.rank_of(kind, group, m))]);
      shapes_[static_cast<int>(kind)].push_back(GroupShape::of(cluster, members));
    }
    sim::LockstepGroup meeting;
    meeting.count = program.group_count(kind);
    for (int r = 0; r < program.ranks(); ++r) meeting.of_rank.push_back(program.group_index(kind, r));
    meetings->push_back(std::move(meeting));
  }
  meetings_ = std::move(meetings);
}

UnevenLoads::UnevenLoads(const Program& program, const GroupShapes& shapes)
    : loads_(program.matrices().size()) {
  for (const auto* pass : {&program.forward(), &program.backward()})
    for (const Op& op : *pass) {
      if (op.kind != OpKind::kCollective || op.matrix < 0) continue;
      auto& loads = loads_[static_cast<std::size_t>(op.matrix)];
      if (!loads.empty()) continue;
      for (int group = 0; group < program.group_count(op.group); ++group)
        loads.push_back(
            CollectiveModel::load_of(shapes.of(op.group, group), program.matrix(op.matrix, group)));
    }
}

ProgramPricer::ProgramPricer(const Cluster& cluster, const Recipe& recipe)
    : recipe_(recipe),
      profile_name_(cluster.profile.name()),
      network_name_(cluster.network),
      collectives_(cluster),
      gemms_(cluster.profile),
      kernels_(cluster.profile),
      attention_(cluster.profile) {
  const Profile& profile = cluster.profile;
  if (recipe.framework) products_.emplace(profile, recipe.products);
  add_exchange_kernels(cluster);
  launch_ps_ = static_cast<std::int64_t>(profile.launch().kernel * recipe.launch * 1e12);
  bare_launch_ps_ = to_ps(profile.launch().kernel);
  copy_ps_ = to_ps(profile.launch().d2h_copy);
  host_sync_ps_ = std::max<std::int64_t>(0, to_ps(profile.launch().host_sync) - copy_ps_);
  if (recipe.framework) power_ = profile.device().power_slowdown * recipe.products.slowest;
  overlap_ = {profile.overlap().compute_under_communication, profile.overlap().communication_under_compute};
  all_sms_ = profile.device().sms;
  if (const ParameterSet* law = profile.find(kExchangeInStep); law && recipe.framework)
    exchange_in_step_ = law->get("factor", 1) * law->factor;
  memory_seconds_ = 1 / (profile.device().hbm_bandwidth * profile.device().hbm_efficiency);
  scan_rate_ =
      profile.device().sms * profile.device().boost_clock * kScanFlopsPerClock / recipe.products.slowest;
}

sim::Overlap ProgramPricer::overlap(const Program& dispatcher) const {
  sim::Overlap slower = overlap_;
  int held = 0;
  for (const auto* pass : {&dispatcher.forward(), &dispatcher.backward()})
    for (const Op& op : *pass)
      if (op.kind == OpKind::kCollective) held = std::max(held, op.sms > 0 ? op.sms : kNcclSms);
  slower.compute = computing_beside(held);
  return slower;
}

double ProgramPricer::computing_beside(int sms) const {
  if (!recipe_.framework || all_sms_ == 0) return overlap_.compute;
  // A kernel that holds all SMs blocks computing, which waits.
  return std::max(overlap_.compute, static_cast<double>(all_sms_) / std::max(1, all_sms_ - sms));
}

namespace {

// A row of exchange_laws.json: the keys of a library's own laws, or another library whose place its laws take.
struct ExchangeRow {
  std::vector<ExchangeLibrary> libraries;
  ExchangeLibrary stands_in_for = ExchangeLibrary::kNone;
  std::array<std::vector<std::string>, 2> keys;  // of dispatch and combine
  std::string where, gpus, doubt;

  bool runs_on(const Profile& profile) const {
    const GpuFamily* family = gpu_family(profile.name());
    return gpus.empty() || (gpus == "amd") == (family && family->amd());
  }
};

ExchangeLibrary library_of(const JsonNode& node) {
  const auto at = std::ranges::find_if(
      kExchangeLibraries, [&](ExchangeLibrary library) { return name_of(library) == node.string(); });
  check(at != kExchangeLibraries.end(), "the library of a law of exchange_laws.json");
  return *at;
}

const std::vector<ExchangeRow>& exchange_laws() {
  static const std::vector<ExchangeRow> rows = [] {
    std::vector<ExchangeRow> read;
    const JsonNode file = JsonNode::parse(embedded_table("exchange_laws"), "exchange_laws.json");
    for (const JsonNode& node : file.find("laws")->items()) {
      JsonObject object(node);
      ExchangeRow& row = read.emplace_back();
      for (const JsonNode& library : object.at("libraries").items())
        row.libraries.push_back(library_of(library));
      if (const auto other = object.find("stands_in_for")) row.stands_in_for = library_of(*other);
      for (const bool combine : {false, true})
        if (const auto keys = object.find(combine ? "combine" : "dispatch"))
          for (const JsonNode& key : keys->items()) row.keys[combine].push_back(key.string());
      row.where = object.string("where", "");
      row.gpus = object.string("gpus", "");
      row.doubt = object.string("doubt", "");
    }
    return read;
  }();
  return rows;
}

}  // namespace

bool kernel_is_measured(const Profile& profile, ExchangeLibrary library, bool across_nodes) {
  for (const ExchangeRow& row : exchange_laws())
    for (const auto& keys : row.keys)
      for (const std::string& key : keys)
        if (row.libraries.front() == library && row.where != "framework" && row.runs_on(profile))
          if (const ParameterSet* set = profile.find(key + std::string(across_nodes ? kNetworkLaw : "")))
            if (set->rows > 0 && !set->derived) return true;
  return false;
}

void ProgramPricer::add_exchange_kernels(const Cluster& cluster) {
  const Profile& profile = cluster.profile;
  const double port = cluster.network_per_gpu();
  const auto kernel_from = [&](const std::string& key) {
    const ParameterSet& set = *profile.find(key);
    return ExchangeKernel{key,
                          EpKernelModel(profile, key, port, cluster.nvlink.bandwidth),
                          set.get("network_share", 0) > 0 && port > 0,
                          range_of(set, "ranks"),
                          range_of(set, "tokens"),
                          set.rows,
                          set.beyond,
                          set.derived ? set.source : "",
                          set.derived,
                          set.of_kin};
  };
  const auto measured = [](const ExchangeKernel& kernel) { return kernel.unmeasured.empty(); };
  const auto precedes = [&](const ExchangeKernel& a, const ExchangeKernel& b) {
    return std::pair(measured(a), a.rows) > std::pair(measured(b), b.rows);
  };
  for (const ExchangeLibrary library : kExchangeLibraries)
    if (const ParameterSet* judged = profile.find(unmeasured_kernel_key(library)))
      unmeasured_[static_cast<std::size_t>(library) - 1] = judged->factor;
  for (const bool across : {false, true})
    for (const ExchangeRow& row : exchange_laws())
      for (const bool combine : {false, true}) {
        auto& kernels = across ? network_kernels_ : kernels_of_libraries_;
        const bool own = row.stands_in_for == ExchangeLibrary::kNone, api = row.where == "framework";
        auto& laws = kernels[slot_of(own ? row.libraries.front() : row.stands_in_for, combine)];
        if (own && (!row.runs_on(profile) || (api && !recipe_.framework))) continue;
        for (const std::string& of_node : row.keys[combine]) {
          const std::string key = of_node + std::string(across ? kNetworkLaw : "");
          if (!profile.find(key)) continue;
          ExchangeKernel kernel = kernel_from(key);
          const auto at = !api                          ? std::ranges::upper_bound(laws, kernel, precedes)
                          : across && !measured(kernel) ? laws.end()
                                                        : laws.begin();
          laws.insert(at, std::move(kernel));
        }
        const auto other = std::ranges::find_if(row.libraries, [&](ExchangeLibrary library) {
          const auto& others = kernels[slot_of(library, combine)];
          const bool replaces =
              !row.gpus.empty() && row.runs_on(profile) && std::ranges::any_of(others, measured);
          return !own && !others.empty() && (laws.empty() || replaces);
        });
        if (other != row.libraries.end()) laws = kernels[slot_of(*other, combine)];
        for (ExchangeKernel& kernel : laws) {
          if (row.doubt.empty()) break;
          kernel.unmeasured = row.doubt;
          kernel.doubt = unmeasured_[static_cast<std::size_t>(row.stands_in_for) - 1];
        }
      }
}

const ProgramPricer::ExchangeKernel* ProgramPricer::kernel_of(const Program& program, const Op& op,
                                                              bool across_nodes) const {
  if (op.library == ExchangeLibrary::kNone) return nullptr;
  const auto ranks = static_cast<double>(program.group_size(op.group));
  const ExchangeKernel* outside = nullptr;
  const auto& laws = across_nodes ? network_kernels_ : kernels_of_libraries_;
  for (const ExchangeKernel& kernel : laws[slot_of(op.library, op.transposed)]) {
    if (across_nodes && !kernel.network) continue;
    if (kernel.ranks.low <= ranks && ranks <= kernel.ranks.high) return &kernel;
    if (!outside) outside = &kernel;
  }
  return outside;
}

bool ProgramPricer::unpublished(const Program& program, const Op& op) const {
  if (op.library == ExchangeLibrary::kNone) return false;
  const ExchangeKernel* kernel = kernel_of(program, op);
  return !kernel || !kernel->unmeasured.empty();
}

bool ProgramPricer::stands_in(const Program& program, const Op& op) const {
  if (op.library == ExchangeLibrary::kNone) return false;
  const ExchangeKernel* kernel = kernel_of(program, op);
  if (!kernel || kernel->unmeasured.empty()) return !kernel;
  const bool kin_network = op.across_nodes && kernel->derived && !network_name_.empty() &&
                           has_slower_kin(network_name_, kernel->key);
  return !kernel->of_kin && !kin_network;
}

bool ProgramPricer::measures_exchanges(const Program& program) const {
  // The first stage of a kernel has the price of all.
  const auto measured = [&](const Op& op) {
    return op.kind != OpKind::kCollective || op.fused || !unpublished(program, op);
  };
  return std::ranges::all_of(program.forward(), measured) &&
         std::ranges::all_of(program.backward(), measured);
}

double ProgramPricer::isolated_seconds(const Op& op) const {
  if (!op.across_nodes) return 0;
  switch (op.library) {
    case ExchangeLibrary::kDeepEp:
    case ExchangeLibrary::kDeepEpV2:
      return recipe_.isolated_call;
    case ExchangeLibrary::kUccl:
      return recipe_.isolated_uccl_call;
    case ExchangeLibrary::kMori:  // its calls inside a step were not measured: as DeepEP's
      return recipe_.isolated_call;
    case ExchangeLibrary::kNone:
    case ExchangeLibrary::kHybridEp:
    case ExchangeLibrary::kNcclEp:
      break;
  }
  return 0;
}

// The stages of one kernel (the network stage first, then NVLink) overlap. The measured times of rows already
// include data beside the rows (ids, weights).
//
// The links of a domain larger than a node are at least as fast as the network that they replace, so the
// kernel takes no longer than over smaller domains and the network between them, by the law measured there.
// This bound holds inside a node too, unless the kernels of the domain were measured.
void ProgramPricer::price_exchange(const Program& program, const std::vector<Op>& pass, std::size_t index,
                                   const ExchangeKernel& kernel, Prices& out) const {
  const Op& op = pass[index];
  const int g = program.group_size(op.group);
  const auto& smaller = program.smaller_domains();
  const ExchangeKernel* over_network = smaller.empty() ? nullptr : kernel_of(program, op, true);
  out.resize(static_cast<std::size_t>(program.ranks()));
  for (int r = 0; r < program.ranks(); ++r) {
    const auto tokens = static_cast<double>(program.tokens[static_cast<std::size_t>(r)]);
    const auto seconds = [&](const ExchangeKernel& by, double nvlink, double network) {
      const double off =
          by.beyond == 0 ? 1 : std::exp(by.beyond * kernel_doubt(by.ranks, by.tokens, g, tokens));
      return off * by.doubt * by.model.seconds(tokens, g, nvlink, network, op.sms);
    };
    double nvlink = 0, network = 0;
    for (std::size_t i = index; i < pass.size() && (i == index || pass[i].fused); ++i) {
      if (pass[i].name != op.name) continue;
      const auto bytes =
          static_cast<double>(std::max(program.value(pass[i].tx, r), program.value(pass[i].rx, r)));
      (pass[i].across_nodes ? network : nvlink) += bytes;
    }
    double shortest = seconds(kernel, nvlink, network);
    if (over_network)
      for (const StagedRows& rows : smaller) {
        if (rows.in_host && kernel.unmeasured.empty()) continue;
        const auto of = [&](const std::vector<std::int64_t>& all) {
          return static_cast<double>(all[static_cast<std::size_t>(r)] * op.row_bytes);
        };
        shortest = std::min(shortest, seconds(*over_network, of(rows.nvlink), of(rows.network)));
      }
    out[static_cast<std::size_t>(r)] = to_ps(shortest);
  }
}

void ProgramPricer::price_collective(const Program& program, const std::vector<Op>& pass, std::size_t index,
                                     const GroupShapes& shapes, const UnevenLoads& loads, Prices& out) const {
  const Op& op = pass[index];
  if (const ExchangeKernel* kernel = kernel_of(program, op)) {
    price_exchange(program, pass, index, *kernel, out);
    return;
  }
  const auto uniform_seconds = [&](int group, int rank) {
    return collectives_.seconds(simulated(op.comm), shapes.of(op.group, group),
                                asked_bytes(program, op, rank));
  };
  if (op.group == GroupKind::kDense) {
    double slowest = 0;
    for (const GroupShape& shape : shapes.all(op.group))
      slowest =
          std::max(slowest, collectives_.seconds(simulated(op.comm), shape, asked_bytes(program, op, 0)));
    out.assign(1, to_ps(slowest));
    return;
  }
  const int g = program.group_size(op.group);
  out.resize(static_cast<std::size_t>(program.ranks()));
  std::array<double, 512> few;
  std::vector<double> many;
  std::span<double> seconds(few.data(),
                            static_cast<std::size_t>(g) <= few.size() ? static_cast<std::size_t>(g) : 0);
  if (seconds.empty()) {
    many.resize(static_cast<std::size_t>(g));
    seconds = many;
  }
  // Bytes that travel inside this collective without a launch of their own.
  std::int64_t row_bytes = op.row_bytes;
  std::size_t next = index + 1;
  for (; next < pass.size() && pass[next].fused && pass[next].matrix == op.matrix; ++next)
    row_bytes += pass[next].row_bytes;
  // A dispatch kernel without measurements is an all-to-all of its rows, with a drawn factor.
  const double give =
      op.library == ExchangeLibrary::kNone ? 1 : unmeasured_[static_cast<std::size_t>(op.library) - 1];
  for (int group = 0; group < program.group_count(op.group); ++group) {
    const GroupShape& shape = shapes.of(op.group, group);
    if (op.comm == CommKind::kAllToAllV) {
      collectives_.all_to_all_v(shape, loads.of(op.matrix, group), static_cast<double>(row_bytes), seconds);
    } else {
      double time = 0;
      if (op.comm == CommKind::kAllGatherV || op.comm == CommKind::kReduceScatterV) {
        const bool gather = op.comm == CommKind::kAllGatherV;
        for (int m = 0; m < g; ++m)
          seconds[static_cast<std::size_t>(m)] = static_cast<double>(
              program.value(gather ? op.in : op.out, program.rank_of(op.group, group, m)));
        time = gather ? collectives_.all_gather_v(shape, seconds)
                      : collectives_.reduce_scatter_v(shape, seconds);
      } else {
        time = uniform_seconds(group, program.rank_of(op.group, group, 0));
      }
      std::fill(seconds.begin(), seconds.end(), time);
    }
    for (int m = 0; m < g; ++m)
      out[static_cast<std::size_t>(program.rank_of(op.group, group, m))] =
          to_ps(give * seconds[static_cast<std::size_t>(m)]);
  }
  // A second stage of the same kernel (the NVLink fan-out after the network) overlaps with the first.
  if (next < pass.size() && pass[next].fused) {
    Prices stage;
    price_collective(program, pass, next, shapes, loads, stage);
    for (std::size_t r = 0; r < out.size(); ++r) out[r] = std::max(out[r], stage[stage.size() == 1 ? 0 : r]);
  }
}

void ProgramPricer::price_product(const Program& program, const Op& op, Prices& out) const {
  if (op.backend == GemmBackend::kDense) {
    const std::int64_t m = program.expert_rows(op.table, 0)[0];
    const double seconds = !products_ ? gemms_.seconds(turned({m, op.n, op.k}, op.pass), op.dtype)
                           : op.plain ? products_->plain(m, op.n, op.k, op.pass)
                                      : products_->dense(m, op.n, op.k, op.pass);
    out.assign(1, to_ps(op.repeat * seconds));
    return;
  }
  out.resize(static_cast<std::size_t>(program.ranks()));
  for (std::size_t r = 0; r < out.size(); ++r) {
    const auto rows = program.expert_rows(op.table, static_cast<int>(r));
    // Ranks with equal row counts cost the same.
    if (r > 0 && std::ranges::equal(rows, program.expert_rows(op.table, static_cast<int>(r) - 1)))
      out[r] = out[r - 1];
    else if (products_)
      out[r] = to_ps(op.repeat * products_->grouped(rows, op.n, op.k, op.pass, op.backend));
    else
      out[r] = to_ps(op.repeat * gemms_.grouped_seconds(rows, op.n, op.k, op.dtype, op.pass, op.backend));
  }
}

void ProgramPricer::price_kernel(const Program& program, const Op& op, Prices& out) const {
  const double traffic = program.compulsory_bytes ? recipe_.traffic : 1;
  const auto ps = [&](int rank) {
    return static_cast<std::int64_t>(
        static_cast<double>(
            to_ps(kernels_.seconds(op.kernel, static_cast<double>(program.value(op.read, rank)),
                                   static_cast<double>(program.value(op.written, rank)), op.launches))) *
        traffic);
  };
  if (program.uniform(op.read) && program.uniform(op.written)) {
    out.assign(1, ps(0));
    return;
  }
  out.resize(static_cast<std::size_t>(program.ranks()));
  for (std::size_t r = 0; r < out.size(); ++r) out[r] = ps(static_cast<int>(r));
}

double ProgramPricer::ring_bytes(const AttentionCore& core, GemmPass pass) const {
  // Keys and values that context-parallel ranks pass on in a step of their ring, with their gradients in
  // backward.
  const auto columns = static_cast<double>(core.kv_heads * (core.score_dim + core.value_dim));
  return static_cast<double>(core.queries) * columns * kBf16Bytes * (pass == GemmPass::kForward ? 1 : 2);
}

double ProgramPricer::attention_seconds(const Program& program, const Op& op,
                                        const GroupShapes& shapes) const {
  const AttentionCore& core = program.attention(op.table);
  AttentionCall call;
  call.queries = static_cast<double>(core.queries);
  call.seq = core.seq;
  call.cp = core.cp;
  call.heads = core.heads;
  call.score_dim = core.score_dim;
  call.value_dim = core.value_dim;
  call.window = core.window;
  call.chunked = core.chunked;
  call.fp8 = core.fp8;
  call.unfused = core.unfused;
  call.dropout = core.dropout;
  const double computing = power_ * attention_.seconds(call, op.pass);
  if (core.cp == 1) return computing;
  // A ring: while a rank works on one peer's keys and values, the next peer's travel.
  const double step =
      collectives_.seconds(sim::CollectiveOp::send_recv, shapes.context_pair(), ring_bytes(core, op.pass));
  const auto cp = static_cast<double>(core.cp);
  return computing / cp + (cp - 1) * std::max(computing / cp, step);
}

int ProgramPricer::launches_of(const Program& program, const Op& op) const {
  if (program.compulsory_bytes ? recipe_.dispatcher_graphs : recipe_.dense_graphs) return 0;
  const bool counted = op.kind == OpKind::kKernel || op.kind == OpKind::kGemm ||
                       op.kind == OpKind::kAttention || op.kind == OpKind::kScan;
  const int own = counted ? op.launches : 1;
  if (!recipe_.framework) return own;
  // Host time of an isolated call, in launches.
  if (const double alone = isolated_seconds(op); alone > 0 && launch_ps_ > 0)
    return std::max(own, recipe_.kernels_per_operation) + static_cast<int>(to_ps(alone) / launch_ps_);
  const int conversions = products_->conversions();
  if (!program.compulsory_bytes) {
    const bool converts = op.kind == OpKind::kGemm && !op.plain && op.pass != GemmPass::kWgrad;
    return (own + (converts ? conversions : 0)) * recipe_.kernels_per_operation;
  }
  int launches = std::max(own, recipe_.kernels_per_operation);
  if (op.kind != OpKind::kGemm || op.backend == GemmBackend::kBlockSparse) return launches;
  // Grouped linear layers of Transformer Engine launch one product for every local expert, and convert its rows;
  // loops do so too. Batched products and torch._grouped_mm are one launch beside their conversions.
  if (op.backend == GemmBackend::kBatched || op.backend == GemmBackend::kGroupedMm)
    return std::max(launches, own + conversions);
  return std::max(launches, static_cast<int>(program.expert_rows(op.table, 0).size()) * (1 + conversions));
}

std::int64_t ProgramPricer::launches(const Program& program) const {
  std::int64_t all = 0;
  for (const auto* pass : {&program.forward(), &program.backward()})
    for (const Op& op : *pass)
      if (op.category != sim::Category::expert && !op.fused && op.kind != OpKind::kAllocate &&
          op.kind != OpKind::kFree)
        all += launches_of(program, op);
  return all;
}

LockstepOp ProgramPricer::lockstep_op(const Program& program, const Op& op) const {
  using Kind = LockstepOp::Kind;
  LockstepOp out;
  out.category = op.category;
  out.stream = op.stream == Stream::kHost ? 0 : static_cast<std::uint8_t>(op.stream);
  out.after = op.after;
  out.launches = launches_of(program, op);
  switch (op.kind) {
    case OpKind::kCollective:
      out.kind = op.fused ? Kind::nothing : Kind::transfer;
      if (!op.fused) out.group = static_cast<std::int8_t>(op.group);
      break;
    case OpKind::kKernel:
    case OpKind::kGemm:
    case OpKind::kAttention:
    case OpKind::kScan:
      out.kind = Kind::compute;
      break;
    case OpKind::kCopyToHost:
      out.kind = Kind::delay;
      break;
    case OpKind::kHostWait:
    case OpKind::kHost:
      out.kind = recipe_.dispatcher_graphs ? Kind::nothing : Kind::host;
      break;
    case OpKind::kAllocate:
    case OpKind::kFree:
      out.kind = Kind::nothing;
      break;
  }
  return out;
}

sim::LockstepProgram ProgramPricer::price(const Program& program, const std::vector<Op>& pass,
                                          const GroupShapes& shapes, const UnevenLoads& loads) const {
  sim::LockstepProgram priced;
  priced.groups = shapes.meetings();
  priced.ops.reserve(pass.size());
  priced.ps.reserve(pass.size() * static_cast<std::size_t>(program.ranks()) / 2);
  Prices prices;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const Op& op = pass[i];
    prices.assign(1, 0);
    switch (op.kind) {
      case OpKind::kCollective:
        if (!op.fused) price_collective(program, pass, i, shapes, loads, prices);
        if ((op.category == sim::Category::dispatch || op.category == sim::Category::combine) &&
            shapes.across_domains(op.group))
          for (std::int64_t& ps : prices)
            ps = static_cast<std::int64_t>(static_cast<double>(ps) * exchange_in_step_);
        if (recipe_.unpublished_kernel != 1 && !op.fused && stands_in(program, op))
          for (std::int64_t& ps : prices)
            ps = std::llround(static_cast<double>(ps) * recipe_.unpublished_kernel);
        break;
      case OpKind::kKernel:
        price_kernel(program, op, prices);
        break;
      case OpKind::kGemm:
        price_product(program, op, prices);
        break;
      case OpKind::kAttention:
        prices[0] = to_ps(attention_seconds(program, op, shapes));
        break;
      case OpKind::kScan:
        if (scan_rate_ <= 0)
          throw InputError("profile " + profile_name_ +
                           ": found no device.boost_clock, expected one: scans of state-space layers are "
                           "priced from it");
        prices[0] = to_ps(static_cast<double>(op.flops) / scan_rate_);
        break;
      case OpKind::kCopyToHost:
        prices[0] = copy_ps_;
        break;
      case OpKind::kHostWait:
        prices[0] = host_sync_ps_;
        break;
      case OpKind::kHost:
        prices[0] = std::max<std::int64_t>(0, to_ps(kEagerCall) * op.launches - bare_launch_ps_ * op.repeat);
        break;
      case OpKind::kAllocate:
      case OpKind::kFree:
        break;
    }
    if (std::adjacent_find(prices.begin(), prices.end(), std::not_equal_to<>()) == prices.end())
      prices.resize(1);
    LockstepOp out = lockstep_op(program, op);
    if (op.partial && out.kind != LockstepOp::Kind::nothing) {
      const std::int64_t same = prices[0];
      if (prices.size() == 1) prices.assign(static_cast<std::size_t>(program.ranks()), same);
      for (int r = 0; r < program.ranks(); ++r)
        if (!program.issues(op, r)) prices[static_cast<std::size_t>(r)] = -1;
      out.partial = true;
    }
    out.first = static_cast<std::uint32_t>(priced.ps.size());
    out.step = prices.size() > 1 ? 1 : 0;
    priced.ps.insert(priced.ps.end(), prices.begin(), prices.end());
    priced.ops.push_back(out);
  }
  return priced;
}

std::optional<OutsideDomain> ProgramPricer::outside(const Program& program, const std::vector<Op>& pass,
                                                    std::size_t index, int rank,
                                                    const GroupShapes& shapes) const {
  const Op& op = pass[index];
  if (op.kind == OpKind::kGemm) {
    const auto rows = program.expert_rows(op.table, rank);
    if (op.backend == GemmBackend::kDense)
      return products_ ? products_->outside({rows[0], op.n, op.k}, op.pass, op.plain)
                       : gemms_.outside(turned({rows[0], op.n, op.k}, op.pass), op.dtype);
    return products_ ? products_->grouped_outside(rows, op.n, op.k, op.pass, op.backend)
                     : gemms_.grouped_outside(rows, op.n, op.k, op.dtype, op.pass, op.backend);
  }
  if (op.unmeasured) {
    const bool scan = op.kind == OpKind::kScan;
    OutsideDomain guess;
    guess.price =
        fmt::format("{}: {}", profile_name_, scan ? "a scan other than Mamba-2's" : "sparse attention");
    guess.why =
        fmt::format("was not measured, priced at the rate of {}", scan ? "Mamba-2's" : "dense attention");
    return guess;
  }
  if (op.kind == OpKind::kAttention) {
    const AttentionCore& core = program.attention(op.table);
    if (core.cp == 1) return std::nullopt;
    return collectives_.outside(sim::CollectiveOp::send_recv, shapes.context_pair(),
                                ring_bytes(core, op.pass));
  }
  if (op.kind != OpKind::kCollective) return std::nullopt;
  if (op.library == ExchangeLibrary::kNone)
    return collectives_.outside(
        simulated(op.comm),
        shapes.of(op.group, op.group == GroupKind::kDense ? 0 : program.group_index(op.group, rank)),
        asked_bytes(program, op, rank));
  const std::string price = fmt::format("{}: {} {} kernel", profile_name_, name_of(op.library),
                                        op.transposed ? "combine" : "dispatch");
  const ExchangeKernel* kernel = kernel_of(program, op);
  const std::string where = op.across_nodes
                                ? (network_name_.empty() ? "across nodes" : "on network " + network_name_)
                                : "inside a node";
  if (unpublished(program, op)) {
    OutsideDomain guess;
    guess.price = price;
    guess.why = fmt::format("was not measured {}, priced {}", where,
                            kernel ? "as " + kernel->unmeasured : "as an all-to-all of its rows");
    guess.drawn = true;  // by the law, or by unmeasured_
    guess.exchange = true;
    guess.no_rows = !kernel;
    return guess;
  }
  FarthestOutside farthest;
  farthest.try_range(&kernel->ranks, program.group_size(op.group));
  farthest.try_range(&kernel->tokens, static_cast<double>(program.tokens[static_cast<std::size_t>(rank)]));
  return farthest.of(price);
}

void ProgramPricer::report(const Program& program, const std::vector<Op>& pass,
                           const sim::LockstepProgram& priced, const GroupShapes& shapes, DomainReport& into,
                           double times) const {
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const LockstepOp& op = priced.ops[i];
    std::size_t slowest = 0;
    for (std::size_t r = 1; op.step > 0 && r < static_cast<std::size_t>(program.ranks()); ++r)
      if (priced.at(op, r) > priced.at(op, slowest)) slowest = r;
    if (const std::int64_t ps = priced.at(op, slowest); ps > 0)
      into.add(times * static_cast<double>(ps) * 1e-12,
               outside(program, pass, i, static_cast<int>(slowest), shapes));
  }
}

}  // namespace moesim::models

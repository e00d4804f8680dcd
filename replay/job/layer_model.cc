#include "replay/job/layer_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/costs/program_prices.h"
#include "models/programs/layer_program.h"
#include "replay/recording/gradients.h"

namespace moesim::replay {

namespace {

using models::Op;
using models::OpKind;

constexpr std::int64_t kMostProbabilityBytes = 8;  // per row: one number, at most fp64
// Bytes per parameter for adding a bf16 gradient to its float32 sum in a separate pass, as the recorders'
// unfused code does; the pass that made the gradient wrote it.
constexpr double kAccumulationRead = 6, kAccumulationWritten = 4;
// Bytes per element of the hidden state that the recorders' unfused code moves in the dense part of a layer
// besides the modelled kernels. Forward, kernel by kernel: two norms with float32 intermediates (36 each),
// rotary embeddings (25), residuals with dropout (20), copies that split the projections and repeat keys and
// values (20). Backward follows from the segments between layers of three runs at 4,096 tokens, where the GPU
// is the bound and not the host, on ranks that wait for others.
constexpr double kEagerForward = 137, kEagerBackward = 176;
// Likewise per logit of the loss, besides a fused cross entropy: the conversion to float32, its largest, the
// difference, the exponentials, their sum and the quotient; backward the product with the gradient and the
// conversion back.
constexpr double kEagerLossForward = 34, kEagerLossBackward = 10;
// The embedding's backward kernel processes the tokens sequentially in every block of columns (last segment
// of the first stage against that of others, at 4,096 tokens against 1,024).
constexpr double kEmbeddingTokenUs = 0.87;

// A pass of a program cut at its collectives.
struct Cut {
  std::vector<std::vector<std::size_t>> segments{1};  // operations of each
  std::vector<std::size_t> calls;
};

Cut cut(const std::vector<Op>& ops) {
  Cut out;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::kAllocate || ops[i].kind == OpKind::kFree) continue;
    if (ops[i].kind != OpKind::kCollective) {
      out.segments.back().push_back(i);
    } else if (!ops[i].fused) {  // a fused one travels inside the previous one
      out.calls.push_back(i);
      out.segments.emplace_back();
    }
  }
  return out;
}

GroupKind group_of(models::GroupKind group) {
  if (group == models::GroupKind::kTpEp) return GroupKind::tp_expert;
  return group == models::GroupKind::kTp ? GroupKind::tp : GroupKind::expert;
}

// Returns where a program's calls begin in those of a step, layer by layer, with nothing but calls over TP
// outside; empty where they do not make the step.
std::vector<std::size_t> starts_in(const Step& step, const std::vector<Op>& ops, const Cut& made,
                                   const JobModel& job) {
  // Without tensor parallelism recorders use either name for the ranks of a TP x EP group.
  const auto whose = [&](GroupKind group) {
    return job.topology.tp == 1 && group == GroupKind::tp_expert ? GroupKind::expert : group;
  };
  const std::size_t calls = made.calls.size();
  const auto program_at = [&](std::size_t at) {
    if (calls == 0 || at + calls > step.calls.size()) return false;
    for (std::size_t c = 0; c < calls; ++c) {
      const Op& op = ops[made.calls[c]];
      const Call& call = step.calls[at + c];
      if (call.op != simulated(op.comm) || whose(call.group) != whose(group_of(op.group))) return false;
    }
    return true;
  };
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < step.calls.size();) {
    if (program_at(at)) {
      starts.push_back(at);
      at += calls;
    } else if (step.calls[at].group == GroupKind::tp && job.topology.tp > 1) {
      ++at;
    } else {
      return {};
    }
  }
  return static_cast<int>(starts.size()) == job.layers_per_stage() ? starts : std::vector<std::size_t>{};
}

// The program that is the same for all dispatchers, priced, with the time of the recorders' eager code
// besides its kernels.
struct DensePart {
  models::Program program;
  std::array<sim::LockstepProgram, 2> prices;
  std::array<double, 2> eager_us;
};

// Returns the time of the operations of a priced pass on one rank without its calls, in sequence, with
// `launch_us` per launch: until host and GPU are both done. `beside_us` of the GPU, spread over the
// operations, are further kernels between them.
double run_us(const std::vector<Op>& ops, const sim::LockstepProgram& priced,
              const std::vector<std::size_t>& chosen, int rank, double launch_us, double beside_us = 0) {
  sim::LockstepProgram alone;
  std::int32_t last = -1;  // on the GPU
  for (const std::size_t i : chosen) {
    sim::LockstepOp op = priced.ops[i];
    if (op.kind == sim::LockstepOp::Kind::nothing || op.kind == sim::LockstepOp::Kind::transfer ||
        !priced.runs(op, static_cast<std::size_t>(rank)))
      continue;
    // A device queue and a host: a host wait covers everything launched.
    op.stream = 0;
    op.group = -1;
    op.launches = ops[i].launches;
    op.after = {ops[i].kind == OpKind::kHostWait ? last : -1, -1};
    op.first = static_cast<std::uint32_t>(alone.ps.size());
    op.step = 0;
    op.partial = false;
    alone.ps.push_back(priced.at(priced.ops[i], static_cast<std::size_t>(rank)));
    if (sim::LockstepProgram::on_device(op.kind)) last = static_cast<std::int32_t>(alone.ops.size());
    alone.ops.push_back(op);
  }
  std::vector<std::size_t> on_device;
  for (const sim::LockstepOp& op : alone.ops)
    if (sim::LockstepProgram::on_device(op.kind)) on_device.push_back(op.first);
  for (const std::size_t at : on_device)
    alone.ps[at] += sim::Time::from_us(beside_us / static_cast<double>(on_device.size())).ps();
  sim::Lockstep clocks(1, {sim::Time::from_us(launch_us).ps(), {}});
  clocks.run({&alone});
  return sim::Time::from_ps(std::max(clocks.end(), clocks.host()[0])).us();
}

models::LayerContext context_of(const JobModel& job) {
  models::LayerContext context;
  context.model = &job.architecture;
  context.parallel = job.topology.parallel();
  context.parallel.micro_batch = job.micro_batch;
  context.parallel.seq = job.seq;
  context.tokens = job.tokens();
  context.topk = job.architecture.topk;
  context.router = models::DType::kBf16;
  return context;
}

models::Program program_of(const JobModel& job, const models::DispatcherSpec& spec, int gpus_per_node) {
  const auto dispatcher = models::make_dispatcher(spec);
  const models::MoeLayer layer = job.moe_layer(gpus_per_node);
  if (const auto rule = models::rule_against(*dispatcher, layer))
    throw InputError(fmt::format("{}: dispatcher {}: {}", spec.origin, spec.text(), *rule));
  return dispatcher->build(layer);
}

}  // namespace

struct LayerModel::State {
  State(const JobModel& model, const models::DispatcherSpec& spec, const models::Cluster& on)
      : job(model),
        cluster(on),
        costs(on),
        program(program_of(model, spec, on.gpus_per_node)),
        shapes(on, program),
        loads(program, shapes),
        cuts{cut(program.forward()), cut(program.backward())},
        prices{costs.price(program, program.forward(), shapes, loads),
               costs.price(program, program.backward(), shapes, loads)} {
    const models::KernelModel kernels(on.profile);
    const auto moving_us = [&](double read, double written) {
      return kUsPerSecond * kernels.seconds(models::KernelClass::kElementwise, read, written);
    };
    const models::Architecture& a = job.architecture;
    const auto tokens = static_cast<double>(job.tokens()), hidden = static_cast<double>(a.hidden),
               words = static_cast<double>(a.vocabulary);
    const double experts =
        static_cast<double>(stage_elements(a, job.topology).expert) / job.layers_per_stage();
    accumulation_us = moving_us(kAccumulationRead * experts, kAccumulationWritten * experts);
    const models::LayerContext context = context_of(job);
    const auto eager_us = [&](double bytes, double elements) {
      return moving_us(bytes / 2 * elements, bytes / 2 * elements);
    };
    add_dense(models::before_experts(context, {.ffn = models::LayerKind::Ffn::kMoe}),
              {eager_us(kEagerForward, tokens * hidden), eager_us(kEagerBackward, tokens * hidden)});
    // The table's gradient is cleared before rows are added to it.
    add_dense(models::embedding_program(context),
              {0, kEmbeddingTokenUs * tokens + moving_us(0, words * hidden * 2)});
    add_dense(models::head_program(context),
              {eager_us(kEagerLossForward, tokens * words), eager_us(kEagerLossBackward, tokens * words)});
  }

  void add_dense(models::Program made, const std::array<double, 2>& eager_us) {
    const models::UnevenLoads none(made, shapes);
    dense.push_back({std::move(made), {}, eager_us});
    DensePart& part = dense.back();
    part.prices = {costs.price(part.program, part.program.forward(), shapes, none),
                   costs.price(part.program, part.program.backward(), shapes, none)};
  }

  const std::vector<Op>& ops(Pass pass) const {
    return pass == Pass::forward ? program.forward() : program.backward();
  }
  const Cut& cut_of(Pass pass) const { return cuts[static_cast<std::size_t>(pass)]; }

  // Returns prices on the dispatch group that starts at `first`; groups with equal shapes share them.
  const sim::LockstepProgram& prices_at(Pass pass, int first) const {
    const int places = std::max(1, cluster.nvlink.domain);
    // A group's start within its NVLink domain determines its shape; the first group of each kind is priced.
    const std::pair key{static_cast<int>(pass), first % places};
    const auto at = group_prices.find(key);
    if (at != group_prices.end()) return at->second;
    const models::GroupShapes there(cluster, program, first);
    const models::UnevenLoads loads_there(program, there);
    return group_prices.emplace(key, costs.price(program, ops(pass), there, loads_there)).first->second;
  }

  const JobModel& job;
  models::Cluster cluster;
  double accumulation_us = 0;  // of the gradients of a rank's experts in one layer
  models::ProgramPricer costs;
  models::Program program;
  models::GroupShapes shapes;
  models::UnevenLoads loads;
  std::array<Cut, 2> cuts;
  std::array<sim::LockstepProgram, 2> prices;
  std::vector<DensePart> dense;  // by LayerModel::Dense
  mutable std::map<std::pair<int, int>, sim::LockstepProgram> group_prices;
};

LayerModel::LayerModel(const JobModel& job, const models::DispatcherSpec& dispatcher,
                       const models::Cluster& cluster) {
  if (job.topology.world() > cluster.ranks())
    throw InputError(SourcePlace{}, fmt::format("a job of {} ranks", job.topology.world()),
                     fmt::format("at most the {} GPUs of cluster {}", cluster.ranks(), cluster.name));
  state_ = std::make_unique<State>(job, dispatcher, cluster);
}
LayerModel::~LayerModel() = default;
LayerModel::LayerModel(LayerModel&&) noexcept = default;

const JobModel& LayerModel::job() const { return state_->job; }
std::size_t LayerModel::calls(Pass pass) const { return state_->cut_of(pass).calls.size(); }

bool LayerModel::has_experts(Pass pass, std::size_t segment) const {
  return launches(pass, segment, Part::experts) > 0;
}

int LayerModel::launches(Pass pass, std::size_t segment, Part part) const {
  int count = 0;
  for (const std::size_t i : state_->cut_of(pass).segments.at(segment)) {
    const Op& op = state_->ops(pass)[i];
    if ((op.category == sim::Category::expert) != (part == Part::experts)) continue;
    count += op.kind == OpKind::kHostWait || op.kind == OpKind::kHost ? 0 : op.launches;
  }
  return count;
}

double LayerModel::segment_us(Pass pass, std::size_t segment, Part part, int expert_rank,
                              double launch_us) const {
  std::vector<std::size_t> chosen;
  for (const std::size_t i : state_->cut_of(pass).segments.at(segment))
    if ((state_->ops(pass)[i].category == sim::Category::expert) == (part == Part::experts))
      chosen.push_back(i);
  // Ranks of a tensor-parallel group do the same.
  const double us = run_us(state_->ops(pass), state_->prices[static_cast<std::size_t>(pass)], chosen,
                           expert_rank * state_->job.topology.tp, launch_us);
  if (pass == Pass::backward && part == Part::experts && has_experts(pass, segment))
    return us + state_->accumulation_us;
  return us;
}

double LayerModel::dense_us(Dense part, Pass pass, double launch_us) const {
  const DensePart& dense = state_->dense[static_cast<std::size_t>(part)];
  const auto& ops = pass == Pass::forward ? dense.program.forward() : dense.program.backward();
  std::vector<std::size_t> all(ops.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const auto p = static_cast<std::size_t>(pass);
  return run_us(ops, dense.prices[p], all, 0, launch_us, dense.eager_us[p]);
}

double LayerModel::products_us(Dense part, Pass pass) const {
  const DensePart& dense = state_->dense[static_cast<std::size_t>(part)];
  const auto& ops = pass == Pass::forward ? dense.program.forward() : dense.program.backward();
  const sim::LockstepProgram& prices = dense.prices[static_cast<std::size_t>(pass)];
  double us = 0;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].kind == OpKind::kGemm || ops[i].kind == OpKind::kAttention)
      us += sim::Time::from_ps(prices.at(prices.ops[i], 0)).us();
  return us;
}

std::vector<std::size_t> LayerModel::layer_starts(Pass pass, const Step& step) const {
  const auto layers = static_cast<std::size_t>(job().layers_per_stage());
  std::vector<std::size_t> starts = starts_in(step, state_->ops(pass), state_->cut_of(pass), job());
  if (starts.empty() && calls(pass) > 0 && step.calls.size() == layers * calls(pass))
    for (std::size_t l = 0; l < layers; ++l) starts.push_back(l * calls(pass));
  if (starts.empty())
    throw InputError(fmt::format(
        "found {} calls in a {} step of {} layers, expected {} of the recorded dispatcher in each: {}",
        step.calls.size(), name(step.kind), layers, calls(pass),
        step.calls.empty() ? "a recorder that replaces the results of a collective loses its backward calls"
                           : "layers cannot be told apart"));
  return starts;
}

Call LayerModel::call(Pass pass, std::size_t index, int rank) const {
  const std::size_t i = state_->cut_of(pass).calls.at(index);
  const Op& op = state_->ops(pass)[i];
  const Coordinates at = state_->job.topology.of(rank);
  const int member = at.tp + state_->job.topology.tp * at.expert;  // of the dispatch group
  Call out;
  out.source = op.name;
  out.op = simulated(op.comm);
  out.group = group_of(op.group);
  out.rows = state_->program.value(op.in, member);
  // In elements; rows of several types, such as fp8 with its scales, stay in bytes.
  const std::int64_t row_bytes = op.row_bytes > 0 && out.rows % op.row_bytes == 0 ? op.row_bytes : 0;
  const int size = models::bytes_of(op.dtype);
  const std::int64_t whole = row_bytes > 0 ? row_bytes : out.rows;
  out.element_bytes = whole % size == 0 ? size : 1;
  out.row_elements = row_bytes > 0 ? row_bytes / out.element_bytes : 1;
  out.rows /= row_bytes > 0 ? row_bytes : out.element_bytes;
  out.probabilities = is_exchange(out) && op.row_bytes <= kMostProbabilityBytes;
  const sim::LockstepProgram& there = state_->prices_at(pass, rank - member);
  out.modelled_us = sim::Time::from_ps(there.at(there.ops[i], static_cast<std::size_t>(member))).us();
  out.category = op.category;
  return out;
}

bool LayerModel::same_call(Pass pass, std::size_t index, const LayerModel& other,
                           std::size_t other_index) const {
  const Op& mine = state_->ops(pass)[state_->cut_of(pass).calls.at(index)];
  const State& there = *other.state_;
  const Op& its = there.ops(pass)[there.cut_of(pass).calls.at(other_index)];
  if (mine.comm != its.comm || mine.group != its.group || mine.dtype != its.dtype ||
      mine.transposed != its.transposed || mine.one_kernel != its.one_kernel ||
      state_->program.ranks() != there.program.ranks())
    return false;
  for (int r = 0; r < state_->program.ranks(); ++r)
    for (const auto field : {&Op::in, &Op::out, &Op::tx, &Op::rx})
      if (state_->program.value(mine.*field, r) != there.program.value(its.*field, r)) return false;
  return true;
}

std::int64_t LayerModel::call_rows(Pass pass, std::size_t index, int expert_rank,
                                   std::uint64_t row_bytes) const {
  const Op& op = state_->ops(pass)[state_->cut_of(pass).calls.at(index)];
  return state_->program.value(op.in, expert_rank * state_->job.topology.tp) /
         static_cast<std::int64_t>(std::max<std::uint64_t>(1, row_bytes));
}

models::DomainReport LayerModel::report() const {
  models::DomainReport report;
  for (const Pass pass : {Pass::forward, Pass::backward})
    state_->costs.report(state_->program, state_->ops(pass), state_->prices[static_cast<std::size_t>(pass)],
                         state_->shapes, report);
  return report;
}

std::vector<std::string> LayerModel::warnings() const {
  std::vector<std::string> all = report().lines();
  all.insert(all.end(), state_->program.warnings.begin(), state_->program.warnings.end());
  return all;
}

models::DispatcherSpec recorded_dispatcher(const JobModel& job, const models::Cluster& cluster,
                                           const Step& forward) {
  // The dispatchers of the recorders.
  for (const char* name : {"alltoall-legacy", "allgather-legacy", "alltoall"}) {
    models::DispatcherSpec spec;
    spec.name = name;
    const models::Program program = program_of(job, spec, cluster.gpus_per_node);
    if (!starts_in(forward, program.forward(), cut(program.forward()), job).empty()) return spec;
  }
  throw InputError(fmt::format(
      "found {} calls in a forward step of {} layers, expected those of the AlltoAll or "
      "AllGather dispatcher in every layer{}",
      forward.calls.size(), job.layers_per_stage(), job.topology.tp > 1 ? ", and others over TP only" : ""));
}

double recorded_launch_us(const LayerModel& model, const models::Cluster& cluster,
                          const std::vector<std::vector<double>>& recorded_us) {
  constexpr double kMost = 1000;  // us; no launch is that slow
  double recorded = 0;
  std::vector<std::size_t> own;
  for (std::size_t s = 1; s + 1 < recorded_us.size(); ++s)
    if (!model.has_experts(Pass::forward, s) &&
        model.launches(Pass::forward, s, LayerModel::Part::dispatcher) > 0) {
      own.push_back(s);
      for (const double us : recorded_us[s]) recorded += us;
    }
  const double profile_us = cluster.profile.launch().kernel * kUsPerSecond;
  if (own.empty()) return profile_us;
  const auto modelled = [&](double launch_us) {
    double sum = 0;
    for (const std::size_t s : own)
      for (std::size_t e = 0; e < recorded_us[s].size(); ++e)
        sum +=
            model.segment_us(Pass::forward, s, LayerModel::Part::dispatcher, static_cast<int>(e), launch_us);
    return sum;
  };
  double low = profile_us, high = kMost;
  if (modelled(low) >= recorded) return low;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (modelled(middle) < recorded ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace moesim::replay

#include "models/step/step_passes.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "models/step/contention.h"

namespace moesim::models {

namespace {

using sim::LockstepOp;
using sim::LockstepProgram;

// Separate the jitter draws of different programs.
constexpr std::size_t kSaltOfKind = std::size_t{1} << 20, kSaltOfEnds = std::size_t{1} << 30,
                      kSaltOfMoe = std::size_t{1} << 40;

// Routings x ranks whose passes are priced, about a kilobyte each, and the least of a layer. Microbatches beyond
// share those of earlier ones: a step's time is a mean over all of them, which a thousand give to a thirtieth of
// the spread of one.
constexpr std::int64_t kMostPriced = 65536, kLeastOfALayer = 16;

bool weight_gradient(const Op& op) { return op.kind == OpKind::kGemm && op.pass == GemmPass::kWgrad; }

}  // namespace

bool leaves_domain(const Op& op, const GroupShapes& shapes) {
  return op.kind == OpKind::kCollective && !op.fused &&
         (op.one_kernel ? op.across_nodes : shapes.across_domains(op.group));
}

LockstepProgram only_weight_gradients(const LockstepProgram& priced, const std::vector<Op>& pass) {
  LockstepProgram result;
  result.groups = priced.groups;
  result.ps = priced.ps;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    if (!weight_gradient(pass[i])) continue;
    LockstepOp copy = priced.ops[i];
    copy.after = {static_cast<std::int32_t>(result.ops.size()) - 1, -1};
    result.ops.push_back(copy);
  }
  return result;
}

LockstepProgram without_weight_gradients(const LockstepProgram& priced, const std::vector<Op>& pass) {
  LockstepProgram result = priced;
  // Operations that waited for a weight gradient wait for its dependencies instead.
  for (std::size_t i = 0; i < pass.size(); ++i)
    if (weight_gradient(pass[i])) result.ops[i].kind = LockstepOp::Kind::nothing;
  return result;
}

std::int64_t network_ps(const LockstepProgram& priced, const std::vector<Op>& pass,
                        const GroupShapes& shapes) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    if (!leaves_domain(pass[i], shapes)) continue;
    const LockstepOp& op = priced.ops[i];
    const std::size_t ranks = op.step == 0 ? 1 : (*priced.groups)[0].of_rank.size();
    std::int64_t longest = 0;
    for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, priced.at(op, r));
    total += longest;
  }
  return total;
}

StepPasses::StepPasses(const LayerPrograms& programs, const JobRouting& routing, const ProgramPricer& pricer,
                       Options options)
    : programs_(programs),
      routing_(routing),
      pricer_(pricer),
      o_(std::move(options)),
      dense_loads_(programs.after(), programs.shapes()) {
  // The part that is the same for all dispatchers is also the same on all ranks.
  const auto even = [](const PricedProgram& p) { return p.forward.uniform() && p.backward.uniform(); };
  const bool uniform = o_.faults.empty() && routing.shared() && !o_.all_ranks && even(*moe(0, 0, 0));
  ranks_ = uniform ? 1 : static_cast<std::size_t>(programs.ranks());
  std::ptrdiff_t layers = 0;  // with experts
  for (const Chunk& chunk : *o_.chunks) {
    layers += std::ranges::count(chunk.layers, LayerKind::Ffn::kMoe, &LayerKind::ffn);
    const auto like = [&](const Chunk& other) {
      return std::tie(chunk.embedding, chunk.head, chunk.layers) ==
             std::tie(other.embedding, other.head, other.layers);
    };
    first_like_.push_back(
        static_cast<std::size_t>(std::ranges::find_if(*o_.chunks, like) - o_.chunks->begin()));
  }
  if (!routing.measured())
    routings_ = std::max(kLeastOfALayer, kMostPriced / (std::max<std::int64_t>(1, layers) *
                                                        static_cast<std::int64_t>(ranks_)));
}

PricedProgram StepPasses::price(const Program& program, const UnevenLoads& loads, const RankFaults* faults,
                                std::size_t salt) const {
  PricedProgram p;
  p.program = &program;
  p.forward = pricer_.price(program, program.forward(), programs_.shapes(), loads);
  p.backward = pricer_.price(program, program.backward(), programs_.shapes(), loads);
  if (o_.contention) {
    o_.contention->slow(program, true, p.forward);
    o_.contention->slow(program, false, p.backward);
  }
  if (faults) {
    apply_faults(*faults, program, program.forward(), programs_.shapes(), salt, p.forward);
    apply_faults(*faults, program, program.backward(), programs_.shapes(), salt + kSaltOfKind / 2,
                 p.backward);
  }
  if (o_.split) {
    p.without_weight_gradients = models::without_weight_gradients(p.backward, program.backward());
    p.weight_gradients = only_weight_gradients(p.backward, program.backward());
  }
  return p;
}

const RankFaults* StepPasses::faults_of(int stage) const {
  if (o_.faults.empty()) return nullptr;
  const auto& own = o_.faults[static_cast<std::size_t>(stage)];
  return own ? &*own : nullptr;
}

StepPasses::Dense& StepPasses::dense(int stage) {
  const RankFaults* faults = faults_of(stage);
  for (const auto& known : dense_)
    if (known->faults == faults || (known->faults && faults && *known->faults == *faults)) return *known;
  dense_.push_back(std::make_unique<Dense>());
  dense_.back()->faults = faults;
  dense_.back()->before.resize(programs_.kinds().size());
  return *dense_.back();
}

const PricedProgram& StepPasses::before(Dense& d, std::size_t kind) const {
  auto& made = d.before[kind];
  if (!made) made = price(programs_.before(kind), dense_loads_, d.faults, (kind + 1) * kSaltOfKind);
  return *made;
}

const PricedProgram& StepPasses::after(Dense& d) const {
  if (!d.after) d.after = price(programs_.after(), dense_loads_, d.faults, kSaltOfEnds);
  return *d.after;
}

const PricedProgram& StepPasses::embedding(Dense& d) const {
  if (!d.embedding) d.embedding = price(programs_.embedding(), dense_loads_, d.faults, 2 * kSaltOfEnds);
  return *d.embedding;
}

const PricedProgram& StepPasses::head(Dense& d) const {
  if (!d.head) d.head = price(programs_.head(), dense_loads_, d.faults, 3 * kSaltOfEnds);
  return *d.head;
}

StepPasses::Moe StepPasses::moe(int stage, int ordinal, int microbatch) {
  const RankFaults* faults = faults_of(stage);
  if (routing_.shared()) ordinal = microbatch = 0;
  microbatch = static_cast<int>(microbatch % routings_);
  if (!faults) stage = -1;  // the same on all healthy stages
  Moe& made = moe_[{stage, ordinal, microbatch}];
  if (made) return made;
  auto moe = ordinal == 0 && microbatch == 0
                 ? programs_.first()
                 : std::make_shared<const MoeProgram>(programs_.moe(ordinal, microbatch));
  const std::size_t salt =
      kSaltOfMoe +
      (static_cast<std::size_t>(ordinal) * 4096 + static_cast<std::size_t>(microbatch)) * kSaltOfKind;
  auto priced = std::make_shared<PricedProgram>(price(moe->program, moe->loads, faults, salt));
  if (programs_.frozen_experts()) {
    priced->backward = models::without_weight_gradients(priced->backward, moe->program.backward());
    if (o_.split) priced->weight_gradients = {};
  }
  priced->moe = std::move(moe);
  made = std::move(priced);
  return made;
}

std::int32_t StepPasses::add(Built& built, const PricedProgram& priced, Pass pass) {
  const LockstepProgram& program = pass == Pass::kForward         ? priced.forward
                                   : pass == Pass::kBackward      ? priced.backward
                                   : pass == Pass::kInputGradient ? priced.without_weight_gradients
                                                                  : priced.weight_gradients;
  if (program.ops.empty()) return -1;
  built.chain.push_back(&program);
  built.passes.push_back({priced.program, pass == Pass::kForward, priced.moe != nullptr});
  return static_cast<std::int32_t>(built.chain.size()) - 1;
}

LayerPlaces StepPasses::add_layer(Built& built, Dense& d, const Moe& moe, std::size_t kind, Pass pass) const {
  LayerPlaces places;
  if (pass == Pass::kForward) {
    places.before = add(built, before(d, kind), pass);
    if (!moe) return places;
    places.moe = add(built, *moe, pass);
    places.moe_pass = &moe->program->forward();
    places.after = add(built, after(d), pass);
    return places;
  }
  const auto again = [&](const PricedProgram& priced) {
    if (const std::int32_t at = add(built, priced, Pass::kForward); at >= 0) places.first.push_back(at);
  };
  if (o_.full_recompute && pass != Pass::kWeightGradient) {
    again(before(d, kind));
    if (moe) again(*moe), again(after(d));
  }
  if (moe) {
    places.after = add(built, after(d), pass);
    places.moe = add(built, *moe, pass);
    places.moe_pass = &moe->program->backward();
  }
  places.before = add(built, before(d, kind), pass);
  return places;
}

StepPasses::Built StepPasses::pass_of(int stage, std::int32_t chunk, std::int32_t microbatch, Pass pass) {
  const Chunk& c = (*o_.chunks)[static_cast<std::size_t>(chunk)];
  Dense& d = dense(stage);
  Built built;
  PassPlaces& p = built.places;
  const auto whole = [&](std::vector<std::int32_t>& where, const PricedProgram& program) {
    if (const std::int32_t at = add(built, program, pass); at >= 0) where.push_back(at);
  };
  const bool forward = pass == Pass::kForward;
  if (forward && c.embedding) whole(p.lead, embedding(d));
  if (!forward && c.head) whole(p.lead, head(d));
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const std::size_t at = forward ? i : c.layers.size() - 1 - i;
    const LayerKind& kind = c.layers[at];
    const std::size_t layer = c.first + at;
    Moe own_moe;
    if (kind.ffn == LayerKind::Ffn::kMoe) own_moe = moe(stage, programs_.ordinal(layer), microbatch);
    // A multi-token-prediction layer has its own pass of the head.
    std::vector<std::int32_t> own_head;
    if (kind.mtp && !forward) whole(own_head, head(d));
    LayerPlaces own = add_layer(built, d, own_moe, programs_.kind_of_layer()[layer], pass);
    own.first.insert(own.first.begin(), own_head.begin(), own_head.end());
    if (kind.mtp && forward) whole(own.last, head(d));
    p.layers.push_back(std::move(own));
  }
  if (forward && c.head) whole(p.rest, head(d));
  if (!forward && c.embedding) whole(p.rest, embedding(d));
  return built;
}

StepPasses::Slot StepPasses::runs_of(int stage, const PipelineSlot& slot) {
  using Kind = PipelineSlot::Kind;
  std::vector<Built> all;
  const auto back = [&](Pass pass) {
    all.push_back(pass_of(stage, slot.back_chunk, slot.back_microbatch, pass));
  };
  const bool both = slot.kind == Kind::kOverlapped;
  all.push_back(pass_of(stage, slot.chunk, slot.microbatch,
                        slot.kind == Kind::kBackward         ? Pass::kBackward
                        : slot.kind == Kind::kInputGradient  ? Pass::kInputGradient
                        : slot.kind == Kind::kWeightGradient ? Pass::kWeightGradient
                                                             : Pass::kForward));
  if (both) back(o_.delayed_weight_gradients ? Pass::kInputGradient : Pass::kBackward);
  if (both && o_.delayed_weight_gradients) back(Pass::kWeightGradient);
  Slot runs;
  std::vector<std::vector<std::int32_t>> sizes;
  for (Built& built : all) {
    sizes.emplace_back();
    for (const LockstepProgram* program : built.chain)
      sizes.back().push_back(static_cast<std::int32_t>(program->ops.size()));
    runs.chains.push_back(std::move(built.chain));
    runs.passes.push_back(std::move(built.passes));
  }
  if (both)
    runs.order =
        interleaved(all[0].places, all[1].places, all.size() > 2 ? all[2].places : PassPlaces{}, sizes);
  else
    runs.order = sim::one_by_one(runs.chains[0]);
  return runs;
}

void StepPasses::run(int stage, const PipelineSlot& slot, sim::Lockstep& clocks) {
  const Slot runs = runs_of(stage, slot);
  clocks.run(runs.chains, runs.order);
}

std::uint64_t StepPasses::alike(const PipelineSlot& slot) const {
  const auto first_like = [&](std::int32_t chunk) { return first_like_[static_cast<std::size_t>(chunk)]; };
  const std::uint64_t chunks = o_.chunks->size();
  return (static_cast<std::uint64_t>(slot.kind) * chunks + first_like(slot.chunk)) * chunks +
         first_like(slot.back_chunk);
}

std::optional<std::uint64_t> StepPasses::same(int, const PipelineSlot& slot) const {
  if (!routing_.shared() || !o_.faults.empty()) return std::nullopt;
  return alike(slot);
}

PipelinePasses::Host StepPasses::host(int stage, const PipelineSlot& slot) {
  Host all{0, false};
  for (const sim::LockstepChain& chain : runs_of(stage, slot).chains)
    for (const LockstepProgram* program : chain) {
      all.launching_ps += program->launches() * pricer_.launch_ps();
      all.waits = all.waits || program->waits_on_host();
    }
  return all;
}

StepPasses::Times StepPasses::twice(const Built& forward, const Built& backward) const {
  const auto run = [&](const Built& built) {
    sim::Lockstep clocks(ranks_, {pricer_.launch_ps(), pricer_.overlap(programs_.first()->program)});
    clocks.run(built.chain);
    clocks.run(built.chain);
    return clocks.end();
  };
  return {run(forward), backward.chain.empty() ? 0 : run(backward)};
}

StepPasses::Times StepPasses::layer_times(std::size_t kind, int ordinal, int microbatch) {
  Dense& d = dense(0);
  const Moe own = programs_.kinds()[kind].ffn == LayerKind::Ffn::kMoe ? moe(0, ordinal, microbatch) : nullptr;
  Built forward, backward;
  add_layer(forward, d, own, kind, Pass::kForward);
  add_layer(backward, d, own, kind, Pass::kBackward);
  return twice(forward, backward);
}

StepPasses::Times StepPasses::times_of(const PricedProgram& p) const {
  Built forward, backward;
  add(forward, p, Pass::kForward);
  add(backward, p, Pass::kBackward);
  return twice(forward, backward);
}

StepPasses::Times StepPasses::embedding_times() { return times_of(embedding(dense(0))); }

StepPasses::Times StepPasses::head_times() { return times_of(head(dense(0))); }

StepPasses::Times StepPasses::network_of(std::size_t chunk) {
  const Chunk& c = (*o_.chunks)[chunk];
  Dense& d = dense(0);
  Times times;
  const auto add_program = [&](const PricedProgram& p) {
    times.forward += network_ps(p.forward, p.program->forward(), programs_.shapes());
    times.backward += network_ps(p.backward, p.program->backward(), programs_.shapes());
  };
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    add_program(before(d, programs_.kind_of_layer()[c.first + i]));
    if (c.layers[i].ffn != LayerKind::Ffn::kMoe) continue;
    add_program(*moe(0, programs_.ordinal(c.first + i), 0));
    add_program(after(d));
  }
  return times;
}

void StepPasses::report(DomainReport& into) {
  Dense& d = dense(0);
  const auto count = [&](const PricedProgram& p, double times) {
    pricer_.report(*p.program, p.program->forward(), p.forward, programs_.shapes(), into, times);
    pricer_.report(*p.program, p.program->backward(), p.backward, programs_.shapes(), into, times);
  };
  std::vector<double> layers(programs_.kinds().size());
  double with_experts = 0;
  bool ends = false;
  for (const Chunk& c : *o_.chunks) {
    ends = ends || c.embedding || c.head;
    for (std::size_t i = 0; i < c.layers.size(); ++i) {
      ++layers[programs_.kind_of_layer()[c.first + i]];
      with_experts += c.layers[i].ffn == LayerKind::Ffn::kMoe ? 1 : 0;
    }
  }
  for (std::size_t k = 0; k < layers.size(); ++k)
    if (layers[k] > 0) count(before(d, k), layers[k]);
  if (with_experts > 0) {
    count(*moe(0, 0, 0), with_experts);
    count(after(d), with_experts);
  }
  if (ends) count(embedding(d), 1), count(head(d), 1);
}

}  // namespace moesim::models

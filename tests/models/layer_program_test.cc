// The part of a layer that no dispatcher changes: its products, its collectives, what is computed again.
#include "models/programs/layer_program.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/step/layer_programs.h"
#include "tests/message_of.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

using moesim::testing::message_of;

constexpr LayerKind kDense{}, kMoe{LayerKind::Mixer::kAttention, LayerKind::Ffn::kMoe, false};

// 64 tokens of a rank; hidden 64, attention 64*128 + 64*64 weights, dense FFN 3*64*96, router 64*8, V 128.
struct Small {
  Architecture model = small_model();
  LayerContext context;
  explicit Small(std::int64_t tp = 1) {
    context.model = &model;
    context.parallel.tp = tp;
    context.parallel.seq = 64 * tp;
    context.tokens = 64;
    context.topk = 2;
  }
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;
};

double product_flops(const Program& p, const std::vector<Op>& pass) {
  double flops = 0;
  for (const Op& op : pass)
    if (op.kind == OpKind::kGemm)
      flops += 2.0 * static_cast<double>(p.expert_rows(op.table, 0)[0] * op.n * op.k * op.repeat);
  return flops;
}

constexpr double kAttention = 64 * 128 + 64 * 64, kFfn = 3 * 64 * 96;

// Two FLOPs of every weight and token forward, twice as many backward.
TEST(BeforeExperts, ProductsMeetEveryWeight) {
  Small small;
  const Program dense = before_experts(small.context, kDense), moe = before_experts(small.context, kMoe);
  EXPECT_EQ(product_flops(dense, dense.forward()), 2 * 64 * (kAttention + kFfn));
  EXPECT_EQ(product_flops(dense, dense.backward()), 4 * 64 * (kAttention + kFfn));
  EXPECT_EQ(product_flops(moe, moe.forward()), 2 * 64 * (kAttention + 64 * 8));
  EXPECT_EQ(product_flops(moe, moe.backward()), 4 * 64 * (kAttention + 64 * 8));
  EXPECT_TRUE(the(moe.forward(), "router").plain);  // stays in bf16
  EXPECT_FALSE(the(dense.forward(), "FFN up").plain);
  EXPECT_TRUE(messages(dense.forward()).empty());
  EXPECT_TRUE(messages(dense.backward()).empty());
}

// Sequence parallel: rows are gathered before attention and FFN and scattered behind them, T*H*b bytes each.
TEST(BeforeExperts, TensorParallelRanksShareProductsAndExchangeRows) {
  Small small(2);
  const Program p = before_experts(small.context, kDense);
  EXPECT_EQ(product_flops(p, p.forward()), 2 * 64 * (kAttention + kFfn));  // 2 T rows, half of the weights
  std::vector<Expected> expected;
  const std::int64_t piece = 64 * 64 * 2;
  for (const char* gathered : {"attention input", "attention output", "FFN input", "FFN output"}) {
    const bool in = std::string(gathered).ends_with("input");
    expected.push_back({gathered, {in ? piece : 2 * piece}, {in ? 2 * piece : piece}, {piece}, {piece}});
  }
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].name, expected[i].what);
    EXPECT_EQ(p.value(all[i].in, 0), expected[i].in[0]);
    EXPECT_EQ(p.value(all[i].tx, 0), expected[i].tx[0]);
  }
  // Backward of both halves: the gradient is gathered, the input again, and its gradient scattered.
  EXPECT_EQ(messages(p.backward()).size(), 6u);
}

// Without sequence parallelism outputs are all-reduced, forward of each half, and backward its input's
// gradient; nothing is gathered.
TEST(BeforeExperts, WithoutSequenceParallelismOutputsAreReducedToAll) {
  Small small(2);
  small.context.sequence_parallel = false;
  const Program p = before_experts(small.context, kDense);
  EXPECT_EQ(product_flops(p, p.forward()), 2 * 64 * (kAttention + kFfn));
  const std::int64_t rows = 2 * 64 * 64 * 2;
  for (const std::vector<Op>* pass : {&p.forward(), &p.backward()}) {
    const std::vector<Op> all = messages(*pass);
    ASSERT_EQ(all.size(), 2u);
    for (const Op& op : all) {
      EXPECT_EQ(op.comm, CommKind::kAllReduce) << op.name;
      EXPECT_EQ(p.value(op.in, 0), rows) << op.name;
    }
  }
  // Norms run over all rows on every rank.
  EXPECT_EQ(p.value(named(p.forward(), "norm").front().read, 0), rows);
}

TEST(BeforeExperts, RecomputationRunsItsPartAgain) {
  const auto backward = [](const char* recompute, const LayerKind& kind) {
    Small small;
    small.context.recompute = StepRecompute::parse(recompute);
    const Program p = before_experts(small.context, kind);
    return std::tuple(product_flops(p, p.backward()), named(p.backward(), "attention").size(),
                      named(p.backward(), "norm again").size() + named(p.backward(), "norm").size());
  };
  const double plain = 4 * 64 * (kAttention + kFfn);
  EXPECT_EQ(backward("none", kDense), std::tuple(plain, 0u, 0u));
  EXPECT_EQ(backward("core_attn", kDense), std::tuple(plain, 1u, 0u));
  EXPECT_EQ(backward("layernorm", kDense), std::tuple(plain, 0u, 2u));
  // Gate and up again; their product's input needs no second product.
  EXPECT_EQ(backward("mlp", kDense), std::tuple(plain + 2 * 64 * 2 * 64 * 96, 0u, 0u));
  EXPECT_EQ(backward("full", kDense), std::tuple(plain, 0u, 0u));  // the whole forward runs around it
}

TEST(BeforeExperts, TheSharedExpertIsHereUnlessTheDispatcherRunsIt) {
  Small small;
  small.model.shared_ffn = 32;
  const Program here = before_experts(small.context, kMoe), after = after_experts(small.context);
  EXPECT_EQ(the(here.forward(), "FFN up").n, 2 * 32);
  // Its backward comes with what follows the experts; the residual sums three streams.
  EXPECT_EQ(product_flops(after, after.backward()), 4 * 64 * 3 * 64 * 32);
  EXPECT_EQ(after.value(the(after.forward(), "residual").read, 0), 64 * 3 * 64 * 2);
  small.context.shared_expert = false;
  EXPECT_FALSE(has(before_experts(small.context, kMoe).forward(), "FFN up"));
  const Program elsewhere = after_experts(small.context);
  EXPECT_EQ(elsewhere.value(the(elsewhere.forward(), "residual").read, 0), 64 * 2 * 64 * 2);
}

// LatentMoE: rows go to a narrower width before the dispatcher and back behind it.
TEST(AfterExperts, LatentRowsArePutBackIntoTheStream) {
  Small small;
  small.model.latent = 16;
  const Program before = before_experts(small.context, kMoe), after = after_experts(small.context);
  EXPECT_EQ(the(before.forward(), "to latent").n, 16);
  EXPECT_EQ(the(after.forward(), "from latent").k, 16);
  EXPECT_EQ(product_flops(after, after.backward()), 4 * 64 * 16 * 64);
}

// Loss parallel: one number per token and all-reduce; else the columns of the logits are gathered.
TEST(HeadProgram, TakesTheLossOfItsColumnsOrOfAll) {
  Small alone, two(2);
  const Program one = head_program(alone.context);
  EXPECT_EQ(product_flops(one, one.forward()), 2 * 64 * 64 * 128);
  EXPECT_TRUE(messages(one.forward()).empty());
  const Program shared = head_program(two.context);
  EXPECT_EQ(the(shared.forward(), "output head").n, 64);
  std::vector<Op> all = messages(shared.forward());
  ASSERT_EQ(all.size(), 4u);  // head input, three sums
  EXPECT_EQ(shared.value(all[1].in, 0), 128 * 4);
  two.context.loss_parallel = false;
  const Program gathered = head_program(two.context);
  all = messages(gathered.forward());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "logits");
  EXPECT_EQ(gathered.value(all[1].out, 0), 128 * 128 * 2);  // 2 T rows of the whole vocabulary
  // A vocabulary that does not divide: the first ranks hold a column more.
  two.model.vocabulary = 129;
  EXPECT_EQ(the(head_program(two.context).forward(), "output head").n, 65);
}

TEST(EmbeddingProgram, ReadsRowsAndAddsGradientsInFp32) {
  Small small;
  const Program p = embedding_program(small.context);
  EXPECT_EQ(p.value(the(p.forward(), "embedding").read, 0), 64 * 64 * 2);
  EXPECT_EQ(p.value(the(p.backward(), "embedding backward").written, 0), 64 * 64 * 4);
  small.context.train = false;
  EXPECT_TRUE(embedding_program(small.context).backward().empty());
}

// A Mamba-2 mixer: the scan's FLOPs by hand, three times as many in backward.
TEST(BeforeExperts, MambaScansInChunks) {
  Small small;
  small.model.mamba = {4, 16, 8, 2, 4};  // heads, head_dim, state, groups, convolution
  const Program p = before_experts(small.context, {LayerKind::Mixer::kMamba, LayerKind::Ffn::kNone, false});
  const std::int64_t inner = 64, flops = 64 * (256 * (2 * 8 + inner) + 4 * inner * 8);
  EXPECT_EQ(the(p.forward(), "scan").flops, flops);
  EXPECT_EQ(the(p.backward(), "scan backward").flops, 3 * flops);
  const double columns = 2 * inner + 2 * 2 * 8 + 4;
  EXPECT_EQ(product_flops(p, p.forward()), 2 * 64 * (64 * columns + 64 * inner));
}

// A multi-token-prediction layer joins two streams with a 2H -> H product.
TEST(BeforeExperts, MtpLayersJoinTwoStreams) {
  Small small;
  LayerKind mtp = kMoe;
  mtp.mtp = true;
  const Program p = before_experts(small.context, mtp);
  EXPECT_EQ(product_flops(p, p.forward()), 2 * 64 * (kAttention + 64 * 8 + 2 * 64 * 64));
}

// Products per rank times ranks do not depend on how many ranks share them.
RC_GTEST_PROP(BeforeExperts, TensorParallelismConservesFlops, ()) {
  const std::int64_t tp = *rc::gen::element(1, 2, 4);
  Small one, shared(tp);
  one.context.tokens = 64 * tp;  // the same tokens, all of them on one rank
  for (Small* s : {&one, &shared}) {
    s->model.attention.heads = s->model.attention.kv_heads = 4;
  }
  for (const LayerKind& kind : {kDense, kMoe}) {
    const Program a = before_experts(one.context, kind), b = before_experts(shared.context, kind);
    RC_ASSERT(product_flops(a, a.forward()) == static_cast<double>(tp) * product_flops(b, b.forward()));
    RC_ASSERT(product_flops(a, a.backward()) == static_cast<double>(tp) * product_flops(b, b.backward()));
  }
}

// The programs of a job's layers: which routing every layer has, which kinds there are, who is refused.

// A resolved scenario and what is made of it, which keeps references to it.
struct Job {
  explicit Job(Scenario given) : scenario(resolved(std::move(given))) {}
  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};

  LayerPrograms programs() const {
    return {scenario, scenario.dispatchers.front(), routing, placement, placement.dispatch_classes().front()};
  }
};

Scenario routed(const std::string& routing) {
  Scenario s = small_job();
  s.routing = RoutingSpec::parse(routing);
  return s;
}

std::vector<std::int64_t> counts_of(const Routing& routing) {
  std::vector<std::int64_t> all;
  for (int r = 0; r < routing.ranks(); ++r)
    all.insert(all.end(), routing.counts(r).begin(), routing.counts(r).end());
  return all;
}

TEST(JobRouting, IsDrawnForEveryLayerAndMicrobatchUnlessShared) {
  Scenario s = routed("zipf:1.2"), shared = routed("zipf:1.2:shared"), even = routed("balanced");
  s.resolve(), shared.resolve(), even.resolve();
  const JobRouting apart(s), alike(shared), balanced(even);
  EXPECT_FALSE(apart.shared());
  EXPECT_TRUE(alike.shared());
  EXPECT_TRUE(balanced.shared());
  EXPECT_NE(counts_of(apart.of(0, 0)), counts_of(apart.of(1, 0)));
  EXPECT_NE(counts_of(apart.of(0, 0)), counts_of(apart.of(0, 1)));
  EXPECT_EQ(counts_of(apart.of(2, 1)), counts_of(apart.of(2, 1)));
  EXPECT_EQ(counts_of(alike.of(2, 1)), counts_of(alike.of(0, 0)));
  // Each routes T*K rows of every rank.
  for (const Routing& routing : {apart.of(0, 0), apart.of(1, 1)})
    for (int r = 0; r < 4; ++r) EXPECT_EQ(routing.rows(r), 64 * 2);
}

TEST(JobRouting, TheCacheChangesNothing) {
  Scenario s = routed("gini:0.3");
  s.resolve();
  RoutingCache cache;
  const JobRouting fresh(s), cached(s, &cache), again(s, &cache);
  for (const int microbatch : {0, 1}) {
    EXPECT_EQ(counts_of(fresh.of(0, microbatch)), counts_of(cached.of(0, microbatch)));
    EXPECT_EQ(counts_of(fresh.of(1, microbatch)), counts_of(again.of(1, microbatch)));
  }
}

// Copies of experts are slots of their own; every row still goes somewhere.
TEST(JobRouting, PlacedExpertsHaveAsManySlotsAsAsked) {
  Scenario s = routed("zipf:1.2");
  s.placement = PlacementSpec::parse("balanced:slots=12");
  const Job job(s);
  const Routing placed = job.routing.of(0, 0);
  EXPECT_EQ(placed.experts(), 12);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(placed.rows(r), 64 * 2);
  EXPECT_EQ(job.programs().experts(), 12);
}

TEST(LayerPrograms, KnowTheKindsOfLayersAndTheirPlacesAmongMoeLayers) {
  const Job job(small_job());
  const LayerPrograms programs = job.programs();
  ASSERT_EQ(programs.kinds().size(), 2u);  // attention with a dense FFN, with experts
  EXPECT_EQ(std::vector<std::size_t>(programs.kind_of_layer().begin(), programs.kind_of_layer().end()),
            (std::vector<std::size_t>{0, 1, 1, 1}));
  EXPECT_EQ(programs.ordinal(1), 0);
  EXPECT_EQ(programs.ordinal(3), 2);
  EXPECT_EQ(programs.ranks(), 4);
  EXPECT_EQ(programs.experts(), 8);
  EXPECT_EQ(programs.first()->program.computed_rows, std::vector<std::int64_t>(4, 64 * 2));
  // Made once.
  EXPECT_EQ(&programs.before(1), &programs.before(1));
  EXPECT_NE(&programs.before(0), &programs.before(1));
}

TEST(LayerPrograms, FollowTheRoutingOfTheirLayer) {
  const Job job(routed("zipf:1.5"));
  const LayerPrograms programs = job.programs();
  for (const int layer : {0, 1, 2}) {
    const Routing routing = job.routing.of(layer, 1);
    const MoeProgram moe = programs.moe(layer, 1);
    const auto rows = routing.split_matrix(4);
    for (std::size_t d = 0; d < 4; ++d)
      EXPECT_EQ(moe.program.computed_rows[d], rows[d] + rows[4 + d] + rows[8 + d] + rows[12 + d]);
  }
}

// The shared expert is in the part that no dispatcher changes, unless the dispatcher overlaps it.
TEST(LayerPrograms, TheSharedExpertIsInOneOfTheTwo) {
  const auto has_shared = [](const char* dispatcher) {
    Scenario s = small_job();
    s.model.shared_ffn = 32;
    s.set_dispatchers(dispatcher);
    const Job job(s);
    const LayerPrograms programs = job.programs();
    int dense = 0, own = 0;
    for (const Op& op : programs.before(1).forward()) dense += op.name == "FFN up" ? 1 : 0;
    for (const Op& op : programs.first()->program.forward()) own += op.name == "shared fc1" ? 1 : 0;
    return std::pair(dense, own);
  };
  EXPECT_EQ(has_shared("alltoall"), std::pair(1, 0));
  EXPECT_EQ(has_shared("alltoall:shared_overlap=true"), std::pair(0, 1));
}

TEST(LayerPrograms, OfADenseModelTheDispatcherHasNothingToDo) {
  Scenario s = small_job();
  s.model.experts = s.model.topk = 0;
  s.model.dense_layers = 0;
  s.parallel.ep = 1;
  const Job job(s);
  const LayerPrograms programs = job.programs();
  EXPECT_TRUE(programs.first()->program.forward().empty());
  EXPECT_EQ(programs.kinds().size(), 1u);
  EXPECT_TRUE(job.routing.shared());
}

TEST(LayerPrograms, NameTheRuleThatForbidsADispatcher) {
  Scenario s = small_job();
  s.set_dispatchers("torchtitan-local");
  const Job job(s);
  EXPECT_EQ(message_of([&] { job.programs(); }),
            "--dispatcher: dispatcher torchtitan-local: it is for ep 1: every rank holds all experts");
  EXPECT_EQ(
      rule_against(job.scenario, job.scenario.dispatchers.front(), job.routing, job.placement).value_or(""),
      "it is for ep 1: every rank holds all experts");
  EXPECT_FALSE(rule_against(job.scenario, DispatcherSpec::parse("alltoall"), job.routing, job.placement));
}

// Programs of several classes of groups share what no dispatcher changes.
TEST(ProgramsOfClasses, OneForEveryClass) {
  const Job job(small_job());
  const auto programs =
      programs_of_classes(job.scenario, job.scenario.dispatchers.front(), job.routing, job.placement);
  ASSERT_EQ(programs.size(), job.placement.dispatch_classes().size());
  for (const auto& each : programs) EXPECT_EQ(each->dense(), programs.front()->dense());
}

}  // namespace
}  // namespace moesim::models::testing

// The identities of docs/spec.md 6.1 over random configurations. Each test runs 1,000 of them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "models/dispatchers/parts/capacity.h"
#include "models/programs/check.h"
#include "models/routing/overload.h"
#include "models/workload/parallel.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// RapidCheck reads its parameters once, before the first property.
const bool kThousandCases = setenv("RC_PARAMS", "max_success=1000", 0) == 0;

const std::vector<std::string>& every_dispatcher() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const DispatcherEntry& entry : dispatcher_registry()) names.emplace_back(entry.name);
    for (const char* more :
         {"alltoall:capacity_factor=1:pad", "alltoall:capacity_factor=1", "alltoall:pad_map=4",
          "alltoall:pad_rows=16", "torchtitan-equal-split:policy=adaptive", "kempnerforge:replicated=false",
          "kempnerforge:experts=loop", "kempnerforge:packed=false", "megablocks-dmoe-sparse:block=4",
          "flex-hybridep:mode=static", "flex-hybridep:mode=pad", "flex-deepep:fp8_dispatch",
          "torchtitan-alltoall:score_before_experts"})
      names.emplace_back(more);
    return names;
  }();
  return all;
}

// The dispatchers that are legal on this layer, built.
std::vector<std::pair<std::string, Program>> build_all(const MoeLayer& layer) {
  std::vector<std::pair<std::string, Program>> built;
  for (const std::string& name : every_dispatcher()) {
    const auto dispatcher = make_dispatcher(DispatcherSpec::parse(name));
    if (!rule_against(*dispatcher, layer)) built.emplace_back(name, dispatcher->build(layer));
  }
  return built;
}

// Dispatchers that compute every routed row once, no more and no less.
bool is_dropless_unpadded(const std::string& name) {
  return name == "allgather" || name == "allgather-legacy" || name == "alltoall" ||
         name == "alltoall-legacy" || name == "flex-deepep" || name == "flex-hybridep" ||
         name == "torchtitan-alltoall" || name == "torchtitan-equal-split" ||
         name == "kempnerforge:replicated=false" || name == "megablocks-dmoe-grouped";
}

std::int64_t sum(const Numbers& n) { return std::accumulate(n.begin(), n.end(), std::int64_t{0}); }

// Identities 2 and 3: bytes balance over every group and every pair; the way back is the transpose.
RC_GTEST_PROP(Identities, BytesBalance, ()) {
  const RandomLayer random = random_layer(true, *rc::gen::arbitrary<bool>());
  for (const auto& [name, program] : build_all(random.layer)) {
    const std::vector<std::string> faults = check_bytes(program);
    RC_ASSERT(faults.empty());
  }
}

// Identity 1.
RC_GTEST_PROP(Identities, TokenConservation, ()) {
  const RandomLayer random = random_layer(false, false);
  const Routing& n = random.routing;
  const int ep = random.layer.ep;
  const Numbers S = n.split_matrix(ep), N = n.expert_totals();
  std::int64_t rows = 0;
  for (int r = 0; r < n.ranks(); ++r) {
    RC_ASSERT(n.rows(r) == n.tokens(r) * n.topk());
    rows += n.rows(r);
  }
  std::int64_t received = 0;
  for (int d = 0; d < ep; ++d) {
    std::int64_t R_d = 0, local = 0;
    for (int r = 0; r < n.ranks(); ++r) R_d += S[r * ep + d];
    for (int e = 0; e < n.experts() / ep; ++e) local += N[d * (n.experts() / ep) + e];
    RC_ASSERT(R_d == local);
    received += R_d;
  }
  RC_ASSERT(received == rows);
}

// Identities 3 and 4: combine is the transpose of dispatch, backward of forward; the way back restores T*K
// rows.
RC_GTEST_PROP(Identities, BackwardIsForwardSwapped, ()) {
  const RandomLayer random = random_layer(false);
  const Program p = build("torchtitan-alltoall", random.layer);
  const std::vector<Op> forward = messages(p.forward()), backward = messages(p.backward());
  if (random.layer.ep == 1) {
    RC_ASSERT(forward.empty());
    return;
  }
  const Op &dispatch = forward[1], &combine = forward[2];
  RC_ASSERT(numbers(p, dispatch.tx) == numbers(p, combine.rx));
  RC_ASSERT(numbers(p, dispatch.rx) == numbers(p, combine.tx));
  RC_ASSERT(numbers(p, backward[0].tx) == numbers(p, combine.rx));
  RC_ASSERT(numbers(p, backward[1].tx) == numbers(p, dispatch.rx));
  RC_ASSERT(numbers(p, backward[1].out) == numbers(p, dispatch.in));
}

// Identity 5.
RC_GTEST_PROP(Identities, AllGatherIgnoresRouting, ()) {
  const RandomLayer random = random_layer(true);
  const Routing& n = random.routing;
  RoutingSpec spec;
  const Routing other = make_routing(spec, n.ranks(), n.tokens(0), n.experts(), n.topk(), 7);
  MoeLayer layer = random.layer;
  const Program a = build("allgather", layer);
  layer.routing = &other;
  const Program b = build("allgather", layer);
  RC_ASSERT(total_tx(a, a.forward()) == total_tx(b, b.forward()));
  RC_ASSERT(total_tx(a, a.backward()) == total_tx(b, b.backward()));
  // The closed form of docs/spec.md 2.1.1.
  const std::int64_t R = random.layer.ranks(), T = n.tokens(0), E = n.experts(), H = layer.hidden,
                     bp = bytes_of(layer.router);
  RC_ASSERT(total_tx(a, a.forward())[0] == (R - 1) * T * (E * (1 + bp) + H * (2 + bp)));
  RC_ASSERT(total_tx(a, a.backward())[0] == (R - 1) * T * (E * bp + H * (2 + bp)));
}

// Identity 6, the bound for any routing.
RC_GTEST_PROP(Identities, AllToAllSendsAtMostEveryRow, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const Program p = build("alltoall", random.layer);
  const Op tokens = messages(p.forward())[1];
  RC_ASSERT(sum(numbers(p, tokens.tx)) <= random.routing.topk() * random.routing.ranks() *
                                              random.routing.tokens(0) * random.layer.hidden * 2);
}

// Identity 6, the expectation: rows that leave a rank when every token draws its experts uniformly. Within
// six standard deviations of a sum over tokens (choices of one token exclude each other, so that its variance
// is at most binomial).
RC_GTEST_PROP(Identities, UniformRoutingSendsTheExpectedShare, ()) {
  const int ep = *rc::gen::inRange(2, 9), local = *rc::gen::inRange(1, 9);
  const int topk = *rc::gen::inRange(1, std::min(ep * local, 8) + 1);
  const std::int64_t tokens = *rc::gen::inRange(100, 400);
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kUniform;
  const Routing routing = make_routing(spec, ep, tokens, ep * local, topk, *rc::gen::inRange(1, 1 << 30));
  const MoeLayer layer = example_layer(routing, ep);
  const Program p = build("alltoall", layer);
  const double share = static_cast<double>(ep - 1) / ep, rows = static_cast<double>(tokens * topk);
  for (const std::int64_t bytes : numbers(p, messages(p.forward())[1].tx)) {
    const double away = static_cast<double>(bytes) / static_cast<double>(layer.hidden * 2) - rows * share;
    RC_ASSERT(std::abs(away) <= 6 * std::sqrt(rows * share * (1 - share)) + 1);
  }
}

// Identity 7.
RC_GTEST_PROP(Identities, DeduplicationNeverSendsMore, ()) {
  const RandomLayer random = random_layer(false, false);
  const Routing& n = random.routing;
  const int ep = random.layer.ep;
  const Numbers D = n.dedup_matrix(ep), S = n.split_matrix(ep);
  for (int r = 0; r < n.ranks(); ++r) {
    std::int64_t sent = 0;
    for (int d = 0; d < ep; ++d) {
      RC_ASSERT(D[r * ep + d] <= std::min(S[r * ep + d], n.tokens(r)));
      RC_ASSERT(D[r * ep + d] * std::min(n.topk(), n.experts() / ep) >= S[r * ep + d]);
      if (d != r) sent += D[r * ep + d];
      if (n.topk() == 1) RC_ASSERT(D[r * ep + d] == S[r * ep + d]);
    }
    RC_ASSERT(sent <= (ep - 1) * n.tokens(r));
  }
  // The expectation from counts alone keeps to the same bounds.
  Numbers tokens, counts;
  for (int r = 0; r < n.ranks(); ++r) {
    tokens.push_back(n.tokens(r));
    counts.insert(counts.end(), n.counts(r).begin(), n.counts(r).end());
  }
  const Routing bare = Routing::from_counts(n.ranks(), n.experts(), n.topk(), tokens, counts);
  const Numbers expected = bare.dedup_matrix(ep);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    RC_ASSERT(expected[i] <= std::min(S[i], tokens[i / ep]));
    RC_ASSERT(expected[i] * std::min(n.topk(), n.experts() / ep) >= S[i]);
  }
}

// Identity 8, the table of expected copies.
TEST(Identities, ExpectedCopies) {
  struct Row {
    int ep, experts, topk;
    double copies;
  };
  for (const Row row : {Row{8, 256, 8, 5.295}, Row{16, 256, 8, 6.523}, Row{32, 256, 8, 7.267},
                        Row{64, 256, 8, 7.676}, Row{8, 64, 6, 4.536}, Row{4, 8, 2, 1.857}}) {
    const std::int64_t tokens = 1 << 20;
    const Routing routing = make_routing(RoutingSpec(), row.ep, tokens, row.experts, row.topk, 1);
    const Numbers D = routing.dedup_matrix(row.ep);
    std::int64_t copies = 0;
    for (int d = 0; d < row.ep; ++d) copies += D[d];
    EXPECT_NEAR(static_cast<double>(copies) / static_cast<double>(tokens), row.copies, 6e-4);
  }
}

// Identity 8, for any sizes: EP (1 - C(E - E_l, K) / C(E, K)) copies of a token.
RC_GTEST_PROP(Identities, ExpectedCopiesFollowTheBinomials, ()) {
  const int ep = *rc::gen::inRange(1, 17), local = *rc::gen::inRange(1, 17), experts = ep * local;
  const int topk = *rc::gen::inRange(1, std::min(experts, 10) + 1);
  double none = 1;  // C(E - E_l, K) / C(E, K)
  for (int i = 0; i < topk; ++i)
    none *= std::max(0.0, static_cast<double>(experts - local - i)) / (experts - i);
  const double copies = ep * (1 - none);
  const std::int64_t tokens = 1 << 20;
  const Numbers D = make_routing(RoutingSpec(), ep, tokens, experts, topk, 1).dedup_matrix(ep);
  std::int64_t expected = 0;
  for (int d = 0; d < ep; ++d) expected += D[d];
  RC_ASSERT(std::abs(static_cast<double>(expected) / static_cast<double>(tokens) - copies) < 1e-3 * copies);
}

// Identities 9 and 10.
RC_GTEST_PROP(Identities, EqualSplitBounds, ()) {
  const RandomLayer random = random_layer(false);
  const LayerSizes f(random.layer);
  const EqualSplit split(f);
  for (int r = 0; r < f.R; ++r) {
    RC_ASSERT(f.ep * split.m >= std::max(f.sent[r], f.computed[r]));
    RC_ASSERT((f.ep - 1) * split.m >= f.computed[r] - f.splits[r * f.ep + r]);
    const bool equal =
        std::all_of(f.splits.begin(), f.splits.end(), [&](std::int64_t s) { return s == f.splits[0]; });
    if (equal && split.m > 0) RC_ASSERT(split.worst() == 0);
  }
}

// Identities 11 and 12.
RC_GTEST_PROP(Identities, DropAndPad, ()) {
  const RandomLayer random = random_layer(false);
  const MoeLayer& layer = random.layer;
  const Routing& n = random.routing;
  const std::int64_t C = capacity(n.tokens(0), n.topk(), n.experts(), 1);
  const Program p = build("alltoall:capacity_factor=1:pad", layer);
  std::int64_t most = 0;
  for (int r = 0; r < n.ranks(); ++r)
    for (int e = 0; e < n.experts(); ++e) most = std::max(most, n.count(r, e));
  RC_ASSERT((p.dropped_rows == 0) == (most <= C));
  if (layer.ep > 1) {
    const std::int64_t E_l = layer.local_experts();
    RC_ASSERT(numbers(p, messages(p.forward())[0].tx) ==
              Numbers(n.ranks(), (n.experts() - E_l) * C * layer.hidden * 2));
    const Program dropped = build("alltoall:capacity_factor=1", layer), full = build("alltoall", layer);
    RC_ASSERT(sum(total_tx(dropped, dropped.forward())) <= sum(total_tx(full, full.forward())));
    const Program kempner = build("kempnerforge:replicated=false:capacity_factor=1", layer);
    const Program all = build("kempnerforge:replicated=false", layer);
    RC_ASSERT(total_tx(kempner, kempner.forward()) == total_tx(all, all.forward()));
  }
}

// Identity 13.
RC_GTEST_PROP(Identities, UnevenGatherOfEqualPiecesIsAnAllGather, ()) {
  const int ep = *rc::gen::inRange(1, 5), etp = *rc::gen::inRange(2, 5);
  const std::int64_t rows = *rc::gen::inRange(0, 100), row = *rc::gen::inRange(1, 100);
  ProgramBuilder b(ep, etp);
  b.begin(ProgramBuilder::Pass::kForward);
  const Numbers pieces(ep * etp, rows);
  b.all_gather_v(GroupKind::kTp, "a", Category::dispatch, DType::kBf16, pieces, row);
  b.all_gather(GroupKind::kTp, "b", Category::dispatch, DType::kBf16, rows * row);
  b.reduce_scatter_v(GroupKind::kTp, "c", Category::dispatch, DType::kBf16, pieces, row);
  b.reduce_scatter(GroupKind::kTp, "d", Category::dispatch, DType::kBf16, rows * row);
  const Program p = b.finish();
  const std::vector<Op> all = messages(p.forward());
  for (const std::size_t i : {0u, 2u}) {
    RC_ASSERT(numbers(p, all[i].in) == numbers(p, all[i + 1].in));
    RC_ASSERT(numbers(p, all[i].out) == numbers(p, all[i + 1].out));
    RC_ASSERT(numbers(p, all[i].tx) == numbers(p, all[i + 1].tx));
    RC_ASSERT(numbers(p, all[i].rx) == numbers(p, all[i + 1].rx));
  }
}

std::int64_t forward_flops(const Program& p, int rank) {
  std::int64_t flops = 0;
  for (const Op& op : p.forward())
    if (op.kind == OpKind::kGemm)
      for (const std::int64_t rows : p.expert_rows(op.table, rank))
        flops += op.repeat * 2 * rows * op.n * op.k;
  return flops;
}

// Identities 14 and 15: FLOPs are conserved by ETP and the same for all dropless unpadded dispatchers.
RC_GTEST_PROP(Identities, FlopsAreConserved, ()) {
  const RandomLayer random = random_layer(true);
  const Routing& n = random.routing;
  std::int64_t rows = 0;
  for (int r = 0; r < n.ranks(); ++r) rows += n.rows(r);
  const std::int64_t total =
      rows * (random.layer.gated ? 6 : 4) * random.layer.hidden * random.layer.expert_ffn;
  std::int64_t most = -1;
  for (const auto& [name, program] : build_all(random.layer)) {
    if (!is_dropless_unpadded(name)) continue;
    RC_ASSERT(sum(program.computed_rows) == random.layer.etp * rows);
    std::int64_t flops = 0, busiest = 0;
    for (int r = 0; r < n.ranks(); ++r) {
      flops += forward_flops(program, r);
      busiest = std::max(busiest, forward_flops(program, r));
    }
    RC_ASSERT(flops == total);
    RC_ASSERT(most < 0 || most == busiest);
    most = busiest;
  }
}

// Identity 16: wire bytes of the exchange do not depend on how the dense part is split.
RC_GTEST_PROP(Identities, FoldingKeepsTheExchange, ()) {
  const RandomLayer random = random_layer(false);
  MoeLayer folded = random.layer;
  folded.tp = *rc::gen::inRange(2, 5);
  for (const char* name : {"alltoall", "allgather", "flex-deepep"}) {
    if (random.layer.ep == 1) continue;
    const Program a = build(name, random.layer), b = build(name, folded);
    RC_ASSERT(total_tx(a, a.forward()) == total_tx(b, b.forward()));
    RC_ASSERT(total_tx(a, a.backward()) == total_tx(b, b.backward()));
  }
}

// Identity 17.
RC_GTEST_PROP(Identities, AloneThereAreNoCollectives, ()) {
  RandomLayer random = random_layer(false);
  const int experts = random.routing.experts(), topk = random.routing.topk();
  const Routing alone = make_routing(RoutingSpec(), 1, random.routing.tokens(0), experts, topk, 1);
  random.layer.ep = 1;
  random.layer.routing = &alone;
  const auto built = build_all(random.layer);
  RC_ASSERT(built.size() >= 10u);
  for (const auto& [name, program] : built) {
    RC_ASSERT(messages(program.forward()).empty());
    RC_ASSERT(messages(program.backward()).empty());
  }
}

// Identity 18.
RC_GTEST_PROP(Identities, HiddenShardingMultipliesRows, ()) {
  const int experts = *rc::gen::inRange(1, 5), hsd = *rc::gen::inRange(2, 4);
  const int topk = *rc::gen::inRange(1, experts + 1);
  const std::int64_t tokens = *rc::gen::inRange(1, 20);
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kUniform;
  const Routing routing =
      make_routing(spec, experts * hsd, tokens, experts, topk, *rc::gen::inRange(1, 1000));
  const MoeLayer layer = example_layer(routing, experts * hsd);
  MoeLayer wide = layer;
  wide.expert_ffn = 12 * hsd;
  const Program p = build("megablocks-dmoe-grouped", wide);
  const std::vector<Op> all = messages(p.forward());
  for (int r = 0; r < routing.ranks(); ++r) {
    RC_ASSERT(p.value(all[1].in, r) == hsd * routing.rows(r) * layer.hidden * 2);
    RC_ASSERT(p.value(all[2].out, r) == hsd * routing.rows(r) * layer.hidden * 2);
  }
}

// Identity 19: names of ranks do not matter, and rows scale with tokens.
RC_GTEST_PROP(Identities, RelabelledRanksPermuteResults, ()) {
  const RandomLayer random = random_layer(false, false);
  const Routing& n = random.routing;
  const int ep = random.layer.ep, E_l = n.experts() / ep;
  if (ep == 1) return;
  // Rotate ranks and, with them, the experts that they hold.
  std::vector<std::vector<std::int32_t>> rotated(ep);
  for (int r = 0; r < ep; ++r)
    for (const std::int32_t e : n.choices(r)) rotated[(r + 1) % ep].push_back((e + E_l) % n.experts());
  const Routing other = Routing::from_choices(n.experts(), n.topk(), rotated);
  MoeLayer layer = random.layer;
  const Program a = build("alltoall", layer);
  layer.routing = &other;
  const Program b = build("alltoall", layer);
  Numbers tx = total_tx(a, a.forward()), saved = a.saved_bytes;
  std::rotate(tx.begin(), tx.end() - 1, tx.end());
  std::rotate(saved.begin(), saved.end() - 1, saved.end());
  RC_ASSERT(tx == total_tx(b, b.forward()));
  RC_ASSERT(saved == b.saved_bytes);
}

RC_GTEST_PROP(Identities, RowsScaleWithTokens, ()) {
  const RandomLayer random = random_layer(false);
  const int c = *rc::gen::inRange(2, 5);
  std::vector<std::vector<std::int32_t>> repeated;
  for (int r = 0; r < random.routing.ranks(); ++r) {
    std::vector<std::int32_t> all;
    for (int i = 0; i < c; ++i)
      all.insert(all.end(), random.routing.choices(r).begin(), random.routing.choices(r).end());
    repeated.push_back(all);
  }
  const Routing larger = Routing::from_choices(random.routing.experts(), random.routing.topk(), repeated);
  MoeLayer layer = random.layer;
  for (const char* name :
       {"alltoall", "allgather", "torchtitan-equal-split", "flex-deepep", "kempnerforge:replicated=false"}) {
    if (layer.ep == 1) continue;
    layer.routing = &random.routing;
    const Program a = build(name, layer);
    layer.routing = &larger;
    const Program b = build(name, layer);
    const std::vector<Op> small = messages(a.forward()), large = messages(b.forward());
    for (std::size_t i = 0; i < small.size(); ++i) {
      if (small[i].name != "tokens" && small[i].name != "hidden states") continue;
      Numbers scaled = numbers(a, small[i].tx);
      for (std::int64_t& bytes : scaled) bytes *= c;
      RC_ASSERT(scaled == numbers(b, large[i].tx));
    }
  }
}

// Identity 21.
RC_GTEST_PROP(Identities, OverloadIsTheImbalance, ()) {
  const RandomLayer random = random_layer(false);
  const Program p = build("alltoall", random.layer);
  const double f = overload_factor({p.computed_rows, p.balanced_rows});
  RC_ASSERT(std::abs(f - random.routing.rank_imbalance(random.layer.ep)) < 1e-6);
  RC_ASSERT(f >= 1 - 1e-6);
  RC_ASSERT(f <= random.layer.ep + 1e-6);
}

// Identity 22: sequences match, and leaving one operation out is a hang.
RC_GTEST_PROP(Identities, MissingCollectiveIsAHang, ()) {
  const RandomLayer random = random_layer(true);
  for (const auto& [name, program] : build_all(random.layer))
    for (const GroupKind kind : {GroupKind::kEp, GroupKind::kTp, GroupKind::kTpEp})
      for (const auto* pass : {&program.forward(), &program.backward()})
        for (int group = 0; group < program.group_count(kind); ++group) {
          auto members = issued(program, *pass, kind, group);
          RC_ASSERT(!match_positions(members));
          if (members.size() < 2 || members[0].empty()) continue;
          members.back().erase(members.back().begin() + static_cast<std::ptrdiff_t>(members[0].size() / 2));
          RC_ASSERT(match_positions(members).has_value());
        }
}

// Every program keeps its books: what forward saves is freed, peaks hold what is saved.
RC_GTEST_PROP(Identities, PeaksHoldWhatIsSaved, ()) {
  RandomLayer random = random_layer(true);
  random.layer.recompute = *rc::gen::element(Recompute::kNone, Recompute::kActivation, Recompute::kFull);
  for (const auto& [name, program] : build_all(random.layer))
    for (int r = 0; r < program.ranks(); ++r) {
      RC_ASSERT(program.saved_bytes[r] >= 0);
      RC_ASSERT(program.peak_forward_bytes[r] >= program.saved_bytes[r]);
      RC_ASSERT(program.peak_backward_bytes[r] >= program.saved_bytes[r]);
      if (random.layer.recompute == Recompute::kFull && !program.tokens_replicated)
        RC_ASSERT(program.saved_bytes[r] == random.routing.tokens(r) * random.layer.hidden * 2);
    }
}

}  // namespace
}  // namespace moesim::models::testing

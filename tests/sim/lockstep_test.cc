// Ranks in lockstep give the times of events one by one; deadlocks are named.
#include "sim/run/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "sim/run/deadlock.h"
#include "sim/run/lockstep_graph.h"
#include "sim/run/lockstep_rates.h"
#include "sim/run/simulator.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

using ::testing::HasSubstr;
using Kind = LockstepOp::Kind;

// The work of a Lockstep: several runs, each of chains whose operations are issued in some order.
struct Job {
  struct Run {
    std::vector<LockstepChain> chains;
    std::vector<LockstepPiece> order;
  };
  std::size_t ranks = 1;
  LockstepOptions options;
  std::vector<std::unique_ptr<LockstepProgram>> programs;
  std::vector<Run> runs;
};

std::unique_ptr<LockstepProgram> random_program(std::size_t ranks, bool serial) {
  auto program = std::make_unique<LockstepProgram>();
  auto groups = std::make_shared<LockstepGroups>();
  for (std::size_t size = 1; size <= ranks; size *= 2) {
    LockstepGroup blocks, strided;
    for (std::size_t r = 0; r < ranks; ++r) {
      blocks.of_rank.push_back(static_cast<std::int32_t>(r / size));
      strided.of_rank.push_back(static_cast<std::int32_t>(r % (ranks / size)));
    }
    blocks.count = strided.count = static_cast<std::int32_t>(ranks / size);
    groups->push_back(blocks);
    groups->push_back(strided);
  }
  program->groups = groups;
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    LockstepOp op;
    op.kind = *rc::gen::weightedElement<Kind>(
        {{5, Kind::compute}, {3, Kind::transfer}, {1, Kind::delay}, {1, Kind::host}, {1, Kind::nothing}});
    op.category = static_cast<Category>(*rc::gen::inRange<int>(0, 6));
    if (LockstepProgram::on_device(op.kind))
      op.stream = static_cast<std::uint8_t>(serial ? 0 : *rc::gen::inRange<int>(0, kLockstepStreams));
    if (op.kind == Kind::transfer)
      op.group = static_cast<std::int8_t>(*rc::gen::inRange<int>(-1, static_cast<int>(groups->size())));
    op.launches = *rc::gen::inRange(0, 3);
    for (std::int32_t& other : op.after) other = *rc::gen::inRange(-1, i);
    if (op.kind == Kind::host && op.after[0] < 0 && i > 0) op.after[0] = i - 1;
    op.first = static_cast<std::uint32_t>(program->ps.size());
    op.step = *rc::gen::inRange<std::uint32_t>(0, 2);
    for (std::size_t r = 0; r < (op.step ? ranks : 1); ++r)
      program->ps.push_back(*rc::gen::inRange<std::int64_t>(0, 100000));
    op.partial =
        op.step == 1 && op.kind != Kind::transfer && op.kind != Kind::nothing && *rc::gen::arbitrary<bool>();
    for (std::size_t r = 0; op.partial && r < ranks; ++r)
      if (*rc::gen::arbitrary<bool>()) program->ps[op.first + r] = -1;
    program->ops.push_back(op);
  }
  return program;
}

// Pieces of all chains, mixed at random.
std::vector<LockstepPiece> random_order(const std::vector<LockstepChain>& chains) {
  std::vector<LockstepPiece> order;
  std::vector<LockstepPiece> next(chains.size());
  for (std::size_t c = 0; c < chains.size(); ++c) next[c].chain = static_cast<std::int32_t>(c);
  for (;;) {
    std::vector<std::size_t> open;
    for (std::size_t c = 0; c < chains.size(); ++c) {
      while (static_cast<std::size_t>(next[c].program) < chains[c].size() &&
             static_cast<std::size_t>(next[c].from) ==
                 chains[c][static_cast<std::size_t>(next[c].program)]->ops.size())
        ++next[c].program, next[c].from = 0;
      if (static_cast<std::size_t>(next[c].program) < chains[c].size()) open.push_back(c);
    }
    if (open.empty()) return order;
    LockstepPiece& piece = next[*rc::gen::elementOf(open)];
    const auto size = static_cast<std::int32_t>(
        chains[static_cast<std::size_t>(piece.chain)][static_cast<std::size_t>(piece.program)]->ops.size());
    piece.to = *rc::gen::inRange(piece.from + 1, size + 1);
    order.push_back(piece);
    piece.from = piece.to;
  }
}

Job random_job(bool overlap) {
  Job job;
  job.ranks = *rc::gen::element<std::size_t>(1, 2, 4, 8);
  job.options.launch_ps = *rc::gen::inRange<std::int64_t>(0, 20000);
  if (overlap) job.options.overlap = {*rc::gen::element(1.0, 1.18, 2.5), *rc::gen::element(1.0, 1.07, 1.9)};
  const int runs = *rc::gen::inRange(1, 4);
  for (int i = 0; i < runs; ++i) {
    Job::Run run;
    run.chains.resize(static_cast<std::size_t>(*rc::gen::inRange(1, 4)));
    for (LockstepChain& chain : run.chains)
      for (int n = *rc::gen::inRange(1, 4); n > 0; --n) {
        job.programs.push_back(random_program(job.ranks, run.chains.size() == 1 && n == 1));
        chain.push_back(job.programs.back().get());
      }
    run.order = random_order(run.chains);
    job.runs.push_back(std::move(run));
  }
  return job;
}

bool is_launch(const BusySpan& span) {
  return span.activity == Activity::host && span.category == Category::host_sync;
}

// Asserts that run() and Lockstep agree on every operation of every rank, on the end, and on the booking.
void expect_equal(const Job& job) {
  LockstepGraph written(job.ranks, {job.options, {}, nullptr});
  std::vector<LockstepGraph::Tasks> tasks;
  const auto name = [](std::size_t, std::size_t, std::size_t) { return "operation"; };
  for (const Job::Run& run : job.runs) tasks.push_back(written.run(run.chains, run.order, name));
  const TaskGraph graph = written.finalize();
  const Timeline timeline = run(graph, written);
  for (std::size_t r = 0; r < job.ranks; ++r) {
    LockstepWatch watch;
    watch.rank = static_cast<int>(r);
    Lockstep lockstep(job.ranks, job.options);
    lockstep.watch(&watch);
    std::vector<BusySpan> expected;
    for (std::size_t i = 0; i < job.runs.size(); ++i) {
      lockstep.run(job.runs[i].chains, job.runs[i].order);
      for (const LockstepPiece& piece : job.runs[i].order) {
        const auto c = static_cast<std::size_t>(piece.chain), p = static_cast<std::size_t>(piece.program);
        const LockstepProgram& program = *job.runs[i].chains[c][p];
        for (auto at = static_cast<std::size_t>(piece.from); at < static_cast<std::size_t>(piece.to); ++at) {
          const LockstepOp& op = program.ops[at];
          if (op.kind == Kind::nothing || !program.runs(op, r)) continue;
          const TaskId task = tasks[i][c][p][at * job.ranks + r];
          const std::int64_t start = timeline.start(task).ps(), end = timeline.end(task).ps();
          if (op.kind == Kind::host)
            note_spans(op, start, end, 0, 0, 0, expected);
          else
            note_spans(op, 0, 0, start,
                       op.kind == Kind::transfer ? timeline.begin(graph.collective(task)).ps() : start, end,
                       expected);
        }
      }
    }
    std::int64_t end = 0;
    for (const RankSummary& rank : timeline.ranks()) end = std::max(end, rank.end.ps());
    RC_ASSERT(std::max(lockstep.end(), *std::max_element(lockstep.host().begin(), lockstep.host().end())) ==
              end);
    RankSummary booked;
    book(watch.spans, Time::from_ps(end), booked);
    const RankSummary& summary = timeline.rank(RankId(static_cast<std::uint32_t>(r)));
    RC_ASSERT(booked.breakdown == summary.breakdown);
    RC_ASSERT(booked.exposed_comm == summary.exposed_comm);
    std::erase_if(watch.spans, is_launch);  // no task of an operation; the ends and bookings hold them
    RC_ASSERT(watch.spans.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const BusySpan &is = watch.spans[i], &should = expected[i];
      RC_ASSERT(is.from == should.from && is.to == should.to && is.activity == should.activity &&
                is.category == should.category);
    }
  }
}

TEST(Lockstep, EqualsTheSimulatorOnRandomPrograms) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(rc::check([] { expect_equal(random_job(false)); }));
}

TEST(Lockstep, EqualsTheSimulatorWhereOverlapSlowsDown) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(rc::check([] { expect_equal(random_job(true)); }));
}

LockstepOp timed(LockstepProgram& program, Kind kind, std::uint8_t stream, std::int64_t ps) {
  LockstepOp op;
  op.kind = kind;
  op.stream = stream;
  op.first = static_cast<std::uint32_t>(program.ps.size());
  program.ps.push_back(ps);
  return op;
}

TEST(Lockstep, OverlapSlowsDownOnlyWhatRunsBesideSomething) {
  LockstepProgram program;
  program.ops = {timed(program, Kind::compute, 0, 300), timed(program, Kind::transfer, 1, 100)};
  EXPECT_FALSE(program.serial());
  Lockstep lockstep(1, {0, {2.0, 1.5}});
  lockstep.run({&program});
  // The transfer takes 150; in that time 75 of the computing is done, the other 225 run alone.
  EXPECT_EQ(lockstep.end(), 150 + 225);
}

// Rank 1 neither launches the first product nor waits for it, also beside a transfer that slows computing
// down.
TEST(Lockstep, SomeOperationsAreNotOfAllRanks) {
  for (const double slower : {1.0, 2.0}) {
    LockstepProgram program;
    program.ops = {timed(program, Kind::transfer, 1, 100), timed(program, Kind::compute, 0, 40),
                   timed(program, Kind::host, 0, 30), timed(program, Kind::compute, 0, 10)};
    program.ops[1].step = program.ops[2].step = 1;
    program.ops[1].partial = program.ops[2].partial = true;
    program.ps = {100, 40, -1, 30, -1, 10};
    program.ops[2].first = 3;
    program.ops[3].first = 5;
    program.ops[2].after[0] = 1;
    Lockstep lockstep(2, {5, {slower, 1}});
    lockstep.run({&program});
    // Launches of 5: rank 0 computes from 10, is read back, and launches again.
    const auto first = static_cast<std::int64_t>(40 * slower);
    EXPECT_EQ(lockstep.host()[0], 10 + first + 30 + 5);
    EXPECT_EQ(lockstep.host()[1], 5 + 5);
    EXPECT_EQ(lockstep.ready()[1], 105);
  }
}

TEST(Lockstep, AHostOperationHoldsBackWhatIsLaunchedBehindIt) {
  LockstepProgram program;
  program.ops = {timed(program, Kind::compute, 0, 1000), timed(program, Kind::host, 0, 50),
                 timed(program, Kind::compute, 0, 10)};
  program.ops[1].after[0] = 0;
  EXPECT_TRUE(program.serial());
  EXPECT_TRUE(program.waits_on_host());
  EXPECT_EQ(program.launches(), 2);
  Lockstep lockstep(1, {7, {}});
  lockstep.run({&program});
  EXPECT_EQ(lockstep.end(), 7 + 1000 + 50 + 7 + 10);
}

TEST(Lockstep, RanksStartWhenTheyAreToldTo) {
  LockstepProgram program;
  program.ops = {timed(program, Kind::transfer, 1, 5)};
  program.ops[0].group = 0;
  program.groups = std::make_shared<LockstepGroups>(LockstepGroups{{{0, 0}, 1}});
  Lockstep lockstep(2, {});
  lockstep.wait(std::vector<std::int64_t>{3, 40});
  lockstep.run({&program});
  EXPECT_EQ(lockstep.ready()[0], 45);
  EXPECT_EQ(lockstep.last_rank(), 0);
}

struct StuckJob {
  TaskGraphBuilder b;
  std::vector<StreamId> comm;
  GroupId all;

  explicit StuckJob(std::uint32_t ranks) {
    b.add_ranks(ranks);
    std::vector<RankId> members;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      members.emplace_back(r);
      comm.push_back(b.add_stream(members.back(), StreamKind::comm));
    }
    all = b.add_group(members);
  }
  CollectiveId collective(const char* label) {
    return b.add_collective(CollectiveOp::all_gather, all, uniform_traffic(8),
                            b.add_label(label, Category::dispatch));
  }
};

Deadlock deadlock_of(TaskGraphBuilder& builder) {
  const TaskGraph graph = builder.finalize();
  try {
    run(graph, TestCosts());
  } catch (const Deadlock& deadlock) {
    return deadlock;
  }
  ADD_FAILURE() << "no deadlock found";
  return Deadlock("", {});
}

TEST(Deadlock, NamesRanksOperationsAndLinesOfAMismatchedOrder) {
  StuckJob job(2);
  const CollectiveId x = job.collective("x"), y = job.collective("y");
  job.b.set_origin(job.b.add_member(job.comm[0], x, 0), 11);
  job.b.add_member(job.comm[0], y, 0);
  job.b.set_origin(job.b.add_member(job.comm[1], y, 1), 22);
  job.b.add_member(job.comm[1], x, 1);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_THAT(deadlock.what(), HasSubstr("circle"));
  EXPECT_THAT(deadlock.what(),
              HasSubstr("rank 0, comm stream: all_gather 'x' (recorded operation 11) waits for rank 1"));
  EXPECT_THAT(deadlock.what(),
              HasSubstr("rank 1, comm stream: all_gather 'y' (recorded operation 22) waits for rank 0"));
  EXPECT_THAT(deadlock.origins(), ::testing::IsSupersetOf({11u, 22u}));
}

TEST(Deadlock, NamesTheRankThatNeverCalls) {
  StuckJob job(3);
  const CollectiveId x = job.collective("x");
  job.b.add_member(job.comm[0], x, 0);
  job.b.add_member(job.comm[2], x, 2);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_THAT(deadlock.what(), HasSubstr("all_gather 'x' waits for rank 1, which never calls it"));
  EXPECT_EQ(deadlock.origins().size(), 2u);
}

TEST(Deadlock, FollowsAChainOfRanksToTheMissingOne) {
  // Rank 0 waits for rank 1 in x, rank 1 for rank 2 in y, and rank 2 never calls y.
  TaskGraphBuilder b = with_ranks(3);
  std::vector<StreamId> s;
  for (std::uint32_t r = 0; r < 3; ++r) s.push_back(b.add_stream(RankId(r), StreamKind::comm));
  const auto label = [&](const char* n) { return b.add_label(n, Category::other); };
  const GroupId g01 = b.add_group(std::vector<RankId>{RankId(0), RankId(1)});
  const GroupId g12 = b.add_group(std::vector<RankId>{RankId(1), RankId(2)});
  const CollectiveId x = b.add_collective(CollectiveOp::all_reduce, g01, uniform_traffic(1), label("x"));
  const CollectiveId y = b.add_collective(CollectiveOp::all_reduce, g12, uniform_traffic(1), label("y"));
  b.add_member(s[0], x, 0);
  b.add_member(s[1], y, 0);
  b.add_member(s[1], x, 1);
  const Deadlock deadlock = deadlock_of(b);
  EXPECT_THAT(deadlock.what(), HasSubstr("all_reduce 'y' waits for rank 2, which never calls it"));
  EXPECT_THAT(deadlock.what(), HasSubstr("rank 0"));
}

TEST(Deadlock, FindsACycleOfDependencies) {
  TaskGraphBuilder b = with_ranks(1);
  const StreamId s = b.add_stream(RankId(0), StreamKind::compute);
  const LabelId l = b.add_label("gemm", Category::expert);
  const TaskId first = b.add_compute(s, us(1), l), second = b.add_compute(s, us(1), l);
  b.add_dependency(second, first);
  EXPECT_THAT(deadlock_of(b).what(), HasSubstr("circle"));
}

TEST(Deadlock, CountsTheStreamsThatWaitBehind) {
  StuckJob job(40);
  const CollectiveId x = job.collective("x");
  for (std::uint32_t r = 1; r < 40; ++r) job.b.add_member(job.comm[r], x, r);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_EQ(deadlock.origins().size(), 39u);
  EXPECT_THAT(deadlock.what(), HasSubstr("38 more streams"));
}

}  // namespace
}  // namespace moesim::sim

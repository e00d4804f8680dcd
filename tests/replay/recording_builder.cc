#include "recording_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace moesim::replay::testing {

namespace {

constexpr double kFirstStampMs = 1000.0;
// Nodes boot at different times, so their clocks never agree.
constexpr double kNodeOffsetMs = 5000.0;
constexpr int kGpusPerNode = 8;

}  // namespace

RecordingBuilder::RecordingBuilder(const Topology& topology, traces::LineForm form)
    : topology_(topology), form_(form) {
  recording_.source = "made-by-a-test";
  auto& named = recording_.named;
  named.world = topology.world();
  named.tp = topology.tp;
  named.pp = topology.pp;
  named.ep = topology.expert;
  named.dp = topology.dp();
  named.experts = 2 * topology.expert;
  for (int rank = 0; rank < topology.world(); ++rank) {
    traces::RankRecording one;
    one.rank = rank;
    one.file = fmt::format("rank{:02}.txt", rank);
    recording_.ranks.push_back(std::move(one));
    const int node = rank / kGpusPerNode;
    clock_ms_.push_back(kFirstStampMs + kNodeOffsetMs * node);
  }
}

void RecordingBuilder::add(int rank, const OperationSpec& spec) {
  traces::Pool& pool = recording_.pool;
  traces::RankRecording& recorded = recording_.ranks.at(static_cast<std::size_t>(rank));
  double& now = clock_ms_.at(static_cast<std::size_t>(rank));
  now += spec.gap_ms;
  const double start = now;
  std::vector<traces::SubOperation> subs;
  for (const CallSpec& call : spec.calls) {
    const double begin = now + call.before_ms;
    now = begin + call.ms;
    traces::SubOperation sub;
    sub.source = pool.name(call.source);
    sub.duration = traces::Decimal::from_ms(call.ms);
    sub.timestamp = traces::Decimal::from_ms(form_ == traces::LineForm::kV2 ? begin : now);
    sub.shape = pool.shape(call.shape);
    sub.dtype = pool.name(call.dtype);
    sub.group = pool.name(call.group);
    sub.comm_func = pool.name(call.comm);
    if (!call.func_name.empty()) sub.func_name = pool.name(call.func_name);
    subs.push_back(sub);
  }
  now += spec.after_ms;
  traces::Operation line;
  line.name = pool.name(spec.name);
  line.form = form_;
  line.stage_id = topology_.of(rank).pp;
  line.batch_id = spec.batch;
  line.line = static_cast<std::uint32_t>(recorded.operations.size() + 1);
  line.state = pool.name("None");
  if (!spec.placeholder) {
    line.duration = traces::Decimal::from_ms(now - start);
    line.timestamp = traces::Decimal::from_ms(now);
  }
  line.description = pool.name("made by a test");
  line.group_kind = pool.name(spec.group);
  line.shape = spec.shape.empty() ? pool.shape_none() : pool.shape(spec.shape);
  line.dtype = pool.name(spec.dtype);
  recorded.add(line, subs);
}

traces::Recording scaling_recording(const ScalingSpec& spec) {
  const Topology& topology = spec.topology;
  RecordingBuilder builder(topology);
  builder.named().layers = spec.layers_per_stage * topology.pp;
  builder.named().hidden = spec.hidden;
  builder.named().seq = spec.tokens;
  std::size_t sample = 0;
  const auto disturbed = [&](double ms) {
    return spec.disturb == nullptr ? ms : ms * spec.disturb(sample++);
  };
  for (int rank = 0; rank < topology.world(); ++rank) {
    const Coordinates at = topology.of(rank);
    const std::int64_t sent = spec.tokens * spec.topk;
    const std::int64_t received =
        spec.received.empty() ? sent : spec.received[static_cast<std::size_t>(at.expert)];
    const auto exchange = [&](std::int64_t rows, double before_ms) {
      return CallSpec{"_profiled_all_to_all_single",
                      "all_to_all",
                      "exp",
                      {rows, spec.hidden},
                      "torch.bfloat16",
                      disturbed(before_ms),
                      0};
    };
    const auto add_probabilities = [&](OperationSpec& pass, std::int64_t rows) {
      if (!spec.probabilities) return;
      CallSpec call = exchange(rows, 0);
      call.shape = {rows};
      call.dtype = "torch.float32";
      pass.calls.push_back(std::move(call));
    };
    const auto expert_ms = [&](const LayerTimes& times) {
      return 0.2 + times.expert_per_row * static_cast<double>(received);
    };

    OperationSpec forward{.name = "forward_step"};
    double open = 0;
    for (int layer = 0; layer < spec.layers_per_stage; ++layer) {
      forward.calls.push_back({"_gather_along_first_dim_expert_parallel",
                               "allgather",
                               "exp",
                               {2 * topology.expert},
                               "torch.int64",
                               disturbed(open + spec.forward.attention),
                               0});
      forward.calls.push_back(exchange(sent, spec.forward.permute));
      add_probabilities(forward, sent);
      forward.calls.push_back(exchange(received, expert_ms(spec.forward)));
      open = spec.forward.unpermute;
    }
    forward.after_ms = disturbed(open);
    builder.add(rank, forward);
    if (at.pp == topology.pp - 1) builder.add(rank, {.name = "loss_func", .after_ms = 0.3});

    OperationSpec backward{.name = "backward_step"};
    open = 0;
    for (int layer = 0; layer < spec.layers_per_stage; ++layer) {
      backward.calls.push_back(exchange(sent, open + spec.backward.unpermute));
      backward.calls.push_back(exchange(received, expert_ms(spec.backward)));
      add_probabilities(backward, received);
      open = spec.backward.permute + spec.backward.attention;
    }
    backward.after_ms = disturbed(open);
    builder.add(rank, backward);
    builder.add(rank, {.name = "dp_allreduce",
                       .group = "dp",
                       .shape = {1000},
                       .dtype = "torch.float32",
                       .placeholder = true});
    builder.add(rank, {.name = "exp_dp_allreduce",
                       .group = "exp_dp",
                       .shape = {4000},
                       .dtype = "torch.float32",
                       .placeholder = true});
    builder.add(rank, {.name = "optimizer_step", .after_ms = disturbed(spec.optimizer_ms)});
  }
  return builder.take();
}

void keep_ranks(traces::Recording& recording, const std::vector<int>& ranks) {
  std::erase_if(recording.ranks, [&](const traces::RankRecording& rank) {
    return std::find(ranks.begin(), ranks.end(), rank.rank) == ranks.end();
  });
}

}  // namespace moesim::replay::testing

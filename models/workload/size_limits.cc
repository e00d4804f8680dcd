#include "models/workload/size_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/workload/mixers.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

// Returns the columns of the widest row that any operation reads or writes, on one rank of a plan without
// tensor parallelism.
double widest_row(const Architecture& m) {
  const Attention& t = m.attention;
  const auto n = [](std::int64_t value) { return static_cast<double>(value); };
  double heads = 0, states = 0;
  for (const Attention* a : {&m.attention, &m.windowed})
    heads = std::max(heads, n(a->heads + 2 * a->kv_heads) *
                                n(a->score_dim() + a->output_dim() + a->nope_dim + a->gate_dim));
  for (const auto& [mixer, there] : {std::pair(LayerKind::Mixer::kMamba, m.mamba.heads > 0),
                                     std::pair(LayerKind::Mixer::kLinear, m.linear.value_heads > 0),
                                     std::pair(LayerKind::Mixer::kConvolution, m.convolution.taps > 0)})
    if (there) {
      const StateMixer s = state_mixer(m, mixer);
      states = std::max(states, n(s.input) + n(s.state) + n(s.between));
    }
  double dense = n(m.dense_ffn);
  for (const std::int64_t size : m.dense_sizes) dense = std::max(dense, n(size));
  const double streams = n(2 * (2 + m.residual.streams) * m.hidden);
  return std::max({3 * n(m.hidden), streams, 3 * dense, n(t.output_groups * t.output_rank),
                   n(4 * (t.head_dim + t.index_dim)), 3 * n(m.expert_ffn), 3 * n(m.shared_ffn),
                   n(m.vocabulary), n(m.experts + m.zero_experts), heads, n(t.index_heads * t.index_dim),
                   n(t.q_rank + t.kv_rank + t.rope_dim), states});
}

// Returns the most rows that a dispatcher's options may create, as a multiple of a balanced routing's.
double most_capacity(const DispatcherSpec& spec) {
  double most = 1;
  for (const auto& [key, value] : spec.options)
    if (key.find("capacity") != std::string::npos)
      if (const auto number = parse_number(value)) most = std::max(most, *number);
  return most;
}

}  // namespace

void check_sizes(const Scenario& s) {
  // For the widest element; a collective gathers at most all rows of the group, a kernel moves twice as many.
  constexpr double kBytes = 8 * 2;
  const Parallel& p = s.parallel;
  double capacity = 1;
  for (const DispatcherSpec& spec : s.dispatchers) capacity = std::max(capacity, most_capacity(spec));
  const double tokens =
      static_cast<double>(p.micro_batch) * static_cast<double>(p.seq) / static_cast<double>(p.cp);
  const double group = static_cast<double>(p.dispatch_ranks());
  const double copies = std::max<double>(1, static_cast<double>(s.topk));
  const double rows = capacity * std::max(tokens * copies, static_cast<double>(s.model.experts)) * group;
  // An indexer's scores of a token are fp32, over half of the sequence.
  const double scores = s.model.attention.index_topk > 0 ? static_cast<double>(p.seq) : 0;
  const double bytes = rows * std::max(scores, widest_row(s.model)) * kBytes;
  if (!(bytes <= static_cast<double>(kMostSize)))
    throw InputError(
        fmt::format("scenario: found {:.0f} tokens a microbatch on a dispatch group of {:.0f} ranks and a "
                    "capacity of {:g}, "
                    "whose buffers could take {:.2g} bytes, expected at most 2^56",
                    tokens, group, capacity, bytes));
  if (!s.is_step()) return;
  const double layers =
      std::max(1.0, static_cast<double>(s.model.layers + s.model.mtp_layers) / static_cast<double>(p.pp));
  const double passes = layers * static_cast<double>(p.microbatches);
  if (passes > static_cast<double>(kMostLayerPasses))
    throw InputError(fmt::format(
        "parallel.microbatches: found {} of {:.0f} layers a stage, expected at most 2^18 layers and "
        "microbatches together",
        p.microbatches, layers));
}

}  // namespace moesim::models

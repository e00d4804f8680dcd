#include "sim/run/messages.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace moesim::sim {

namespace {

using Ps = std::int64_t;

class MessagePrice {
 public:
  explicit MessagePrice(const FlowPlan& plan) : latency_(plan.step.ps()) {
    check(plan.bandwidth > 0, "timing `messages` needs the bandwidth of a connection");
    ps_per_byte_ = 1e12 / (plan.bandwidth * plan.efficiency);
  }

  Ps operator()(std::uint64_t bytes) const {
    return latency_ + std::llround(static_cast<double>(bytes) * ps_per_byte_);
  }

 private:
  Ps latency_;
  double ps_per_byte_;
};

// One step in which member i sends to member (i + shift) % g: reached[i] is when it came to the step, sent[i]
// becomes the end of its message.
template <class Price>
void send_all(const std::vector<Ps>& reached, std::size_t shift, const Price& price, std::vector<Ps>& sent) {
  const std::size_t g = reached.size();
  const auto send = [&](std::size_t from, std::size_t to, std::size_t ahead) {
    for (std::size_t i = from; i < to; ++i)
      sent[i] = std::max(reached[i], reached[i + ahead]) + price(i, i + ahead);
  };
  send(0, g - shift, shift);
  send(g - shift, g, shift - g);  // wraps around: i + shift - g
}

// Member i has finished the step when what it sent and what (i - shift) sent to it have arrived.
void finish_step(const std::vector<Ps>& sent, std::size_t shift, std::vector<Ps>& reached) {
  const std::size_t g = sent.size();
  for (std::size_t i = 0; i < shift; ++i) reached[i] = std::max(sent[i], sent[i + g - shift]);
  for (std::size_t i = shift; i < g; ++i) reached[i] = std::max(sent[i], sent[i - shift]);
}

void pairwise(const CollectiveShape& shape, const MessagePrice& price, std::vector<Ps>& reached) {
  const std::size_t g = shape.members();
  const Traffic& traffic = shape.traffic;
  std::vector<Ps> sent(g);
  const Ps equal = traffic.kind == Traffic::Kind::uniform ? price(traffic.bytes / g) : 0;
  for (std::size_t step = 1; step < g; ++step) {
    if (traffic.kind == Traffic::Kind::uniform) {
      send_all(
          reached, step, [equal](std::size_t, std::size_t) { return equal; }, sent);
    } else {
      send_all(
          reached, step,
          [&](std::size_t from, std::size_t to) { return price(traffic.between(from, to, g)); }, sent);
    }
    finish_step(sent, step, reached);
  }
}

void direct(const CollectiveShape& shape, const MessagePrice& price, std::vector<Ps>& reached) {
  const std::size_t g = shape.members();
  const std::vector<Ps> start = reached;
  for (std::size_t from = 0; from < g; ++from) {
    for (std::size_t to = 0; to < g; ++to) {
      if (from == to) continue;
      const Ps end = std::max(start[from], start[to]) + price(shape.traffic.between(from, to, g));
      reached[from] = std::max(reached[from], end);
      reached[to] = std::max(reached[to], end);
    }
  }
}

void ring(const CollectiveShape& shape, const MessagePrice& price, std::vector<Ps>& reached) {
  const std::size_t g = shape.members();
  const Traffic& traffic = shape.traffic;
  const bool twice = shape.op == CollectiveOp::all_reduce;
  const Ps equal = price(twice ? traffic.bytes / g : traffic.bytes);
  std::vector<Ps> sent(g);
  const std::size_t steps = (g - 1) * (twice ? 2 : 1);
  for (std::size_t step = 0; step < steps; ++step) {
    if (traffic.kind == Traffic::Kind::pieces) {
      // An all-gather passes on the piece that came in the step before, its own first; a reduce-scatter
      // starts with the piece of the member before it, so that each piece ends at home.
      const std::size_t first = shape.op == CollectiveOp::all_gather ? 0 : 1;
      send_all(
          reached, 1,
          [&](std::size_t from, std::size_t) {
            return price(traffic.pieces[(from + 2 * g - step - first) % g]);
          },
          sent);
    } else {
      send_all(
          reached, 1, [equal](std::size_t, std::size_t) { return equal; }, sent);
    }
    finish_step(sent, 1, reached);
  }
}

}  // namespace

void message_times(const CollectiveShape& shape, const FlowPlan& plan, std::vector<Time>& out) {
  const std::size_t g = shape.members();
  out.assign(g, Time::kZero);
  if (g == 1) return;
  const MessagePrice price(plan);
  std::vector<Ps> reached(g, plan.launch.ps());
  const auto depth = static_cast<Ps>(std::bit_width(g - 1));
  switch (shape.op) {
    case CollectiveOp::send_recv: {
      const Ps end = reached[0] + price(shape.traffic.bytes);
      reached = {end, end};
      break;
    }
    case CollectiveOp::broadcast:  // a chain through the members, the message in pieces small enough to be in
                                   // all hops
      for (std::size_t i = 0; i < g; ++i)
        reached[i] += price(shape.traffic.bytes) + static_cast<Ps>(i == 0 ? 0 : i - 1) * plan.step.ps();
      break;
    case CollectiveOp::barrier:
      for (Ps& end : reached) end += 2 * depth * plan.step.ps();
      break;
    case CollectiveOp::all_to_all:
      if (plan.algorithm == Algorithm::pairwise)
        pairwise(shape, price, reached);
      else
        direct(shape, price, reached);
      break;
    case CollectiveOp::all_reduce:
      if (plan.algorithm == Algorithm::tree) {
        // Double binary tree: a rank sends and receives the buffer twice in all (NCCL, Sanders et al. 2009).
        for (Ps& end : reached) end += price(2 * shape.traffic.bytes) + (2 * depth - 1) * plan.step.ps();
        break;
      }
      [[fallthrough]];
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
      ring(shape, price, reached);
      break;
  }
  for (std::size_t i = 0; i < g; ++i) out[i] = Time::from_ps(reached[i]);
}

}  // namespace moesim::sim

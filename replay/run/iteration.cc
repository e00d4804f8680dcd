#include "replay/run/iteration.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/units.h"
#include "replay/recording/recorded_routing.h"
#include "sim/run/deadlock.h"

namespace moesim::replay {

namespace {

constexpr double kLongestUs = 4e12;  // over all ranks; 64 bits of picoseconds are 9.2e12

// First place of an instance, for messages about mismatches.
struct Seen {
  std::size_t plan = 0;
  std::size_t step = 0;
  std::size_t joined = 0;  // members that have joined
  std::int64_t rows = 0;   // maximum over members
};

// A communicator: calls on it match by position.
struct Channel {
  GroupKind group;
  std::vector<int> members;
  std::vector<std::size_t> instances;
  std::vector<std::size_t> next;  // by member: number of calls so far
};

// One member's description of its call.
struct Request {
  sim::CollectiveOp op;
  std::int64_t rows;
  std::uint64_t row_bytes;
  double recorded_us;
  bool inside_step;
  std::optional<double> modelled_us = std::nullopt;
  bool after_experts = false;
  bool fused = false;
  std::optional<std::int64_t> out_rows = std::nullopt;  // for an exchange: see exchanged_rows
  std::optional<StepKind> as = std::nullopt;            // for a bucket: the reduction that it belongs to
};

// Returns the output rows of an exchange, in rows of its size: exchanges pair up (dispatch and combine), and
// the output of one is the input of the other. nullopt for other calls, or without a pair.
std::optional<std::int64_t> exchanged_rows(const Step& step, std::size_t index) {
  const Call& call = step.calls[index];
  if (!is_exchange(call)) return std::nullopt;
  std::vector<std::size_t> exchanges;
  for (std::size_t c = 0; c < step.calls.size(); ++c)
    if (is_exchange(step.calls[c])) exchanges.push_back(c);
  const auto at = static_cast<std::size_t>(std::ranges::find(exchanges, index) - exchanges.begin());
  if ((at ^ 1) >= exchanges.size()) return std::nullopt;
  const Call& other = step.calls[exchanges[at ^ 1]];
  // In elements: a modelled call may be of another type than the recorded one that it belongs to.
  const std::int64_t row = call.row_elements, elements = other.rows * other.row_elements;
  return row > 0 && elements % row == 0 ? std::optional(elements / row) : std::nullopt;
}

class Matcher {
 public:
  Matcher(const Topology& topology, std::span<const RankSteps> plans) : topology_(topology), plans_(plans) {}

  // Returns the instance and member index of the next call of `rank` on its group of this kind; nullopt for a
  // group of one.
  std::optional<std::pair<std::size_t, std::size_t>> join(GroupKind kind, int rank, const Request& request,
                                                          std::size_t plan, std::size_t step) {
    const Seat seat = seat_of(kind, rank);
    if (channels_[seat.channel].members.size() < 2) return std::nullopt;
    return join(seat, request, plan, step);
  }

  // Messages from `from` to `to` in one direction, on a separate channel.
  std::pair<std::size_t, std::size_t> join_p2p(int from, int to, bool forward, int rank,
                                               const Request& request, std::size_t plan, std::size_t step) {
    const auto [at, added] = pairs_.try_emplace({from, to, forward}, channels_.size());
    if (added) channels_.push_back({GroupKind::pp, {from, to}, {}, {0, 0}});
    return join({at->second, rank == from ? std::size_t{0} : 1}, request, plan, step);
  }

  // Throws for the first call that some member never makes.
  void check_complete() const {
    for (const Channel& channel : channels_)
      for (const std::size_t instance : channel.instances) {
        if (seen_[instance].joined == channel.members.size()) continue;
        const RankSteps& plan = plans_[seen_[instance].plan];
        const Step& step = plan.steps[seen_[instance].step];
        std::string missing;
        for (std::size_t m = 0; m < channel.members.size(); ++m)
          if (channel.next[m] <= position_[instance])
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", channel.members[m]);
        throw InputError(
            place_of(plan, step),
            fmt::format("rank {} in {} number {} of its {} group, which rank {} never makes (deadlock)",
                        plan.rank, sim::name(instances_[instance].op), position_[instance] + 1,
                        replay::name(channel.group), missing),
            "the same sequence of calls on every member");
      }
  }

  std::vector<Instance>& instances() { return instances_; }

 private:
  struct Seat {
    std::size_t channel = 0, member = 0;
  };

  Seat seat_of(GroupKind kind, int rank) {
    if (const auto at = seats_.find({kind, rank}); at != seats_.end()) return at->second;
    auto members = topology_.group(kind, rank);
    const std::size_t size = members.size();
    for (std::size_t m = 0; m < size; ++m) seats_[{kind, members[m]}] = {channels_.size(), m};
    channels_.push_back({kind, std::move(members), {}, std::vector<std::size_t>(size, 0)});
    return seats_.at({kind, rank});
  }

  std::pair<std::size_t, std::size_t> join(Seat seat, const Request& request, std::size_t plan,
                                           std::size_t step) {
    Channel& channel = channels_[seat.channel];
    const std::size_t member = seat.member;
    const std::size_t position = channel.next[member]++;
    if (position == channel.instances.size()) {
      channel.instances.push_back(instances_.size());
      Instance made;
      made.op = request.op;
      made.group = channel.group;
      made.members = channel.members;
      made.rows.assign(channel.members.size(), 0);
      made.row_bytes = request.row_bytes;
      made.shortest_us = request.recorded_us;
      made.step = request.as.value_or(plans_[plan].steps[step].kind);
      made.inside_step = request.inside_step;
      made.after_experts = request.after_experts;
      instances_.push_back(std::move(made));
      seen_.push_back({plan, step, 0});
      position_.push_back(position);
    }
    const std::size_t index = channel.instances[position];
    Instance& instance = instances_[index];
    require_agreement(instance, seen_[index], request, plan, step, position);
    instance.rows[member] = request.rows;
    if (request.out_rows) {
      instance.out_rows.resize(channel.members.size(), 0);
      instance.out_rows[member] = *request.out_rows;
    }
    instance.fused = instance.fused || request.fused;
    instance.shortest_us = std::min(instance.shortest_us, request.recorded_us);
    if (request.modelled_us) {
      instance.modelled_us.resize(channel.members.size(), *request.modelled_us);
      instance.modelled_us[member] = *request.modelled_us;
    }
    ++seen_[index].joined;
    seen_[index].rows = std::max(seen_[index].rows, request.rows);
    return {index, member};
  }

  void require_agreement(const Instance& instance, const Seen& first, const Request& request,
                         std::size_t plan, std::size_t step, std::size_t position) const {
    const bool rows_may_differ = request.op == sim::CollectiveOp::all_to_all || request.modelled_us;
    const Step& mine = plans_[plan].steps[step];
    const auto describe = [](sim::CollectiveOp op, std::int64_t rows, std::uint64_t row_bytes) {
      return fmt::format("{} of {} x {} bytes", sim::name(op), rows, row_bytes);
    };
    const std::int64_t rows = first.rows;
    const bool agree = instance.op == request.op && instance.row_bytes == request.row_bytes &&
                       (rows_may_differ || first.joined == 0 || rows == request.rows);
    if (agree) return;
    const RankSteps& other = plans_[first.plan];
    const std::string there = place_of(other, other.steps[first.step]).str();
    throw InputError(place_of(plans_[plan], mine),
                     fmt::format("{} as call {} of rank {} on its {} group",
                                 describe(request.op, request.rows, request.row_bytes), position + 1,
                                 plans_[plan].rank, replay::name(instance.group)),
                     fmt::format("{} as on rank {}{}", describe(instance.op, rows, instance.row_bytes),
                                 other.rank, there.empty() ? "" : " (" + there + ")"));
  }

  const Topology& topology_;
  std::span<const RankSteps> plans_;
  std::vector<Channel> channels_;
  std::map<std::pair<GroupKind, int>, Seat> seats_;  // of every rank of a group that any of them called on
  std::map<std::tuple<int, int, bool>, std::size_t> pairs_;
  std::vector<Instance> instances_;
  std::vector<Seen> seen_;
  std::vector<std::size_t> position_;
};

}  // namespace

// Returns the category of a segment. In the AlltoAll program a layer calls gather (counts), exchange
// (dispatch), exchange (combine); backward has the two exchanges only.
sim::Category segment_category(const Step& step, std::size_t segment) {
  using enum sim::Category;
  if (!step.segment_categories.empty()) return step.segment_categories.at(segment);
  switch (step.kind) {
    case StepKind::loss:
      return loss;
    case StepKind::optimizer:
      return optimizer;
    case StepKind::forward:
    case StepKind::backward:
      break;
    default:
      return is_gradient_sync(step.kind) ? grad_sync : other;
  }
  if (segment == 0 || segment == step.calls.size()) return attention;
  if (in_experts(step, segment)) return expert;
  const Call& before = step.calls[segment - 1];
  const bool counts = before.group == GroupKind::expert && before.op == sim::CollectiveOp::all_gather;
  return counts && is_exchange(step.calls[segment]) ? permute : attention;
}

sim::Category call_category(const Step& step, std::size_t index) {
  using enum sim::Category;
  const Call& call = step.calls[index];
  if (call.category) return *call.category;
  if (step.kind == StepKind::loss) return loss;
  if (call.group == GroupKind::tp) return attention;
  if (call.op == sim::CollectiveOp::all_gather) return dispatch;
  if (call.op == sim::CollectiveOp::reduce_scatter) return combine;
  if (call.op == sim::CollectiveOp::all_reduce && call.group == GroupKind::tp_expert) return combine;
  if (call.op != sim::CollectiveOp::all_to_all) return other;
  std::size_t exchanges = 0;
  for (std::size_t c = 0; c < index; ++c)
    exchanges += step.calls[c].group == call.group && step.calls[c].op == call.op;
  return exchanges % 2 == 0 ? dispatch : combine;
}

namespace {

GroupKind gradient_group(StepKind kind) {
  if (kind == StepKind::expert_all_reduce) return GroupKind::expert_dp;
  if (kind == StepKind::embedding_all_reduce) return GroupKind::embedding;
  return GroupKind::dp;
}

class Assembler {
 public:
  Assembler(const Topology& topology, std::span<const RankSteps> plans, Pricing& pricing, sim::Detail detail,
            MatchedCalls* calls)
      : topology_(topology),
        plans_(plans),
        pricing_(pricing),
        detail_(detail),
        calls_(calls ? *calls : own_),
        matcher_(topology, plans) {}

  Iteration run() {
    check(plans_.size() == static_cast<std::size_t>(topology_.world()), "a plan for every rank");
    check_times();
    if (calls_.joined.empty()) {
      for (std::size_t p = 0; p < plans_.size(); ++p) match(p);
      matcher_.check_complete();
      calls_.instances = std::move(matcher_.instances());
    }
    builder_.add_ranks(plans_.size());
    for (const Instance& instance : calls_.instances) add_instance(instance);
    for (std::size_t p = 0; p < plans_.size(); ++p) build(p);
    return finish();
  }

 private:
  using Joined = MatchedCalls::Joined;
  static constexpr std::size_t kAlone = MatchedCalls::kAlone;

  // Recorded times must fit into the simulation's clock under any waiting.
  void check_times() const {
    double total_us = 0;
    for (const RankSteps& plan : plans_)
      for (const Step& step : plan.steps) {
        total_us += step.gap_us + step.duration_us;
        for (const double us : step.segments_us) total_us += us;
        for (const Call& call : step.calls) total_us += call.recorded_us;
        for (const Bucket& bucket : step.buckets) total_us += bucket.recorded_us;
        if (!(total_us <= kLongestUs))
          throw InputError(
              place_of(plan, step),
              fmt::format("a step with which all ranks together take {:.3g} s", total_us / kUsPerSecond),
              fmt::format("at most {:g} s", kLongestUs / kUsPerSecond));
      }
  }

  static Request request_of(const Step& step) {
    return {is_p2p(step.kind) ? sim::CollectiveOp::send_recv : sim::CollectiveOp::all_reduce, step.elements,
            static_cast<std::uint64_t>(std::max(1, step.element_bytes)), step.duration_us, false};
  }

  void match(std::size_t p) {
    const RankSteps& plan = plans_[p];
    for (std::size_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      for (const Call& call : step.calls) {
        const Request request{
            call.op,
            call.rows,
            static_cast<std::uint64_t>(call.row_elements) * static_cast<std::uint64_t>(call.element_bytes),
            call.recorded_us,
            true,
            call.modelled_us,
            in_experts(step, static_cast<std::size_t>(&call - step.calls.data())),
            false,
            exchanged_rows(step, static_cast<std::size_t>(&call - step.calls.data()))};
        note_joined(matcher_.join(call.group, plan.rank, request, p, s),
                    call_category(step, static_cast<std::size_t>(&call - step.calls.data())));
      }
      for (const Bucket& bucket : step.buckets) {
        Request request{sim::CollectiveOp::all_reduce, bucket.elements,
                        static_cast<std::uint64_t>(std::max(1, bucket.element_bytes)), bucket.recorded_us,
                        false};
        request.as = bucket.group == GroupKind::dp ? StepKind::dp_all_reduce : StepKind::expert_all_reduce;
        note_joined(matcher_.join(bucket.group, plan.rank, request, p, s), sim::Category::grad_sync);
      }
      if (is_p2p(step.kind))
        note_joined(join_p2p(p, s), sim::Category::p2p);
      else if (is_gradient_sync(step.kind) && !step.waits_for_buckets)
        note_joined(matcher_.join(gradient_group(step.kind), plan.rank, request_of(step), p, s),
                    sim::Category::grad_sync);
    }
  }

  void note_joined(std::optional<std::pair<std::size_t, std::size_t>> joined, sim::Category category) {
    calls_.joined.push_back(joined ? Joined{joined->first, joined->second} : Joined{kAlone, 0});
    if (joined && joined->first == calls_.category.size()) calls_.category.push_back(category);
  }

  std::pair<std::size_t, std::size_t> join_p2p(std::size_t p, std::size_t s) {
    const RankSteps& plan = plans_[p];
    const Step& step = plan.steps[s];
    Coordinates other = topology_.of(plan.rank);
    const bool to_next = step.kind == StepKind::send_forward || step.kind == StepKind::recv_backward;
    other.pp += to_next ? 1 : -1;
    if (other.pp < 0 || other.pp >= topology_.pp)
      throw InputError(
          place_of(plan, step),
          fmt::format("{} on stage {} of {}", name(step.kind), topology_.of(plan.rank).pp, topology_.pp),
          "a neighbour stage to talk to");
    const int peer = topology_.rank(other);
    const bool sends = step.kind == StepKind::send_forward || step.kind == StepKind::send_backward;
    const bool forward = step.kind == StepKind::send_forward || step.kind == StepKind::recv_forward;
    Request request = request_of(step);
    request.fused = step.fused_with_next || (s > 0 && plan.steps[s - 1].fused_with_next);
    return matcher_.join_p2p(sends ? plan.rank : peer, sends ? peer : plan.rank, forward, plan.rank, request,
                             p, s);
  }

  void add_instance(const Instance& instance) {
    std::vector<sim::RankId> ranks;
    for (const int rank : instance.members) ranks.emplace_back(static_cast<std::uint32_t>(rank));
    const sim::GroupId group = builder_.add_group(ranks);
    const std::size_t index = collectives_.size();
    const sim::TrafficRef traffic = pricing_.traffic(instance, index, builder_);
    launch_us_.push_back(pricing_.launch_us(instance));
    collectives_.push_back(builder_.add_collective(instance.op, group, traffic, label_of(instance)));
  }

  sim::LabelId label_of(const Instance& instance) {
    const sim::Category category = calls_.category[collectives_.size()];
    if (!instance.inside_step) return builder_.add_label(name(instance.step), category);
    return builder_.add_label(fmt::format("{} {}", sim::name(instance.op), replay::name(instance.group)),
                              category);
  }

  void build(std::size_t p) {
    const RankSteps& plan = plans_[p];
    const sim::StreamId stream =
        builder_.add_stream(sim::RankId(static_cast<std::uint32_t>(plan.rank)), sim::StreamKind::compute);
    std::optional<sim::StreamId> beside;  // for reductions that run beside computing
    std::vector<sim::TaskId> launched;    // that are not awaited yet
    bool fused = false;                   // the previous step is the first half of a fused pair
    for (const Step& step : plan.steps) {
      const std::uint32_t origin = origin_of(plan, step);
      if (step.gap_us > 0) {
        const sim::LabelId gap = builder_.add_label("host gap", sim::Category::host_sync);
        mark(builder_.add_host(stream, sim::Time::from_us(step.gap_us), gap), origin);
      }
      StepSpan span{plan.rank, step.kind, step.microbatch, step.fused_with_next, {}, {}, 0, 0};
      const auto note = [&](sim::TaskId task) {
        mark(task, origin);
        if (!span.first.valid()) span.first = task;
        span.last = task;
      };
      const std::size_t calls = next_joined_;
      const std::size_t buckets = calls + step.calls.size();
      next_joined_ = buckets + step.buckets.size();
      std::size_t next_bucket = 0;
      for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
        const sim::Category category = segment_category(step, s);
        const auto compute = [&](double us) {
          if (us <= 0) return;
          const auto [label, added] = computing_.try_emplace({step.kind, category});
          if (added)
            label->second =
                builder_.add_label(fmt::format("{} {}", name(step.kind), sim::name(category)), category);
          note(builder_.add_compute(stream, sim::Time::from_us(us), label->second));
        };
        double done = 0;
        for (; next_bucket < step.buckets.size() && step.buckets[next_bucket].segment == s; ++next_bucket) {
          const double until = std::max(done, step.buckets[next_bucket].fraction * step.segments_us[s]);
          compute(until - done);
          done = until;
          launch(calls_.joined[buckets + next_bucket], plan.rank, stream, beside, launched, origin);
        }
        compute(step.segments_us[s] - done);
        if (s == step.calls.size()) break;
        const Joined joined = calls_.joined[calls + s];
        if (joined.instance == kAlone) {
          const sim::LabelId label = builder_.add_label("call in a group of one", sim::Category::other);
          if (step.calls[s].recorded_us > 0)
            note(builder_.add_compute(stream, sim::Time::from_us(step.calls[s].recorded_us), label));
        } else {
          add_launch(stream, joined.instance, note);
          note(builder_.add_member(stream, collectives_[joined.instance],
                                   static_cast<std::uint32_t>(joined.member)));
        }
      }
      if (step.waits_for_buckets) {
        const sim::LabelId label = builder_.add_label(name(step.kind), sim::Category::grad_sync);
        note(builder_.add_host(stream, sim::Time{}, label));  // start of the wait
        const sim::TaskId wait = builder_.add_host(stream, sim::Time{}, label);
        for (const sim::TaskId bucket : launched) builder_.add_dependency(bucket, wait);
        launched.clear();
        note(wait);
      } else if (is_p2p(step.kind) || is_gradient_sync(step.kind)) {
        const Joined joined = calls_.joined[next_joined_++];
        if (joined.instance != kAlone) {
          const auto member = static_cast<std::uint32_t>(joined.member);
          if (!fused) add_launch(stream, joined.instance, note);  // one launch for both halves
          note(fused ? builder_.add_fused_member(stream, collectives_[joined.instance], member)
                     : builder_.add_member(stream, collectives_[joined.instance], member));
        } else if (step.duration_us > 0) {
          const sim::LabelId label = builder_.add_label(name(step.kind), sim::Category::grad_sync);
          note(builder_.add_compute(stream, sim::Time::from_us(step.duration_us), label));
        }
      }
      fused = step.fused_with_next;
      if (span.first.valid()) spans_.push_back(span);
    }
  }

  // Adds the host's part of a call, where it is not part of the price.
  template <class Note>
  void add_launch(sim::StreamId stream, std::size_t instance, const Note& note) {
    if (launch_us_[instance] <= 0) return;
    const sim::LabelId label = builder_.add_label("launch of a call", calls_.category[instance]);
    note(builder_.add_host(stream, sim::Time::from_us(launch_us_[instance]), label));
  }

  // A gradient bucket starts when the computing before its launch is done, on its own stream.
  void launch(const Joined& joined, int rank, sim::StreamId computing, std::optional<sim::StreamId>& beside,
              std::vector<sim::TaskId>& launched, std::uint32_t origin) {
    if (joined.instance == kAlone) return;
    if (!beside)
      beside = builder_.add_stream(sim::RankId(static_cast<std::uint32_t>(rank)), sim::StreamKind::comm);
    const sim::TaskId task = builder_.add_member(*beside, collectives_[joined.instance],
                                                 static_cast<std::uint32_t>(joined.member));
    mark(task, origin);
    const sim::TaskId before = builder_.last_on_stream(computing);
    if (before.valid()) builder_.add_dependency(before, task);
    launched.push_back(task);
  }

  std::uint32_t origin_of(const RankSteps& plan, const Step& step) {
    const SourcePlace place = place_of(plan, step);
    if (place.file.empty()) return sim::TaskId::kNone;
    if (origins_.empty() || origins_.back().line != place.line || origins_.back().file != place.file)
      origins_.push_back(place);
    return static_cast<std::uint32_t>(origins_.size() - 1);
  }

  void mark(sim::TaskId task, std::uint32_t origin) {
    if (origin != sim::TaskId::kNone) builder_.set_origin(task, origin);
  }

  Iteration finish() {
    Iteration out;
    out.topology = topology_;
    out.graph = builder_.finalize();
    sim::RunOptions options = pricing_.run_options();
    options.detail = detail_;
    out.timing = options.timing;
    try {
      out.timeline = sim::run(out.graph, pricing_.costs(), options);
    } catch (const sim::Deadlock& deadlock) {
      std::string who = deadlock.what();
      const auto& stuck = deadlock.origins();
      const SourcePlace place =
          !stuck.empty() && stuck.front() < origins_.size() ? origins_[stuck.front()] : SourcePlace{};
      throw InputError(place, who);
    }
    for (StepSpan& span : spans_) {
      span.start_us = out.timeline.start(span.first).us();
      span.end_us = out.timeline.end(span.last).us();
    }
    out.spans = std::move(spans_);
    out.origins = std::move(origins_);
    return out;
  }

  const Topology& topology_;
  std::span<const RankSteps> plans_;
  Pricing& pricing_;
  sim::Detail detail_;
  MatchedCalls own_;
  MatchedCalls& calls_;
  Matcher matcher_;
  sim::TaskGraphBuilder builder_;
  std::map<std::pair<StepKind, sim::Category>, sim::LabelId> computing_;  // labels
  std::size_t next_joined_ = 0;
  std::vector<sim::CollectiveId> collectives_;
  std::vector<double> launch_us_;  // by instance
  std::vector<StepSpan> spans_;
  std::vector<SourcePlace> origins_;
};

}  // namespace

Iteration simulate(const Topology& topology, std::span<const RankSteps> plans, Pricing& pricing,
                   sim::Detail detail, MatchedCalls* calls) {
  return Assembler(topology, plans, pricing, detail, calls).run();
}

namespace {

std::uint64_t bytes_in(const Instance& instance, std::size_t member) {
  return static_cast<std::uint64_t>(instance.rows[member]) * instance.row_bytes;
}

bool all_equal(const std::vector<std::int64_t>& values) {
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to{}) == values.end();
}

}  // namespace

sim::TrafficRef InstanceTraffic::of(const Instance& instance, sim::TaskGraphBuilder& builder) {
  const std::uint64_t first = bytes_in(instance, 0);
  switch (instance.op) {
    case sim::CollectiveOp::all_to_all:
      return exchange(instance, builder);
    case sim::CollectiveOp::reduce_scatter:
      return sim::uniform_traffic(first / instance.members.size());  // the piece of a rank
    case sim::CollectiveOp::all_gather: {
      if (all_equal(instance.rows)) return sim::uniform_traffic(first);
      std::vector<std::uint64_t> pieces;
      for (std::size_t m = 0; m < instance.rows.size(); ++m) pieces.push_back(bytes_in(instance, m));
      return sim::pieces_traffic(builder.add_pieces(pieces));
    }
    default:
      return sim::uniform_traffic(first);
  }
}

sim::TrafficRef InstanceTraffic::exchange(const Instance& instance, sim::TaskGraphBuilder& builder) {
  const std::size_t g = instance.members.size();
  const auto total = [](const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  };
  const std::int64_t all = total(instance.rows);
  const bool known = instance.out_rows.size() == g && total(instance.out_rows) == all &&
                     all <= std::numeric_limits<std::uint32_t>::max();
  if (!known && all_equal(instance.rows)) return sim::uniform_traffic(bytes_in(instance, 0));
  const auto [at, added] = matrices_.try_emplace(
      {instance.rows, known ? instance.out_rows : std::vector<std::int64_t>{}}, sim::MatrixId{});
  if (added) {
    std::vector<std::uint32_t> rows;
    if (known)
      rows = recover_split_matrix(instance.rows, instance.out_rows);
    else
      for (const std::int64_t mine : instance.rows)
        rows.insert(rows.end(), g, static_cast<std::uint32_t>(mine / static_cast<std::int64_t>(g)));
    at->second = builder.add_matrix(g, rows);
  }
  return sim::matrix_traffic(at->second, instance.row_bytes);
}

}  // namespace moesim::replay

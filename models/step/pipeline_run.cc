#include "models/step/pipeline_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {

namespace {

using Kind = PipelineSlot::Kind;
using sim::Activity;
using sim::Category;
using sim::Time;

// When the ranks of a stage do something.
using Times = std::vector<std::int64_t>;
constexpr std::int64_t kNotYet = -1;

class Run {
 public:
  Run(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
      const PipelineTransfers& transfers, std::size_t ranks, const sim::LockstepOptions& options,
      PipelinePasses& passes, bool book)
      : shape_(shape),
        schedule_(schedule),
        t_(transfers),
        ranks_(ranks),
        options_(options),
        passes_(passes),
        book_(book),
        chunks_(static_cast<std::size_t>(shape.chunks())),
        forward_end_(chunks_ * static_cast<std::size_t>(shape.microbatches) * ranks, kNotYet),
        backward_end_(forward_end_) {}

  PipelineRun all() {
    const std::size_t stages = schedule_.size();
    result_.stage_end.resize(stages);
    result_.slot_ps.resize(stages);
    result_.slot_end.resize(stages);
    for (std::size_t s = 0; s < stages; ++s) {
      stages_.emplace_back(ranks_, options_);
      plan_parameters(s);
    }
    std::vector<std::size_t> next(stages, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < stages; ++s)
        while (next[s] < schedule_[s].size() && perform(s, schedule_[s][next[s]])) ++next[s], progress = true;
    }
    for (std::size_t s = 0; s < stages; ++s) {
      // Megatron refuses all rests; some of them can be performed.
      if (next[s] < schedule_[s].size() && shape_.virtual_stages > 1 &&
          shape_.microbatches % shape_.stages != 0)
        throw InputError(fmt::format(
            "interleaved schedule: found {} microbatches with pp {} and vpp {}, expected a multiple of pp: the "
            "last {} would wait for each other",
            shape_.microbatches, shape_.stages, shape_.virtual_stages, shape_.microbatches % shape_.stages));
      check(next[s] == schedule_[s].size(), "the schedule can be performed");
      result_.stage_end[s] = finish(s);
      if (result_.stage_end[s] > result_.total) {
        result_.total = result_.stage_end[s];
        result_.critical_stage = static_cast<int>(s);
      }
    }
    const auto critical = static_cast<std::size_t>(result_.critical_stage);
    result_.critical_rank = stages_[critical].clocks.last_rank();
    if (book_) book_stage(critical);
    return std::move(result_);
  }

 private:
  struct Arrival {
    std::int64_t first = 0, last = 0;  // of the first piece and of all
  };
  struct Backward {
    std::int32_t chunk;
    std::int64_t begin, end;
  };
  struct Stage {
    Stage(std::size_t ranks, const sim::LockstepOptions& options) : clocks(ranks, options) {}
    sim::Lockstep clocks;
    std::vector<Backward> last_backward;
    std::vector<std::pair<std::int32_t, Arrival>> arrival;  // chunk, arrival of its parameters
  };

  // A pass from relative clocks: of all ranks, when they are ready, then when their hosts are; and the spans
  // of the watched rank.
  struct Pass {
    Times after;
    std::vector<sim::BusySpan> spans;
  };

  std::size_t at(std::int32_t chunk, std::int32_t microbatch) const {
    return (static_cast<std::size_t>(chunk) * static_cast<std::size_t>(shape_.microbatches) +
            static_cast<std::size_t>(microbatch)) *
           ranks_;
  }

  // Dependencies of a slot, by rank: when they finished elsewhere, and when they arrived.
  struct Wait {
    Times sent, until;
    bool known = true;
  };

  void need(Wait& wait, const Times& all, std::size_t first, std::int64_t travel) const {
    const std::span ends(all.data() + first, ranks_);
    if (ends[0] == kNotYet) {
      wait.known = false;
      return;
    }
    for (std::size_t r = 0; r < ranks_; ++r)
      if (ends[r] + travel > wait.until[r]) wait.until[r] = ends[r] + travel, wait.sent[r] = ends[r];
  }

  // Returns the transfer time between two chunks, in either direction.
  std::int64_t travel(std::int32_t lower, std::int32_t microbatch) const {
    const bool remote = shape_.stage_of(lower, microbatch) != shape_.stage_of(lower + 1, microbatch);
    return remote && !t_.send.empty() ? t_.send[static_cast<std::size_t>(lower)] : 0;
  }
  void need_forward(Wait& wait, std::int32_t chunk, std::int32_t microbatch) const {
    if (chunk > 0) need(wait, forward_end_, at(chunk - 1, microbatch), travel(chunk - 1, microbatch));
  }
  void need_backward(Wait& wait, std::int32_t chunk, std::int32_t microbatch) const {
    need(wait, forward_end_, at(chunk, microbatch), 0);
    if (static_cast<std::size_t>(chunk) + 1 < chunks_)
      need(wait, backward_end_, at(chunk + 1, microbatch), travel(chunk, microbatch));
  }

  // The reference is valid until the next call: this runs for every slot, and vectors of a few numbers cost as much as it.
  const Wait& wait_of(const PipelineSlot& slot) {
    Wait& wait = wait_;
    wait.sent.assign(ranks_, 0), wait.until.assign(ranks_, 0);
    wait.known = true;
    switch (slot.kind) {
      case Kind::kForward:
        need_forward(wait, slot.chunk, slot.microbatch);
        break;
      case Kind::kBackward:
      case Kind::kInputGradient:
        need_backward(wait, slot.chunk, slot.microbatch);
        break;
      case Kind::kWeightGradient:
        need(wait, backward_end_, at(slot.chunk, slot.microbatch), 0);
        break;
      case Kind::kOverlapped:
        need_forward(wait, slot.chunk, slot.microbatch);
        need_backward(wait, slot.back_chunk, slot.back_microbatch);
        break;
    }
    return wait;
  }

  static bool runs_forward(const PipelineSlot& slot) {
    return slot.kind == Kind::kForward || slot.kind == Kind::kOverlapped;
  }

  // Records spans of the watched rank outside of passes: idle with its cause, or transferring.
  void note(sim::LockstepWatch* watch, std::int64_t from, std::int64_t to, Activity activity,
            Category category) const {
    if (watch && to > from)
      watch->spans.push_back({Time::from_ps(from), Time::from_ps(to), activity, category,
                              static_cast<std::uint32_t>(watch->spans.size())});
  }

  // Makes the stage's ranks wait for the slot's dependencies. Books idle time by cause: not finished
  // elsewhere, then the transfer, then parameters.
  void enter(Stage& stage, const Wait& wait, const Arrival& parameters, sim::LockstepWatch* watch) const {
    if (watch) {
      const auto r = static_cast<std::size_t>(watch->rank);
      std::int64_t now = stage.clocks.ready()[r];
      note(watch, now, wait.sent[r], Activity::peer, Category::bubble);
      now = std::max(now, wait.sent[r]);
      note(watch, now, wait.until[r], Activity::transferring, Category::p2p);
      now = std::max(now, wait.until[r]);
      note(watch, now, parameters.first, Activity::transferring, Category::grad_sync);
    }
    stage.clocks.wait(wait.until);
    if (parameters.first > 0) stage.clocks.wait(Times(ranks_, parameters.first));
  }

  // Extends the pass by its gathers, reductions and remaining waits.
  void stretch(Stage& stage, const PipelineSlot& slot, std::int64_t begin, const Arrival& parameters,
               sim::LockstepWatch* watch) const {
    const std::int64_t end = stage.clocks.end(), duration = end - begin;
    std::int64_t more = 0;
    if (runs_forward(slot)) {
      // The last piece of parameters computes after its arrival, and the chunk's own collectives share its
      // link.
      const std::int64_t left = std::max(duration / pieces(slot.chunk), on_link(t_.forward_link, slot.chunk));
      more = std::max(
          {std::int64_t{0}, parameters.last + left - end, slowed(parameters.last - begin, duration)});
    }
    if (!t_.sharded.empty()) {
      const bool back = slot.kind != Kind::kForward;
      const auto& s =
          t_.sharded[static_cast<std::size_t>(slot.kind == Kind::kOverlapped ? slot.back_chunk : slot.chunk)];
      const std::int64_t room =
          std::max<std::int64_t>(0, duration - (back ? s.backward_link : s.forward_link));
      const std::int64_t hides = back ? s.backward : s.forward - s.exposed;
      more = std::max(more, (back ? 0 : s.exposed) + std::max(hides - room, slowed(hides, room)));
    }
    const std::int64_t collectives = more;
    if (!t_.offloaded.empty() && slot.kind != Kind::kWeightGradient) {
      std::int64_t sent = t_.offloaded[static_cast<std::size_t>(slot.chunk)];
      if (slot.kind == Kind::kOverlapped)
        sent = std::max(sent, t_.offloaded[static_cast<std::size_t>(slot.back_chunk)]);
      more = std::max(more, sent - duration);
    }
    if (more <= 0) return;
    Times later(stage.clocks.ready().begin(), stage.clocks.ready().end());
    if (watch) {
      const std::int64_t from = later[static_cast<std::size_t>(watch->rank)];
      note(watch, from, from + collectives, Activity::transferring, Category::grad_sync);
      note(watch, from + collectives, from + more, Activity::transferring, Category::other);
    }
    for (std::int64_t& when : later) when += more;
    stage.clocks.wait(later);
  }

  // Returns how much longer a pass of `duration` computes beside collectives of `hidden`.
  std::int64_t slowed(std::int64_t hidden, std::int64_t duration) const {
    return std::llround((t_.computing_slower - 1) *
                        static_cast<double>(std::clamp<std::int64_t>(hidden, 0, duration)));
  }

  // Returns the host's part in a numbered slot, which slots of equal numbers share.
  PipelinePasses::Host host_of(std::size_t s, const PipelineSlot& slot, std::uint64_t id) {
    const auto known = hosts_.find(id);
    return known != hosts_.end() ? known->second
                                 : hosts_.emplace(id, passes_.host(static_cast<int>(s), slot)).first->second;
  }

  // Runs a pass from clocks relative to the rank that is ready last. `watched`: a rank; -1: none.
  Pass run_pass(std::size_t s, const PipelineSlot& slot, const Times& key, int watched) {
    sim::Lockstep clocks(ranks_, options_);
    Times ready(key.begin() + 1, key.begin() + 1 + static_cast<std::ptrdiff_t>(ranks_));
    Times ahead(key.begin() + 1 + static_cast<std::ptrdiff_t>(ranks_), key.end());
    // Clocks stay non-negative.
    const std::int64_t lowest = std::min(*std::min_element(ready.begin(), ready.end()),
                                         *std::min_element(ahead.begin(), ahead.end()));
    for (auto* all : {&ready, &ahead})
      for (std::int64_t& when : *all) when -= lowest;
    clocks.set(ready, ahead);
    sim::LockstepWatch own;
    if (watched >= 0) own.rank = watched, clocks.watch(&own);
    passes_.run(static_cast<int>(s), slot, clocks);
    Pass pass;
    for (const std::int64_t when : clocks.ready()) pass.after.push_back(when + lowest);
    for (const std::int64_t when : clocks.host()) pass.after.push_back(when + lowest);
    for (sim::BusySpan& span : own.spans) {
      span.from += Time::from_ps(lowest);
      span.to += Time::from_ps(lowest);
    }
    pass.spans = std::move(own.spans);
    return pass;
  }

  // Equal passes from equal clocks end on equal clocks: run once. Clocks are relative to the rank that is
  // ready last; a host that is ahead by more than the pass launches is ahead enough.
  void run_slot(std::size_t s, const PipelineSlot& slot, Stage& stage, sim::LockstepWatch* watch) {
    const auto id = passes_.same(static_cast<int>(s), slot);
    if (!id) {
      stage.clocks.watch(watch);
      passes_.run(static_cast<int>(s), slot, stage.clocks);
      return;
    }
    const PipelinePasses::Host host = host_of(s, slot, *id);
    const std::int64_t base = stage.clocks.end();
    const auto relative_host = [&](std::size_t r) {
      return std::max(stage.clocks.host()[r], stage.clocks.ready()[r] - host.launching_ps) - base;
    };
    Times& key = key_;
    key.assign(1, static_cast<std::int64_t>(*id));
    for (const std::int64_t ready : stage.clocks.ready()) key.push_back(ready - base);
    for (std::size_t r = 0; r < ranks_; ++r) key.push_back(relative_host(r));
    // The only rank is the one that is watched later.
    const int watched = watch ? watch->rank : book_ && ranks_ == 1 ? 0 : -1;
    auto& passes = watched >= 0 ? watched_ : known_;
    auto known = passes.find(key);
    if (known == passes.end()) known = passes.emplace(key, run_pass(s, slot, key, watched)).first;
    const Pass& pass = known->second;
    if (watch) {
      // Launches of a host that is ahead lie before the pass; they move with its clock.
      const auto r = static_cast<std::size_t>(watch->rank);
      const Time begins = Time::from_ps(stage.clocks.ready()[r] - base);
      const std::int64_t earlier = stage.clocks.host()[r] - base - relative_host(r);
      for (sim::BusySpan span : pass.spans) {
        const Time by = Time::from_ps(span.to <= begins ? base + earlier : base);
        span.from += by;
        span.to += by;
        span.order = static_cast<std::uint32_t>(watch->spans.size());
        watch->spans.push_back(span);
      }
    }
    ready_.resize(ranks_), ahead_.resize(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      ready_[r] = base + pass.after[r];
      ahead_[r] = host.waits ? base + pass.after[ranks_ + r] : stage.clocks.host()[r] + host.launching_ps;
    }
    stage.clocks.set(ready_, ahead_);
  }

  bool perform(std::size_t s, const PipelineSlot& slot) {
    const Wait& wait = wait_of(slot);
    if (!wait.known) return false;
    Stage& stage = stages_[s];
    const Arrival parameters = runs_forward(slot) ? arrival(stage, slot.chunk) : Arrival{};
    enter(stage, wait, parameters, nullptr);
    const std::int64_t begin = stage.clocks.end();
    run_slot(s, slot, stage, nullptr);
    result_.slot_ps[s].push_back(stage.clocks.end() - begin);
    result_.slot_end[s].push_back(stage.clocks.end());
    stretch(stage, slot, begin, parameters, nullptr);
    const auto keep = [&](Times& ends, std::int32_t chunk, std::int32_t microbatch) {
      std::ranges::copy(stage.clocks.ready(), ends.data() + at(chunk, microbatch));
    };
    if (runs_forward(slot)) keep(forward_end_, slot.chunk, slot.microbatch);
    switch (slot.kind) {
      case Kind::kForward:
        break;
      case Kind::kBackward:
        keep(backward_end_, slot.chunk, slot.microbatch);
        note_backward(stage, slot.chunk, begin);
        break;
      case Kind::kInputGradient:
        keep(backward_end_, slot.chunk, slot.microbatch);
        break;
      case Kind::kWeightGradient:
        note_backward(stage, slot.chunk, begin);
        break;
      case Kind::kOverlapped:
        keep(backward_end_, slot.back_chunk, slot.back_microbatch);
        note_backward(stage, slot.back_chunk, begin);
        break;
    }
    return true;
  }

  std::int32_t pieces(std::int32_t chunk) const {
    return t_.pieces.empty() ? 1 : t_.pieces[static_cast<std::size_t>(chunk)];
  }
  static std::int64_t on_link(const Times& by_chunk, std::int32_t chunk) {
    return by_chunk.empty() ? 0 : by_chunk[static_cast<std::size_t>(chunk)];
  }

  static void note_backward(Stage& stage, std::int32_t chunk, std::int64_t begin) {
    const Backward last{chunk, begin, stage.clocks.end()};
    for (Backward& b : stage.last_backward)
      if (b.chunk == chunk) {
        b = last;
        return;
      }
    stage.last_backward.push_back(last);
  }

  // Parameters arrive in the order in which the stage's chunks first run.
  void plan_parameters(std::size_t s) {
    if (t_.parameters.empty()) return;
    auto& arrivals = stages_[s].arrival;
    std::int64_t when = 0;
    for (const PipelineSlot& slot : schedule_[s]) {
      if (!runs_forward(slot)) continue;
      if (std::any_of(arrivals.begin(), arrivals.end(), [&](const auto& a) { return a.first == slot.chunk; }))
        continue;
      const std::int64_t whole = t_.parameters[static_cast<std::size_t>(slot.chunk)];
      arrivals.push_back({slot.chunk, {when + whole / pieces(slot.chunk), when + whole}});
      when += whole;
    }
    if (!t_.parameters_overlap)
      for (auto& [chunk, arrives] : arrivals) arrives = {when, 0};
  }

  static Arrival arrival(const Stage& stage, std::int32_t chunk) {
    for (const auto& [c, when] : stage.arrival)
      if (c == chunk) return when;
    return {};
  }

  // Returns when the stage's gradients have arrived.
  std::int64_t gradients_end(Stage& stage) const {
    const std::int64_t free = stage.clocks.end();
    if (t_.gradients.empty()) return free;
    std::int64_t travelled = t_.gradients_overlap ? 0 : free, slower = 0;
    std::sort(stage.last_backward.begin(), stage.last_backward.end(),
              [](const Backward& a, const Backward& b) { return a.end < b.end; });
    for (const Backward& b : stage.last_backward) {
      const std::int64_t whole = t_.gradients[static_cast<std::size_t>(b.chunk)],
                         piece = whole / pieces(b.chunk);
      // The first piece leaves when its layers are done, the last one after the whole chunk.
      const std::int64_t begin =
          std::min(b.end, b.begin + (b.end - b.begin) / pieces(b.chunk) + on_link(t_.backward_link, b.chunk));
      const std::int64_t leaves = std::max(travelled, begin);
      slower += slowed(std::min(whole, free - leaves), b.end - b.begin);
      travelled = std::max(leaves + whole, b.end + piece);
    }
    return std::max(free + slower, travelled);
  }

  std::int64_t optimizer(std::size_t s) const { return t_.optimizer.empty() ? 0 : t_.optimizer[s]; }
  std::int64_t finish(std::size_t s) { return gradients_end(stages_[s]) + optimizer(s); }

  // Goes through one stage again with known arrivals and books its critical rank.
  void book_stage(std::size_t s) {
    const std::int64_t gradients = gradients_end(stages_[s]);
    Stage again(ranks_, options_);
    again.arrival = stages_[s].arrival;
    sim::LockstepWatch watch;
    watch.rank = result_.critical_rank;
    for (const PipelineSlot& slot : schedule_[s]) {
      const Arrival parameters = runs_forward(slot) ? arrival(again, slot.chunk) : Arrival{};
      enter(again, wait_of(slot), parameters, &watch);
      const std::int64_t begin = again.clocks.end();
      run_slot(s, slot, again, &watch);
      stretch(again, slot, begin, parameters, &watch);
    }
    const std::int64_t mine = again.clocks.ready()[static_cast<std::size_t>(watch.rank)];
    note(&watch, mine, again.clocks.end(), Activity::straggling, Category::straggler_wait);
    note(&watch, again.clocks.end(), gradients, Activity::transferring, Category::grad_sync);
    note(&watch, gradients, gradients + optimizer(s), Activity::computing, Category::optimizer);
    sim::book(watch.spans, Time::from_ps(result_.total), result_.booked);
  }

  const PipelineShape& shape_;
  const std::vector<std::vector<PipelineSlot>>& schedule_;
  const PipelineTransfers& t_;
  std::size_t ranks_;
  const sim::LockstepOptions& options_;
  PipelinePasses& passes_;
  bool book_;
  std::size_t chunks_;
  Times forward_end_, backward_end_;  // [chunk][microbatch][rank]
  Wait wait_;
  Times key_, ready_, ahead_;  // of run_slot()
  std::vector<Stage> stages_;
  std::map<Times, Pass> known_, watched_;  // by number and clocks of the slot
  std::map<std::uint64_t, PipelinePasses::Host> hosts_;
  PipelineRun result_;
};

}  // namespace

PipelineRun run_pipeline(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
                         const PipelineTransfers& transfers, std::size_t ranks,
                         const sim::LockstepOptions& options, PipelinePasses& passes, bool book) {
  return Run(shape, schedule, transfers, ranks, options, passes, book).all();
}

}  // namespace moesim::models

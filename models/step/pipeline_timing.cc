#include "models/step/pipeline_timing.h"

#include <algorithm>

#include "base/check.h"

namespace moesim::models {

namespace {

using Kind = PipelineSlot::Kind;
constexpr std::int64_t kNotYet = -1;

class Recursion {
 public:
  Recursion(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
            const PipelineTimes& times)
      : shape_(shape),
        schedule_(schedule),
        times_(times),
        chunks_(static_cast<std::size_t>(shape.chunks())),
        forward_end_(chunks_ * static_cast<std::size_t>(shape.microbatches), kNotYet),
        backward_end_(forward_end_.size(), kNotYet) {}

  PipelineTiming run() {
    const std::size_t stages = schedule_.size();
    timing_.stages.resize(stages);
    free_.assign(stages, 0);
    last_backward_.assign(stages, {});
    arrival_.assign(stages, {});
    for (std::size_t s = 0; s < stages; ++s) plan_parameters(s);
    std::vector<std::size_t> next(stages, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < stages; ++s)
        while (next[s] < schedule_[s].size() && perform(s, schedule_[s][next[s]])) ++next[s], progress = true;
    }
    for (std::size_t s = 0; s < stages; ++s) {
      check(next[s] == schedule_[s].size(), "the schedule can be performed");
      finish(s);
    }
    for (std::size_t s = 0; s < stages; ++s)
      if (timing_.stages[s].end > timing_.total)
        timing_.total = timing_.stages[s].end, timing_.critical_stage = static_cast<int>(s);
    return std::move(timing_);
  }

 private:
  std::size_t at(std::int32_t chunk, std::int32_t microbatch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(shape_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }

  struct Wait {
    std::int64_t until = 0;
    std::int64_t sent = 0;  // when what it waits for was finished, before it travelled
    bool known = true;
  };

  void need(Wait& wait, std::int64_t end, bool travels) const {
    if (end == kNotYet) {
      wait.known = false;
      return;
    }
    const std::int64_t until = end + (travels ? times_.send : 0);
    if (until > wait.until) wait.until = until, wait.sent = end;
  }

  bool remote(int a, int b) const { return a != b; }

  void need_forward(Wait& wait, std::int32_t chunk, std::int32_t microbatch) const {
    if (chunk == 0) return;
    need(wait, forward_end_[at(chunk - 1, microbatch)],
         remote(shape_.stage_of(chunk - 1, microbatch), shape_.stage_of(chunk, microbatch)));
  }

  void need_backward(Wait& wait, std::int32_t chunk, std::int32_t microbatch) const {
    need(wait, forward_end_[at(chunk, microbatch)], false);
    if (static_cast<std::size_t>(chunk) + 1 == chunks_) return;
    need(wait, backward_end_[at(chunk + 1, microbatch)],
         remote(shape_.stage_of(chunk + 1, microbatch), shape_.stage_of(chunk, microbatch)));
  }

  bool perform(std::size_t s, const PipelineSlot& slot) {
    Wait wait;
    std::int64_t duration = 0;
    Arrival parameters;
    switch (slot.kind) {
      case Kind::kForward:
        need_forward(wait, slot.chunk, slot.microbatch);
        duration = times_.forward[slot.chunk];
        parameters = arrival(s, slot.chunk);
        break;
      case Kind::kBackward:
        need_backward(wait, slot.chunk, slot.microbatch);
        duration = times_.backward[slot.chunk];
        break;
      case Kind::kInputGradient:
        need_backward(wait, slot.chunk, slot.microbatch);
        duration = times_.input_gradient[slot.chunk];
        break;
      case Kind::kWeightGradient:
        need(wait, backward_end_[at(slot.chunk, slot.microbatch)], false);
        duration = times_.weight_gradient[slot.chunk];
        break;
      case Kind::kOverlapped:
        need_forward(wait, slot.chunk, slot.microbatch);
        need_backward(wait, slot.back_chunk, slot.back_microbatch);
        duration = times_.overlapped[static_cast<std::size_t>(slot.chunk) * chunks_ +
                                     static_cast<std::size_t>(slot.back_chunk)];
        parameters = arrival(s, slot.chunk);
        break;
    }
    if (!wait.known) return false;
    StageTiming& stage = timing_.stages[s];
    std::int64_t now = free_[s];
    // Idle time by cause: what was not finished elsewhere, then its way here, then parameters.
    if (wait.sent > now) stage.bubble += wait.sent - now, now = wait.sent;
    if (wait.until > now) stage.sends += wait.until - now, now = wait.until;
    if (parameters.first > now) stage.parameters += parameters.first - now, now = parameters.first;
    // The last piece computes when it has come, and the chunk's own collectives share its link.
    const std::int64_t left =
        std::max(duration / pieces(slot.chunk), on_link(times_.forward_link, slot.chunk));
    const std::int64_t late = std::max<std::int64_t>(0, parameters.last + left - (now + duration));
    stage.parameters += late;
    const std::int64_t end = now + duration + late;
    stage.computing += duration;
    free_[s] = end;
    switch (slot.kind) {
      case Kind::kForward:
        forward_end_[at(slot.chunk, slot.microbatch)] = end;
        break;
      case Kind::kBackward:
        backward_end_[at(slot.chunk, slot.microbatch)] = end;
        note_backward(s, slot.chunk, now, end);
        break;
      case Kind::kInputGradient:
        backward_end_[at(slot.chunk, slot.microbatch)] = end;
        break;
      case Kind::kWeightGradient:
        note_backward(s, slot.chunk, now, end);
        break;
      case Kind::kOverlapped:
        forward_end_[at(slot.chunk, slot.microbatch)] = end;
        backward_end_[at(slot.back_chunk, slot.back_microbatch)] = end;
        note_backward(s, slot.back_chunk, now, end);
        break;
    }
    return true;
  }

  struct Arrival {
    std::int64_t first = 0, last = 0;  // of the first piece and of all
  };
  struct Backward {
    std::int32_t chunk;
    std::int64_t begin, end;
  };

  std::int32_t pieces(std::int32_t chunk) const { return times_.pieces.empty() ? 1 : times_.pieces[chunk]; }

  static std::int64_t on_link(const std::vector<std::int64_t>& by_chunk, std::int32_t chunk) {
    return by_chunk.empty() ? 0 : by_chunk[static_cast<std::size_t>(chunk)];
  }

  void note_backward(std::size_t s, std::int32_t chunk, std::int64_t begin, std::int64_t end) {
    for (Backward& b : last_backward_[s])
      if (b.chunk == chunk) {
        b = {chunk, begin, end};
        return;
      }
    last_backward_[s].push_back({chunk, begin, end});
  }

  // Parameters come in the order in which the stage's chunks first run.
  void plan_parameters(std::size_t s) {
    if (times_.parameters.empty()) return;
    std::int64_t when = 0;
    for (const PipelineSlot& slot : schedule_[s]) {
      if (slot.kind != Kind::kForward && slot.kind != Kind::kOverlapped) continue;
      const auto known = std::any_of(arrival_[s].begin(), arrival_[s].end(),
                                     [&](const auto& a) { return a.first == slot.chunk; });
      if (known) continue;
      const std::int64_t first = when + times_.parameters[slot.chunk] / pieces(slot.chunk);
      when += times_.parameters[slot.chunk];
      arrival_[s].push_back({slot.chunk, {first, when}});
    }
    if (!times_.parameters_overlap)
      for (auto& [chunk, arrives] : arrival_[s]) arrives = {when, 0};
  }

  // Once: later microbatches find the parameters.
  Arrival arrival(std::size_t s, std::int32_t chunk) const {
    for (const auto& [c, when] : arrival_[s])
      if (c == chunk) return when;
    return {};
  }

  void finish(std::size_t s) {
    StageTiming& stage = timing_.stages[s];
    std::int64_t travelled = times_.gradients_overlap ? 0 : free_[s];
    if (!times_.gradients.empty()) {
      std::sort(last_backward_[s].begin(), last_backward_[s].end(),
                [](const Backward& a, const Backward& b) { return a.end < b.end; });
      for (const Backward& b : last_backward_[s]) {
        const std::int64_t whole = times_.gradients[b.chunk], piece = whole / pieces(b.chunk);
        // The first piece leaves when its layers are done, the last one after the whole chunk.
        const std::int64_t begin = std::min(
            b.end, b.begin + (b.end - b.begin) / pieces(b.chunk) + on_link(times_.backward_link, b.chunk));
        travelled = std::max(std::max(travelled, begin) + whole, b.end + piece);
      }
    }
    stage.gradients = std::max<std::int64_t>(0, travelled - free_[s]);
    stage.optimizer = times_.optimizer.empty() ? 0 : times_.optimizer[s];
    stage.end = free_[s] + stage.gradients + stage.optimizer;
  }

  const PipelineShape& shape_;
  const std::vector<std::vector<PipelineSlot>>& schedule_;
  const PipelineTimes& times_;
  std::size_t chunks_;
  std::vector<std::int64_t> forward_end_, backward_end_;                // [chunk][microbatch]
  std::vector<std::int64_t> free_;                                      // by stage
  std::vector<std::vector<Backward>> last_backward_;                    // by stage
  std::vector<std::vector<std::pair<std::int32_t, Arrival>>> arrival_;  // by stage: chunk, when
  PipelineTiming timing_;
};

}  // namespace

PipelineTiming time_pipeline(const PipelineShape& shape,
                             const std::vector<std::vector<PipelineSlot>>& schedule,
                             const PipelineTimes& times) {
  return Recursion(shape, schedule, times).run();
}

}  // namespace moesim::models

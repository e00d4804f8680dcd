#include "tools/moesim/show/pipeline_picture.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace moesim::tools {

namespace {

using Kind = models::PipelineSlot::Kind;
using models::SlotTrace;
using nlohmann::ordered_json;

bool has_forward(const SlotTrace& slot) {
  return slot.slot.kind == Kind::kForward || slot.slot.kind == Kind::kOverlapped;
}

// The time until every stage has run one backward, and the time from which the first of them begins its last
// forward pass.
struct Edges {
  std::int64_t filled = 0, draining = 0;
};

Edges edges_of(const std::vector<SlotTrace>& slots, int stages, std::int64_t end) {
  Edges edges{0, end};
  for (int stage = 0; stage < stages; ++stage) {
    std::int64_t filled = -1, last = -1;
    for (const SlotTrace& slot : slots) {
      if (slot.stage != stage) continue;
      if (slot.slot.kind != Kind::kForward && filled < 0) filled = slot.to;
      if (has_forward(slot)) last = slot.from;
    }
    edges.filled = std::max(edges.filled, filled);
    if (last >= 0) edges.draining = std::min(edges.draining, last);
  }
  return edges;
}

std::vector<PipelinePicture::Window> windows_of(const models::Answer& forecast, int stages,
                                                std::int64_t end) {
  const auto longest = static_cast<std::int64_t>(forecast.slots.size()) / std::max(1, stages);
  if (longest <= kPicturePasses) return {{"all", 0, end}};
  const Edges edges = edges_of(forecast.slots, stages, end);
  const std::int64_t pass = end / longest;
  const std::int64_t length = std::min(
      std::clamp(std::max(edges.filled, end - edges.draining), 8 * pass, kPicturePasses * pass), end / 3);
  const std::int64_t middle = (end - length) / 2;
  return {{"first", 0, length}, {"middle", middle, middle + length}, {"last", end - length, end}};
}

// Returns all stages, or an even selection with the first and the last.
std::vector<int> rows_of(int stages) {
  std::vector<int> rows;
  const int shown = std::min(stages, kPictureRows);
  for (int i = 0; i < shown; ++i) rows.push_back(shown > 1 ? i * (stages - 1) / (shown - 1) : 0);
  return rows;
}

}  // namespace

PipelinePicture pipeline_picture(const models::Answer& forecast) {
  PipelinePicture p;
  p.title = forecast.dispatcher;
  p.stages = static_cast<int>(forecast.stage_end.size());
  p.critical_stage = forecast.critical_stage;
  p.passes = forecast.slots.size();
  for (const std::int64_t one : forecast.stage_end) p.end = std::max(p.end, one);
  for (const SlotTrace& slot : forecast.slots) {
    p.microbatches = std::max(p.microbatches, slot.slot.microbatch + 1);
    p.chunks = std::max(p.chunks, slot.slot.chunk + 1);
  }
  p.rows = rows_of(p.stages);
  p.windows = windows_of(forecast, p.stages, p.end);
  for (const int stage : p.rows) {
    std::int64_t busy = 0, last = 0;
    for (const SlotTrace& slot : forecast.slots) {
      if (slot.stage != stage) continue;
      busy += slot.to - slot.from;
      last = std::max(last, slot.to);
      if (std::any_of(p.windows.begin(), p.windows.end(),
                      [&](const PipelinePicture::Window& w) { return slot.to > w.from && slot.from < w.to; }))
        p.boxes.push_back(slot);
    }
    const std::int64_t to = forecast.stage_end[static_cast<std::size_t>(stage)];
    p.after_from.push_back(last);
    p.after_to.push_back(to);
    p.idle.push_back(1 - static_cast<double>(busy + to - last) /
                             static_cast<double>(std::max<std::int64_t>(1, p.end)));
  }
  return p;
}

ordered_json pipeline_json(const PipelinePicture& p) {
  const auto us = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
  ordered_json windows = ordered_json::array(), rows = ordered_json::array(), boxes = ordered_json::array();
  for (const PipelinePicture::Window& w : p.windows)
    windows.push_back({{"what", w.what}, {"from_us", us(w.from)}, {"to_us", us(w.to)}});
  for (std::size_t i = 0; i < p.rows.size(); ++i)
    rows.push_back({{"stage", p.rows[i]},
                    {"after_from_us", us(p.after_from[i])},
                    {"after_to_us", us(p.after_to[i])},
                    {"idle", p.idle[i]}});
  // A list each: [stage, kind, microbatch, chunk, from, to], and microbatch and chunk of the backward half.
  for (const SlotTrace& box : p.boxes) {
    ordered_json one{box.stage,           models::name_of(box.slot.kind),
                     box.slot.microbatch, box.slot.chunk,
                     us(box.from),        us(box.to)};
    if (box.slot.kind == Kind::kOverlapped) {
      one.push_back(box.slot.back_microbatch);
      one.push_back(box.slot.back_chunk);
    }
    boxes.push_back(std::move(one));
  }
  return {{"title", p.title},
          {"stages", p.stages},
          {"microbatches", p.microbatches},
          {"chunks", p.chunks},
          {"critical_stage", p.critical_stage},
          {"end_us", us(p.end)},
          {"passes", p.passes},
          {"windows", std::move(windows)},
          {"rows", std::move(rows)},
          {"boxes", std::move(boxes)}};
}

}  // namespace moesim::tools

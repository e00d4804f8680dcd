// Timelines for display: tracks of slices, arrows and counters, from a simulation, a comparison or a
// recording. The Chrome trace (timeline_json.h) and the report (report.h) are both drawn from this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/answers/answer.h"
#include "replay/recording/steps.h"
#include "replay/run/iteration.h"
#include "sim/graph/task_graph.h"
#include "sim/run/timeline.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

// Repeated texts, stored once and numbered in order of first use.
class TextPool {
 public:
  std::uint32_t add(std::string_view text);
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, std::uint32_t, std::less<>> index_;
  std::vector<std::string> list_;
};

struct TimelineView {
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Slice {
    std::uint32_t name = 0;  // index into `names`
    sim::Category category = sim::Category::other;
    std::int64_t from_ps = 0;
    std::int64_t to_ps = 0;
    std::uint32_t note = kNone;  // index into `notes`: cause of its wait
  };
  struct Track {  // slices are in order and do not overlap
    int rank = 0;
    std::string stream;
    std::vector<Slice> slices;
  };
  // From a slice that made others wait, or from the sender to the receiver.
  struct Arrow {
    std::uint32_t from_track = 0, to_track = 0;
    std::int64_t from_ps = 0, to_ps = 0;
    std::uint32_t name = 0;
    bool message = false;  // point to point
  };
  struct Counter {
    int rank = 0;
    std::string name;  // with its unit: "memory [GB]"
    std::vector<std::pair<std::int64_t, double>> points;
  };
  struct Link {
    std::string name;
    double bytes = 0, utilisation = 0;
  };

  std::string title;        // "forecast", "measured", a dispatcher
  std::string of = "rank";  // owner of the tracks: a rank, or a pipeline stage
  int ranks = 0;            // in the job; stages of a pipeline
  std::int64_t end_ps = 0;
  TextPool names, notes;
  std::vector<Track> tracks;  // by rank
  std::vector<Arrow> arrows;
  std::vector<Counter> counters;
  std::vector<Link> links;            // with timing `flow`, busiest first
  std::vector<std::string> left_out;  // parts removed by bounds, one clause each

  std::size_t slice_count() const;
};

// Parses "0-3,8" into ascending pairs. Throws InputError naming `option`.
std::vector<std::pair<int, int>> parse_ranges(const std::string& option, const std::string& text);

// Default limit on slices of a Chrome trace: some tens of megabytes, which viewers can open.
inline constexpr std::size_t kTimelineSlices = 400'000;

// The part of a job to show.
struct TimelineBounds {
  std::vector<std::pair<int, int>> ranks;         // empty: as many as `most_slices` allows
  std::vector<std::pair<int, int>> microbatches;  // empty: all
  std::size_t most_slices = kTimelineSlices;

  bool holds_rank(int rank) const;
  bool holds_microbatch(int microbatch) const;
};

// `--timeline-ranks 0-3,8` and `--timeline-microbatches 0-1` of every verb with a timeline.
struct TimelineOptions {
  std::string ranks, microbatches;

  void declare(CLI::App& app);
  // `drawn`: whether a timeline is written. Throws InputError.
  TimelineBounds bounds(std::size_t most_slices, bool drawn) const;
};

// Returns a simulated iteration (Detail::full): a track of steps and a track per stream of every rank, waits
// in collectives as separate slices ("wait for rank 3"), arrows from the last arrival, counters of memory and
// sent bytes.
TimelineView timeline_view(std::string title, const replay::Iteration& iteration,
                           const TimelineBounds& bounds);

// Returns the MoE layer of one dispatcher of a comparison, rank by rank. Needs AnswerOptions::trace.
TimelineView timeline_view(const models::Answer& forecast, const TimelineBounds& bounds);

// Returns the passes of a step on every pipeline stage. Needs the answer to a step, with
// AnswerOptions::trace.
TimelineView pipeline_view(const models::Answer& forecast, const TimelineBounds& bounds);

// Returns the measured timeline of a realistic recording. Clocks of nodes are not comparable, so every node
// starts at zero.
TimelineView timeline_view(std::string title, const replay::RecordedJob& measured, int gpus_per_node,
                           const TimelineBounds& bounds);

// Merges neighbouring slices too short to see until at most `most` are left; records that in `left_out`.
void join_short_slices(TimelineView& view, std::size_t most);

}  // namespace moesim::tools

// The kinds of questions that a sweep asks at its points: each says its options and axes, asks, and says what
// of the answer stands in a row. All else (points, threads, MPI, files, parts, resuming) knows no kind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/sweeps/sweep_plan.h"
#include "tools/moesim/sweeps/sweep_summary.h"
#include "tools/moesim/sweeps/sweep_table.h"

namespace CLI {
class App;
}

namespace moesim::tools {

// Asks at one point after the other; one per thread.
class SweepAsker {
 public:
  virtual ~SweepAsker() = default;
  // The found cells of each row of a point, and the error of a row without them. Throws InputError where
  // the point has no answer.
  struct Row {
    Cells found;
    std::string error = {};
  };
  virtual std::vector<Row> ask(const std::vector<PathValue>& values) = 0;
};

class SweepKind {
 public:
  virtual ~SweepKind() = default;

  // Before the command line is read: options of this kind beside those of every sweep.
  virtual void declare(CLI::App& app) = 0;
  // What an axis may be. Throws InputError that names the nearest for one that is unknown.
  virtual ScenarioPath axis(std::string_view text) const = 0;
  // Axes that are no --grid: they change slowest.
  virtual std::vector<SweepRange> own_axes() const { return {}; }

  // After it: the question that all points share. Throws InputError for what cannot be asked. `say` is for
  // what the user has to know before the first row.
  virtual void prepare(const SweepPlan& plan, RowFormat format, const CommonOptions& common,
                       const std::function<void(const std::string&)>& say) = 0;
  // Reads every file that rows follow from: the definition of the sweep holds their hashes.
  virtual void read_inputs(const SweepPlan& plan) const = 0;
  // What rows follow from beside the axes and the files, for the definition.
  virtual nlohmann::ordered_json definition() const = 0;
  // What a record says beside it.
  virtual void describe(nlohmann::ordered_json& record) const = 0;

  virtual const SweepTable& table() const = 0;
  virtual SummaryShape summary() const = 0;
  // Points of a block at most, however fast they are; 1: none is asked to find out how fast.
  virtual std::uint64_t most_in_block() const = 0;
  virtual std::unique_ptr<SweepAsker> asker(const SweepPlan& plan) const = 0;
};

// Layers and steps of scenarios, every dispatcher a row: what `compare` answers.
std::unique_ptr<SweepKind> sweep_of_scenarios();
std::vector<SweepColumn> columns_of_scenarios(bool intervals, bool breakdown, bool priced);
SummaryShape summary_of_scenarios(bool priced);
// Recordings, each replayed a row: what `replay` answers.
std::unique_ptr<SweepKind> sweep_of_recordings();
// Trainings, the best plan a row: what `plan` answers.
std::unique_ptr<SweepKind> sweep_of_plans();

// The kinds with a command of their own, `moesim sweep COMMAND`.
struct SweepCommand {
  const char* name;
  const char* summary;
  const char* examples;
  std::unique_ptr<SweepKind> (*make)();
};
inline constexpr SweepCommand kSweepCommands[] = {
    {"replay", "recordings: a row is a replay",
     "  moesim sweep replay recordings/*/ --grid cluster=dgx-h100x2,dgx-h200x2 --out results.csv\n"
     "  moesim sweep replay recording --cluster dgx-h100x4 --grid ep=4,8 --grid "
     "dispatcher=allgather,alltoall",
     sweep_of_recordings},
    {"plan", "trainings: a row is the best plan of a model, its days and its cost",
     "  moesim sweep plan --model qwen3-30b-a3b --tokens 2T --grid cluster=h100,h200 --grid "
     "gpus=64..1024:x2\n"
     "  moesim sweep plan --grid model=qwen3-30b-a3b,mixtral-8x7b --tokens 1T --cluster h100 --gpus 256",
     sweep_of_plans},
};

}  // namespace moesim::tools

// The kinds of questions that a sweep asks at its points: each defines its options and axes, asks, and
// selects the cells of a row from the answer. The rest of a sweep (points, threads, MPI, files, parts,
// resuming) is independent of the kind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/study/study.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/study/sweep_summary.h"
#include "tools/moesim/study/sweep_table.h"

namespace moesim::models {
struct Comparison;
}

namespace moesim::tools {

// The result cells of a row of a point, or the error of a row without them.
struct FoundRow {
  Cells found;
  std::string error = {};
};
// Asks at one point after another; one per thread. Throws InputError where the point has no answer.
using SweepAsker = std::function<std::vector<FoundRow>(const std::vector<PathValue>&)>;

class SweepKind {
 public:
  virtual ~SweepKind() = default;

  // Declares the options of this kind besides those of every sweep, before parsing.
  virtual void declare(CLI::App& app) = 0;
  // Finds an axis. Throws InputError with the nearest name for an unknown one.
  virtual ScenarioPath axis(std::string_view text) const = 0;
  // Returns axes besides --grid, which change slowest.
  virtual std::vector<models::StudyAxis> own_axes() const { return {}; }

  // Prepares the question that all points share, after parsing. Throws InputError for an invalid question.
  // `say` prints messages for the user before the first row.
  virtual void prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
                       const std::function<void(const std::string&)>& say) = 0;
  // Returns the user's measured run where no draw of the forecast explains it: then nothing is asked.
  virtual const models::Comparison* unexplained() const { return nullptr; }
  // Reads every input file of the rows: the sweep's definition contains their hashes.
  virtual void read_inputs(const models::Points& points) const = 0;
  // Returns the inputs of rows besides axes and files, for the definition.
  virtual nlohmann::ordered_json definition() const = 0;
  // Adds the kind's part to a record.
  virtual void describe(nlohmann::ordered_json& record) const = 0;

  virtual SummaryShape summary() const = 0;
  // Returns the largest number of points in a block; 1: speed is not probed.
  virtual std::uint64_t most_in_block() const { return 1024; }
  virtual SweepAsker asker(const models::Points& points) const = 0;

  const SweepTable& table() const { return *table_; }

 protected:
  // Set by prepare().
  std::optional<SweepTable> table_;
};

template <class Answer>
class SweepOf : public SweepKind {
 protected:
  void set_rows(RowFormat format, const models::Points& points, SweepRows<Answer> rows) {
    rows_ = std::move(rows);
    table_.emplace(format, points.paths(), rows_.columns);
  }
  FoundRow row_of(const Answer& answer) const {
    return {cells_of(rows_.columns, rows_.figures.json(answer))};
  }

 private:
  SweepRows<Answer> rows_;
};

// Options with their values, as said.
using Said = std::vector<std::pair<std::string, std::string>>;
nlohmann::ordered_json said_json(const Said& said);
// Throws InputError for an option that is an axis, too.
void refuse_beside_axes(const Said& said, const models::Points& points);
// Visits every value of every axis but those that are no input: their rows will report the error.
void for_each_input(const models::Points& points,
                    const std::function<void(const ScenarioPath&, const PathValue&)>& visit);

// Layers and steps of scenarios, one row per dispatcher: the answers of `compare`.
std::unique_ptr<SweepKind> sweep_of_scenarios();
std::vector<SweepColumn> columns_of_scenarios(bool intervals, bool breakdown, bool priced);
SummaryShape summary_of_scenarios(bool priced);
// Recordings, one row per replay: the answers of `replay`.
std::unique_ptr<SweepKind> sweep_of_recordings();
// Trainings, one row for the best plan: the answers of `plan`.
std::unique_ptr<SweepKind> sweep_of_plans();

// The input files of a sweep's rows, read before the first row.

// Whether an axis is a value of the scenario.
using OfScenario = std::function<bool(const ScenarioPath&)>;

// Reads every file that the axes name, files named in these (a cluster's profile), and the routing of the
// base.
void read_named(
    const Base& base, const models::Points& points,
    const OfScenario& of_scenario = [](const ScenarioPath&) { return true; });

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

// Timelines against the schema of the trace event format, event by event: what is there, of which type, and
// nothing else; the same names and colours in every run; forecast beside measurement; bounded size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "sim/graph/task_graph.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Outcome;
using testing::read_text;
using testing::realistic;
using testing::run_moesim;
using testing::scaling;
using testing::TempFolder;
using Words = std::vector<std::string>;

constexpr std::size_t kMegabyte = 1024 * 1024;

// Names of colours that trace viewers know (catapult's color_scheme.html).
const std::set<std::string> kTraceColors{"thread_state_uninterruptible",
                                         "thread_state_iowait",
                                         "thread_state_running",
                                         "thread_state_runnable",
                                         "thread_state_sleeping",
                                         "thread_state_unknown",
                                         "generic_work",
                                         "good",
                                         "bad",
                                         "terrible",
                                         "grey",
                                         "startup",
                                         "rail_response",
                                         "rail_animation",
                                         "rail_idle",
                                         "rail_load",
                                         "detailed_memory_dump",
                                         "light_memory_dump",
                                         "background_memory_dump"};

enum class Type { kText, kWhole, kNumber, kObject };

bool is_of(const json& value, Type type) {
  switch (type) {
    case Type::kText:
      return value.is_string() && !value.get_ref<const std::string&>().empty();
    case Type::kWhole:
      return value.is_number_integer() && value.get<std::int64_t>() >= 0;
    case Type::kNumber:
      return value.is_number() && value.get<double>() >= 0;
    case Type::kObject:
      return value.is_object();
  }
  return false;
}

const std::map<std::string, Type> kTypes{
    {"ph", Type::kText},   {"name", Type::kText},  {"cat", Type::kText},   {"cname", Type::kText},
    {"bp", Type::kText},   {"pid", Type::kWhole},  {"tid", Type::kWhole},  {"id", Type::kWhole},
    {"ts", Type::kNumber}, {"dur", Type::kNumber}, {"args", Type::kObject}};

// Required and optional keys of every phase.
struct Shape {
  std::set<std::string> required, optional;
};

const std::map<std::string, Shape> kShapes{
    {"X", {{"ph", "name", "cat", "cname", "pid", "tid", "ts", "dur"}, {"args"}}},
    {"M", {{"ph", "name", "pid", "args"}, {"tid"}}},
    {"s", {{"ph", "name", "cat", "id", "pid", "tid", "ts"}, {}}},
    {"f", {{"ph", "bp", "name", "cat", "id", "pid", "tid", "ts"}, {}}},
    {"C", {{"ph", "name", "pid", "ts", "args"}, {}}},
};

// Returns the error in the shape of one event; empty: none.
std::string fault_of(const json& event) {
  if (!event.is_object() || !event.contains("ph") || !event["ph"].is_string()) return "no phase";
  const auto shape = kShapes.find(event["ph"].get<std::string>());
  if (shape == kShapes.end()) return "unknown phase";
  const auto& [required, optional] = shape->second;
  for (const std::string& key : required)
    if (!event.contains(key)) return "key " + key;
  for (const auto& [key, value] : event.items())
    if ((!required.contains(key) && !optional.contains(key)) || !is_of(value, kTypes.at(key)))
      return "key " + key;
  return "";
}

// Returns the errors of a whole file: shapes, tracks without names, slices that overlap, arrows that do not
// begin and end once inside slices.
std::vector<std::string> faults_of(const json& timeline) {
  std::vector<std::string> faults;
  const auto expect = [&](bool good, const std::string& what, const json& event) {
    if (!good) faults.push_back(what + ": " + event.dump());
    return good;
  };
  const json& about = timeline.at("otherData");
  expect(timeline.at("displayTimeUnit") == "ms" || timeline.at("displayTimeUnit") == "ns", "unit",
         timeline["displayTimeUnit"]);
  expect(about.at("version").is_string(), "version", about);
  expect(about.at("command").is_array() && about.at("files").is_object() && !about.at("timelines").empty(),
         "inputs", about);
  std::set<std::string> categories;
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    categories.emplace(sim::name(static_cast<sim::Category>(c)));
  using Track = std::pair<std::int64_t, std::int64_t>;
  std::set<std::int64_t> processes;
  std::set<Track> threads;
  std::map<Track, std::vector<std::pair<double, double>>> slices;
  std::map<std::int64_t, std::vector<json>> arrows;
  for (const json& event : timeline.at("traceEvents")) {
    if (const std::string fault = fault_of(event); !expect(fault.empty(), fault, event)) continue;
    const std::string phase = event["ph"], name = event["name"];
    if (phase == "M") {
      if (name.ends_with("_name"))
        expect(is_of(event["args"].value("name", json()), Type::kText), "a name", event);
      if (name == "process_name")
        processes.insert(event["pid"].get<std::int64_t>());
      else if (name == "thread_name" && expect(event.contains("tid"), "a track", event))
        threads.emplace(event["pid"], event["tid"]);
      else
        expect(name == "process_sort_index" || name == "thread_sort_index", "metadata", event);
      continue;
    }
    expect(processes.contains(event["pid"].get<std::int64_t>()), "a process with a name", event);
    if (phase == "C") {
      for (const auto& [key, value] : event["args"].items()) expect(value.is_number(), "a number", event);
      continue;
    }
    const Track track{event["pid"], event["tid"]};
    expect(threads.contains(track), "a track with a name", event);
    if (phase == "X") {
      expect(categories.contains(event["cat"].get<std::string>()), "category", event);
      expect(kTraceColors.contains(event["cname"].get<std::string>()), "colour", event);
      const double from = event["ts"];
      slices[track].emplace_back(from, from + event["dur"].get<double>());
    } else {
      expect(event["cat"] == "p2p" || event["cat"] == "collective", "kind of arrow", event);
      arrows[event["id"].get<std::int64_t>()].push_back(event);
    }
  }
  constexpr double kSlack = 2e-3;  // times have three decimals
  for (auto& [track, all] : slices) {
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i)
      expect(all[i].first >= all[i - 1].second - kSlack, "slices overlap",
             {track.first, track.second, all[i].first});
  }
  for (const auto& [id, ends] : arrows) {
    if (!expect(ends.size() == 2 && ends[0]["ph"] == "s" && ends[1]["ph"] == "f", "an arrow with two ends",
                ends[0]))
      continue;
    expect(ends[0]["name"] == ends[1]["name"] && ends[0]["cat"] == ends[1]["cat"], "equal ends", ends[0]);
    expect(ends[0]["ts"].get<double>() <= ends[1]["ts"].get<double>(), "order of ends", ends[0]);
    for (const json& end : ends) {
      // The slice that holds the point; its end counts, as for a message that has arrived.
      const double at = end["ts"];
      const auto& all = slices[{end["pid"], end["tid"]}];
      const auto after = std::upper_bound(all.begin(), all.end(), std::pair(at + kSlack, 1e300));
      expect(after != all.begin() && std::prev(after)->second >= at - kSlack, "an arrow beside its slice",
             end);
    }
  }
  return faults;
}

json timeline_of(Words words, std::size_t* bytes = nullptr) {
  const TempFolder here;
  const std::string file = here / "timeline.json";
  words.insert(words.end(), {"--quiet", "--timeline", file});
  const Outcome outcome = run_moesim(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  if (bytes != nullptr) *bytes = fs::file_size(file);
  return json::parse(read_text(file));
}

std::set<std::string> process_names(const json& timeline) {
  std::set<std::string> names;
  for (const json& event : timeline.at("traceEvents"))
    if (event.at("name") == "process_name") names.insert(event.at("args").at("name"));
  return names;
}

std::set<std::string> counter_names(const json& timeline) {
  std::set<std::string> names;
  for (const json& event : timeline.at("traceEvents"))
    if (event.at("ph") == "C") names.insert(event.at("name"));
  return names;
}

Words compare_layer() {
  return {"compare", "--model", "mixtral-8x7b", "--cluster",          "dgx-h100x1", "--ep",    "8",
          "--draws", "0",       "--dispatcher", "allgather,alltoall", "--routing",  "zipf:1.2"};
}

TEST(TimelineSchema, EveryVerbThatWritesOneWritesAValidOne) {
  for (const Words& words :
       {Words{"replay", scaling(), "--microbatches", "4"}, Words{"replay", realistic()},
        Words{"validate", "--forecast", scaling(), "--measured", realistic()}, compare_layer()}) {
    SCOPED_TRACE(words.front());
    const json timeline = timeline_of(words);
    EXPECT_THAT(faults_of(timeline), IsEmpty());
    std::map<std::string, int> phases;
    for (const json& event : timeline.at("traceEvents")) ++phases[event.at("ph")];
    for (const char* phase : {"X", "M", "s", "f", "C"}) EXPECT_GT(phases[phase], 0) << phase;
  }
}

TEST(TimelineSchema, TheCheckFindsWhatIsWrong) {
  const json good = timeline_of(compare_layer());
  const auto fails = [&](const std::function<void(json&)>& change) {
    json bad = good;
    change(bad);
    return !faults_of(bad).empty();
  };
  const auto first = [](json& timeline, const char* phase) -> json& {
    for (json& event : timeline["traceEvents"])
      if (event["ph"] == phase) return event;
    throw std::runtime_error(phase);
  };
  EXPECT_FALSE(fails([](json&) {}));
  EXPECT_TRUE(fails([&](json& t) { first(t, "X").erase("dur"); }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "X")["ts"] = -1; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "X")["dur"] = 1e9; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "X")["cname"] = "mauve"; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "X")["extra"] = 1; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "s")["id"] = 999999999; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "f")["ts"] = 1e12; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "C")["args"]["value"] = "much"; }));
  EXPECT_TRUE(fails([&](json& t) { first(t, "M")["ph"] = "Z"; }));
}

TEST(TimelineSchema, ACategoryHasOneColourInEveryFile) {
  std::map<std::string, std::string> color_of;
  for (const Words& words :
       {Words{"replay", scaling(), "--microbatches", "4"}, Words{"replay", realistic()}, compare_layer()}) {
    const json timeline = timeline_of(words);
    for (const json& event : timeline.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const std::string color = event["cname"];
      const auto [at, added] = color_of.emplace(event["cat"].get<std::string>(), color);
      EXPECT_EQ(at->second, color);
    }
  }
  EXPECT_GE(color_of.size(), 8u);
}

TEST(TimelineSchema, CausesAndCountersAreThere) {
  const json timeline = timeline_of(compare_layer());
  EXPECT_THAT(counter_names(timeline), Contains("memory [GB]"));
  EXPECT_THAT(counter_names(timeline), Contains("sending [GB/s]"));
  std::set<std::string> causes;
  std::size_t waits = 0;
  for (const json& event : timeline.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    if (event.contains("args")) causes.insert(event["args"].value("cause", ""));
    waits += event["cat"] == "straggler_wait";
  }
  EXPECT_GT(waits, 0u);
  EXPECT_THAT(causes, Contains("waited for the operation before it"));
  EXPECT_THAT(counter_names(timeline_of({"replay", scaling(), "--microbatches", "4"})),
              Contains("sending [GB/s]"));
}

TEST(TimelineSchema, ForecastAndMeasurementStandSideBySide) {
  const json timeline = timeline_of({"validate", "--forecast", scaling(), "--measured", realistic()});
  const std::set<std::string> names = process_names(timeline);
  EXPECT_EQ(names.size(), 32u);
  for (int rank = 0; rank < 16; ++rank)
    for (const char* side : {"forecast", "measured"})
      EXPECT_THAT(names, Contains("rank " + std::to_string(rank) + ", " + side));
}

TEST(TimelineSchema, RanksAndMicrobatchesBoundIt) {
  std::size_t all = 0, some = 0, fewer = 0;
  const Words replay{"replay", scaling(), "--microbatches", "4"};
  timeline_of(replay, &all);
  Words bounded = replay;
  bounded.insert(bounded.end(), {"--ranks", "0-1,9"});
  const json timeline = timeline_of(bounded, &some);
  EXPECT_THAT(faults_of(timeline), IsEmpty());
  EXPECT_EQ(process_names(timeline), (std::set<std::string>{"rank 0", "rank 1", "rank 9"}));
  EXPECT_LT(some, all / 2);
  EXPECT_THAT(timeline["otherData"]["timelines"][0]["left_out"].dump(), HasSubstr("13 of 16 ranks"));
  bounded.insert(bounded.end(), {"--timeline-microbatches", "1"});
  const json one = timeline_of(bounded, &fewer);
  EXPECT_THAT(faults_of(one), IsEmpty());
  EXPECT_LT(fewer, some);
  EXPECT_THAT(one["otherData"]["timelines"][0]["left_out"].dump(), HasSubstr("3 of 4 microbatches"));
}

TEST(TimelineSchema, PublicRecordingsStayBelowTwentyMegabytes) {
  const fs::path root = fs::path(MOESIM_DATA_DIR) / "echo";
  if (!fs::exists(root)) GTEST_SKIP() << "no recordings under " << MOESIM_DATA_DIR;
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "scaling") || !fs::exists(entry.path() / "realistic") ||
        entry.path().filename().string().find("expn") == std::string::npos)
      continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::size_t bytes = 0;
    const json timeline =
        timeline_of({"validate", "--forecast", (entry.path() / "scaling").string(), "--measured",
                     (entry.path() / "realistic").string(), "--cluster", "echo-h800x2", "--draws", "0"},
                    &bytes);
    EXPECT_LE(bytes, 20 * kMegabyte);
    EXPECT_THAT(faults_of(timeline), IsEmpty());
    ++count;
  }
  EXPECT_GE(count, 5u);
}

}  // namespace
}  // namespace moesim::tools

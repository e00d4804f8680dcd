// `moesim replay`: the time of a recorded job on a topology.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster_fabric.h"
#include "models/hardware/rental.h"
#include "models/workload/architecture.h"
#include "models/workload/model_summary.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/recorded_comparison.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/questions/replay_question.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/explain_path.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct ReplayOptions {
  std::vector<std::string> folders;
  ReplayQuestion question{32};
  std::string timeline, report;
  TimelineOptions shown;
  std::uint64_t seed = 1;
  bool explain = false;
};

using replay::RecordingForecast;

constexpr std::size_t kMostShown = 3;  // ranks and layers that made others wait

std::string ms(double us) { return fmt::format("{:.2f}", us / 1e3); }

nlohmann::ordered_json attribution_json(const replay::Attribution& attribution) {
  nlohmann::ordered_json out;
  out["rule"] =
      "causes are taken away in this order and stay away; each accounts for what the iteration loses at its "
      "turn";
  out["shares_us"] = nlohmann::ordered_json::object();
  for (const auto& share : attribution.shares) out["shares_us"][std::string(name(share.cause))] = share.us;
  const auto list = [](const std::vector<replay::Waiting>& waits, const char* what) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& wait : waits)
      rows.push_back({{what, wait.index}, {"stage", wait.stage}, {"others_wait_us", wait.us}});
    return rows;
  };
  out["ranks"] = list(attribution.ranks, "rank");
  out["layers"] = list(attribution.layers, "layer");
  return out;
}

std::string words_of(const replay::TimeShare& share) {
  std::string what(name(share.cause));
  std::replace(what.begin(), what.end(), '_', ' ');
  return what;
}

// Where the iteration goes; without what is not visible.
std::string attribution_text(const RecordingForecast& answer) {
  constexpr double kVisible = 0.0005;
  Table table({{"of the iteration", Table::Align::kLeft}, {"ms"}, {"share"}});
  for (const auto& share : answer.attribution.shares) {
    const double part = share.us / answer.iteration.us();
    if (std::abs(part) >= kVisible)
      table.row({words_of(share), ms(share.us), fmt::format("{:.1f} %", 100 * part)});
  }
  return table.text();
}

// Which ranks, and with --explain which layers, others waited for.
std::string waiting_text(const RecordingForecast& answer, bool explain) {
  const auto most = [](const std::vector<replay::Waiting>& waits, const auto& one) {
    std::string line;
    for (std::size_t i = 0; i < std::min(kMostShown, waits.size()); ++i)
      line += fmt::format("{}{} ({:.0f} ms)", i == 0 ? "" : ", ", one(waits[i]), waits[i].us / 1e3);
    return line.empty() ? std::string("none") : line;
  };
  std::string text = fmt::format(
      "ranks that others waited for most: {}\n",
      most(answer.attribution.ranks, [](const replay::Waiting& w) { return fmt::format("{}", w.index); }));
  if (explain)
    text += fmt::format("layers in which ranks waited most: {}\n",
                        most(answer.attribution.layers, [](const replay::Waiting& w) {
                          return fmt::format("{} of stage {}", w.index, w.stage);
                        }));
  return text;
}

nlohmann::ordered_json critical_path_json(const replay::Iteration& iteration) {
  nlohmann::ordered_json path = nlohmann::ordered_json::array();
  for (const auto& step : iteration.timeline.critical_path(iteration.graph)) {
    nlohmann::ordered_json one{{"rank", iteration.graph.rank(step.task).value()},
                               {"task", iteration.graph.label(step.task).name},
                               {"from_us", step.from.us()},
                               {"to_us", step.to.us()},
                               {"waited_for", sim::name(step.cause)}};
    const std::uint32_t origin = iteration.graph.origin(step.task);
    if (origin < iteration.origins.size()) one["recorded_at"] = iteration.origins[origin].str();
    path.push_back(std::move(one));
  }
  return path;
}

std::string throughput_text(const RecordingForecast& answer, const models::PriceTable& prices) {
  if (answer.tokens == 0) return "";
  const auto cost = cost_per_million_tokens(answer, answer.cluster, prices);
  std::string text =
      cost ? fmt::format("cost: {:.4g} {} per million tokens\n", *cost, prices.currency)
           : std::string("cost: no price; --prices '{\"gpu_hour\": 2.5}' gives it per million tokens\n");
  if (const auto& before = answer.before) {
    text += fmt::format("before: {} ms ({}), now {}", ms(before->time_us.value), before->what,
                        percent(models::ratio(*before, answer).value - 1));
    if (before->tokens > 0)
      text += fmt::format(" in time and {} in tokens/s",
                          percent(tokens_per_s(answer) / tokens_per_s(*before) - 1));
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json held_json(const models::RankMemory& held) {
  return {{"parameters_bytes", held.parameters}, {"gradients_bytes", held.gradients},
          {"optimizer_bytes", held.optimizer},   {"activations_bytes", held.activations},
          {"transient_bytes", held.transient},   {"persistent_bytes", held.persistent}};
}

constexpr const char* kAssumedMemory =
    "bf16 weights and activations, gradients and Adam's states in fp32 on every replica";

nlohmann::ordered_json memory_json(const replay::RecordedMemory& memory) {
  nlohmann::ordered_json out{{"dispatcher", memory.dispatcher},
                             {"assumed", kAssumedMemory},
                             {"total_bytes", memory.step.max_bytes},
                             {"limit_bytes", memory.step.limit_bytes},
                             {"fits", memory.step.fits},
                             {"stage", memory.step.stage}};
  out["stages"] = nlohmann::ordered_json::array();
  for (const models::StageMemory& stage : memory.step.stages) {
    out["stages"].push_back(held_json(stage.bytes));
    out["stages"].back().update(
        {{"total_bytes", stage.bytes.total()}, {"moment", stage.moment}, {"in_flight", stage.in_flight}});
  }
  return out;
}

// Describes the memory of the fullest rank, and that under the recorded dispatcher.
std::string memory_text(const RecordingForecast& answer, bool explain) {
  const auto text_of = [&](const models::RankMemory& held) {
    const auto gb = [](double bytes) { return fmt::format("{:.3g} GB", bytes * 1e-9); };
    if (!explain) return gb(held.total());
    return fmt::format("{} (parameters {}, gradients {}, optimizer {}, kept activations {}, buffers {})",
                       gb(held.total()), gb(held.parameters), gb(held.gradients), gb(held.optimizer),
                       gb(held.activations), gb(held.transient + held.persistent));
  };
  std::string text = "memory of the fullest rank: " + text_of(answer.held->step.worst);
  if (answer.held_as_recorded)
    text += fmt::format("; {} as recorded: {}", answer.held_as_recorded->dispatcher,
                        text_of(answer.held_as_recorded->step.worst));
  return text + "\n";
}

nlohmann::ordered_json result_json(const RecordingForecast& answer, const nlohmann::ordered_json& inputs,
                                   const models::PriceTable& prices) {
  std::vector<std::string> warnings = answer.warnings;
  if (!answer.held)
    warnings.push_back(
        "peak_memory_bytes is null: a recording of times does not say what a rank held, and the memory "
        "model needs more: " +
        answer.not_held);
  auto result = envelope("replay", inputs, warnings);
  result["iteration_us"] = estimate_json(answer.time_us);
  if (answer.measured_us) result["measured_iteration_us"] = *answer.measured_us;
  result["microbatches"] = answer.microbatches;
  result["topology"] = answer.iteration.topology.str();
  if (answer.tokens > 0) result["tokens_per_s"] = tokens_per_s(answer);
  if (const auto cost = cost_per_million_tokens(answer, answer.cluster, prices))
    result["cost_per_million_tokens"] = {{"value", *cost}, {"currency", prices.currency}};
  if (const auto& before = answer.before) {
    result["before"] = {{"iteration_us", before->time_us.value}, {"what", before->what}};
    if (before->tokens > 0) result["before"]["tokens_per_s"] = tokens_per_s(*before);
  }
  result["synthetic"] = answer.synthetic;
  result["recorded_on"] = {{"gpu", answer.recorded_on.gpu}, {"told_by", name(answer.recorded_on.told)}};
  if (!answer.changes.empty()) result["changes"] = answer.changes;
  if (const auto both = replay::compared(answer)) {
    result["answer"] = models::sentence(*both);
    result["because"] = models::because(*both);
    result["recommendation"] = recommendation_json(*both);
  }
  result["ranks"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < answer.iteration.timeline.rank_count(); ++r) {
    const auto& rank = answer.iteration.timeline.rank(sim::RankId(static_cast<std::uint32_t>(r)));
    result["ranks"].push_back({{"rank", r},
                               {"busy_us", rank.busy.us()},
                               {"exposed_comm_us", rank.exposed_comm.us()},
                               {"straggler_wait_us", rank.straggler_wait.us()},
                               {"bubble_us", rank.bubble.us()},
                               {"host_us", rank.host.us()},
                               {"peak_memory_bytes", nullptr}});
    if (!answer.held) continue;
    const models::RankMemory& held = answer.held->of(answer.iteration.topology, static_cast<int>(r));
    result["ranks"].back()["peak_memory_bytes"] = held.total();
    result["ranks"].back()["memory"] = held_json(held);
  }
  if (answer.held) result["memory"] = memory_json(*answer.held);
  if (answer.held_as_recorded) result["memory_as_recorded"] = memory_json(*answer.held_as_recorded);
  result["ops"] = nlohmann::ordered_json::object();
  for (std::size_t k = 0; k < replay::kStepKinds; ++k) {
    const auto& mean = answer.summary.steps[k];
    if (mean.count > 0)
      result["ops"][std::string(replay::name(static_cast<replay::StepKind>(k)))] = {
          {"count", mean.count}, {"mean_us", mean.mean_us}};
  }
  result["overload"] = nullptr;
  if (answer.overload) {
    auto& overload = result["overload"] = overload_json(answer.overload->stages.back());
    overload["metrics"] = overload_metrics_json(answer.overload->stages);
    overload["entries"] = answer.overload->entries;
    overload["replicas"] = answer.overload->replicas;
  }
  if (answer.network.groups > 0)
    result["network"] = {{"timing", "flow"},
                         {"calibrated_us", answer.network.calibrated_us},
                         {"busiest_link", link_json(answer.network.busiest)}};
  result["attribution"] = attribution_json(answer.attribution);
  result["critical_path"] = critical_path_json(answer.iteration);
  return result;
}

constexpr std::size_t kMostRanks = 32, kFewRanks = 4;  // of a table for people, with and without --explain

// Returns all ranks, or those that compute most and least and an even choice of the others.
std::vector<std::size_t> ranks_for_people(std::span<const sim::RankSummary> ranks, std::size_t most) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (ranks.size() <= most) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a].busy > ranks[b].busy; });
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < most / 4; ++i) chosen.insert({order[i], order[order.size() - 1 - i]});
  for (std::size_t i = 0; i < most && chosen.size() < most; ++i) chosen.insert(i * ranks.size() / most);
  return {chosen.begin(), chosen.end()};
}

std::vector<std::string> rank_cells(std::size_t index, const sim::RankSummary& rank) {
  std::vector<std::string> cells{std::to_string(index)};
  for (const sim::Time time : {rank.busy, rank.exposed_comm, rank.straggler_wait, rank.bubble, rank.host})
    cells.push_back(ms(time.us()));
  return cells;
}

// The letters of the columns are those of the bars.
std::string ranks_text(const RecordingForecast& answer, bool explain) {
  constexpr std::size_t kBarColumns = 28;
  const auto ranks = answer.iteration.timeline.ranks();
  Table table({{"rank, times [ms]"},
               {"C computing"},
               {"T transfer"},
               {"w waiting"},
               {"b bubble"},
               {"H host"},
               {"", Table::Align::kLeft, true}});
  const std::vector<std::size_t> shown = ranks_for_people(ranks, explain ? kMostRanks : kFewRanks);
  for (const std::size_t r : shown) {
    const sim::RankSummary& rank = ranks[r];
    const std::vector<BarPart> parts{{'C', "compute", Ink::kBlue, rank.busy.us()},
                                     {'T', "transfer", Ink::kYellow, rank.exposed_comm.us()},
                                     {'w', "wait", Ink::kGrey, rank.straggler_wait.us()},
                                     {'b', "bubble", Ink::kSoft, rank.bubble.us()},
                                     {'H', "host", Ink::kPurple, rank.host.us()}};
    std::vector<std::string> row = rank_cells(r, rank);
    row.push_back(bar(parts, answer.iteration.us(), kBarColumns));
    table.row(std::move(row));
  }
  std::string text = table.text();
  if (shown.size() < ranks.size()) {
    text +=
        fmt::format("{} of {} ranks; {}\n", shown.size(), ranks.size(),
                    explain || ranks.size() > kMostRanks ? "--format csv lists all" : "--explain lists all");
    std::vector<double> wait;
    for (const auto& rank : ranks) wait.push_back(rank.straggler_wait.us());
    if (explain) text += fmt::format("straggler wait of all ranks: {}\n", sparkline(wait));
  }
  return text;
}

// Returns a table for programs: the iteration is on every row.
Table rank_table(const RecordingForecast& answer, const models::PriceTable& prices) {
  Table table({{"rank"},
               {"computing ms"},
               {"transfer ms"},
               {"straggler wait ms"},
               {"bubble ms"},
               {"host ms"},
               {"iteration ms"},
               {"low"},
               {"high"},
               {"measured ms"},
               {"tokens/s"},
               {"cost per million tokens"}});
  const auto cost = cost_per_million_tokens(answer, answer.cluster, prices);
  const std::vector<std::string> iteration{
      ms(answer.time_us.value),
      ms(answer.time_us.low),
      ms(answer.time_us.high),
      answer.measured_us ? ms(*answer.measured_us) : "",
      answer.tokens > 0 ? fmt::format("{:.1f}", tokens_per_s(answer)) : "",
      cost ? fmt::format("{:.6g}", *cost) : ""};
  const auto ranks = answer.iteration.timeline.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> row = rank_cells(r, ranks[r]);
    row.insert(row.end(), iteration.begin(), iteration.end());
    table.row(std::move(row));
  }
  return table;
}

Table operation_table(const RecordingForecast& answer) {
  Table table({{"operation", Table::Align::kLeft}, {"count"}, {"mean ms"}});
  for (std::size_t k = 0; k < replay::kStepKinds; ++k) {
    const auto& mean = answer.summary.steps[k];
    if (mean.count > 0)
      table.row({std::string(replay::name(static_cast<replay::StepKind>(k))), std::to_string(mean.count),
                 fmt::format("{:.3f}", mean.mean_us / 1e3)});
  }
  return table;
}

Table effect_table(const RecordingForecast& answer) {
  Table table({{"effect", Table::Align::kLeft},
               {"value"},
               {"+-"},
               {"unit", Table::Align::kLeft},
               {"changes the iteration by"},
               {"source", Table::Align::kLeft}});
  for (std::size_t k = 0; k < replay::kEffects; ++k) {
    const auto& effect = answer.effects->list()[k];
    table.row({std::string(effect.name), fmt::format("{:g}", effect.value), fmt::format("{:g}", effect.sigma),
               std::string(effect.unit), fmt::format("{:+.2f} ms", answer.effect_gains_us[k] / 1e3),
               effect.source});
  }
  return table;
}

void add_effects(nlohmann::ordered_json& result, const RecordingForecast& answer) {
  result["effects"] = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < replay::kEffects; ++k) {
    const auto& effect = answer.effects->list()[k];
    nlohmann::ordered_json one{{"name", effect.name}, {"value", effect.value},   {"sigma", effect.sigma},
                               {"unit", effect.unit}, {"source", effect.source}, {"what", effect.what}};
    if (!answer.effect_gains_us.empty()) one["changes_iteration_by_us"] = answer.effect_gains_us[k];
    result["effects"].push_back(std::move(one));
  }
}

RecordingForecast ask(const ReplayOptions& options, const Recordings& recordings,
                      nlohmann::ordered_json& inputs) {
  replay::RecordingQuestion question = options.question.question(options.seed);
  question.attribution = true;
  question.memory = true;
  question.effect_gains = options.explain;
  RecordingForecast answer = ask_recording(recordings, question);
  inputs["cluster"] = answer.cluster.name;
  if (!question.flow && models::has_own_fabric(answer.cluster))
    answer.warnings.emplace_back(
        "the cluster's fabric is not seen by calibrated timing, which knows no contention; --timing flow "
        "does");
  const auto read_warnings = recordings.warnings();
  answer.warnings.insert(answer.warnings.begin(), read_warnings.begin(), read_warnings.end());
  return answer;
}

// "424.61 ms an iteration (90 % interval ...), 154345 tokens/s. Besides computing: routing skew 27 %, ..."
std::string answer_text(const RecordingForecast& answer) {
  std::string text = fmt::format("{} ms an iteration (90 % interval {} ms to {} ms)",
                                 ms(answer.time_us.value), ms(answer.time_us.low), ms(answer.time_us.high));
  if (answer.measured_us)
    text += fmt::format(", measured {} ms ({})", ms(*answer.measured_us),
                        percent(answer.time_us.value / *answer.measured_us - 1.0, 2));
  if (answer.tokens > 0) text += fmt::format(", {:.0f} tokens/s", tokens_per_s(answer));
  std::vector<replay::TimeShare> shares(answer.attribution.shares.begin(), answer.attribution.shares.end());
  std::erase_if(shares, [](const auto& share) { return share.cause == replay::CauseOfTime::computing; });
  std::ranges::stable_sort(shares, [](const auto& a, const auto& b) { return a.us > b.us; });
  constexpr double kWorthNaming = 0.05;
  std::vector<std::string> parts;
  for (const auto& share : shares)
    if (const double part = share.us / answer.iteration.us(); part > kWorthNaming && parts.size() < 2)
      parts.push_back(fmt::format("{} {:.0f} %", words_of(share), 100 * part));
  return parts.empty() ? text + "." : fmt::format("{}. Besides computing: {}.", text, join(parts, ", "));
}

// Describes the replayed job and its figures besides the time.
std::string remarks_text(const RecordingForecast& answer, const replay::Topology& recorded,
                         const models::PriceTable& prices, bool explain) {
  const std::string network =
      answer.cluster.network.empty() || answer.cluster.ranks() <= answer.cluster.nvlink.domain
          ? ""
          : fmt::format(" (network {})", answer.cluster.network);
  std::string text =
      fmt::format("{} recording of {}, {} microbatches, on {}{}{}\n",
                  answer.realistic ? "realistic" : "scaling", recorded.str(), answer.microbatches,
                  answer.cluster.name, network, answer.changes.empty() ? "" : ", with " + answer.changes);
  if (answer.network.groups > 0) {
    const models::LinkLoad& busiest = answer.network.busiest;
    text += fmt::format("network: {} ms without contention", ms(answer.network.calibrated_us));
    if (!busiest.from.empty())
      text += fmt::format("; busiest link {} -> {}, {:.0f} %", busiest.from, busiest.to,
                          100 * busiest.utilisation);
    text += "\n";
  }
  if (explain && answer.overload) {
    const models::Overload& o = answer.overload->stages.back();
    text += fmt::format(
        "overload of the experts' ranks: avg {:.3f}, max {:.3f}, max_cum {:.3f} over {} layers and "
        "microbatches\n",
        o.avg, o.max, o.max_cum, answer.overload->entries);
  }
  if (answer.held) text += memory_text(answer, explain);
  return text + throughput_text(answer, prices) + waiting_text(answer, explain);
}

// The iteration with the memory of every rank that is shown.
TimelineView forecast_view(const RecordingForecast& answer, const TimelineBounds& bounds) {
  TimelineView view = timeline_view("forecast", answer.iteration, bounds);
  if (!answer.held) return view;
  std::set<int> shown;
  for (const TimelineView::Track& track : view.tracks) shown.insert(track.rank);
  for (const int rank : shown) {
    TimelineView::Counter memory{rank, "memory [GB]", {}};
    for (const auto& [us, bytes] : answer.held->over_time(answer.iteration, rank))
      memory.points.emplace_back(std::llround(us * 1e6), bytes * 1e-9);
    view.counters.push_back(std::move(memory));
  }
  return view;
}

void write_files(const ReplayOptions& options, const RecordingForecast& answer, const TimelineBounds& bounds,
                 const nlohmann::ordered_json& inputs, const models::PriceTable& prices) {
  if (!options.timeline.empty())
    write_file(options.timeline, timeline_json(std::vector{forecast_view(answer, bounds)}, inputs));
  if (options.report.empty()) return;
  ReportExtras extras;
  TimelineBounds fewer = bounds;
  fewer.most_slices = kReportSlices;
  extras.timelines.push_back(forecast_view(answer, fewer));
  extras.matrices.push_back(traffic_matrix("iteration", answer.iteration.graph));
  extras.gpus_per_node = answer.cluster.gpus_per_node;
  auto result = result_json(answer, inputs, prices);
  if (answer.effects) add_effects(result, answer);
  write_report(options.report, "replay", result, extras);
}

// Adds the model that the user names for a recording, which itself contains only sizes.
void add_named_model(nlohmann::ordered_json& result, const std::string& name) {
  if (!name.empty()) result["model"] = models::model_summary(mixture_named(name));
}

int run(const ReplayOptions& options, const CommonOptions& common) {
  check_report(options.report);
  const models::PriceTable prices = options.question.prices();
  if (options.explain && common.format == Format::kCsv)
    throw InputError("replay: found --explain with --format csv, expected table or json");
  const TimelineBounds bounds = options.shown.bounds(kTimelineSlices);
  nlohmann::ordered_json inputs = describe_inputs(common);
  Recordings recordings;
  for (const std::string& folder : options.folders) recordings.add(folder);
  RecordingForecast answer = ask(options, recordings, inputs);
  // Notes that decide whether the answer means anything come first.
  std::erase_if(answer.warnings, [&](const std::string& warning) {
    return std::ranges::find(answer.notes, warning) != answer.notes.end();
  });
  answer.warnings.insert(answer.warnings.begin(), answer.notes.begin(), answer.notes.end());
  inputs["files"] = files_read();
  write_files(options, answer, bounds, inputs, prices);
  if (common.format == Format::kJson) {
    auto result = result_json(answer, inputs, prices);
    add_named_model(result, options.question.model());
    if (options.explain && answer.effects) add_effects(result, answer);
    print_json(result);
    return 0;
  }
  if (common.format == Format::kCsv) {
    print(rank_table(answer, prices).csv());
    warn_below(common, answer.warnings);
    return 0;
  }
  for (const std::string& note : answer.notes) print_text("warning: " + note + "\n", 2);
  print_answer(answer_text(answer));
  if (const auto both = replay::compared(answer))
    print_text(models::sentence(*both) + "\n" + models::because(*both) + "\n");
  print("\n" + attribution_text(answer) + "\n" + ranks_text(answer, options.explain));
  print_text(remarks_text(answer, recordings.jobs().front().topology, prices, options.explain), 2);
  if (options.explain) print("\n" + operation_table(answer).text());
  if (options.explain) print("\n" + critical_path_text(answer.iteration));
  if (!answer.effect_gains_us.empty()) print("\n" + effect_table(answer).text());
  // The notes stand above the answer.
  answer.warnings.erase(answer.warnings.begin(),
                        answer.warnings.begin() + static_cast<std::ptrdiff_t>(answer.notes.size()));
  warn_below(common, options.explain ? answer.warnings : to_act_on(answer.warnings, answer.cluster, {}), true,
             options.explain);
  return 0;
}

}  // namespace

Verb replay_verb() {
  return {"replay",
          "what a recorded job takes on a topology",
          "  moesim replay rec/scaling --cluster echo-h800x2 --microbatches 8 --dispatcher allgather\n"
          "  moesim replay rec/realistic --cluster echo-h800x2 --timeline iteration.json",
          [](CLI::App& app) -> Run {
            auto options = std::make_shared<ReplayOptions>();
            app.add_option("recording", options->folders,
                           "folder of rank files; several scaling passes are pooled")
                ->required()
                ->type_name("DIR");
            options->question.declare(app);
            options->shown.declare(app);
            declare_report(app, options->report);
            app.add_option("--timeline", options->timeline, "write the timeline as Chrome trace JSON")
                ->type_name("FILE");
            app.add_flag("--explain", options->explain,
                         "all ranks and operations, the critical path, constants with their source");
            return [options](const CommonOptions& common) {
              options->seed = common.seed;
              return run(*options, common);
            };
          },
          {"--cluster", "--dispatcher", "--timing", "--seq", "--ep", "--dp", "--microbatches", "--timeline",
           "--report", "--explain"}};
}

}  // namespace moesim::tools

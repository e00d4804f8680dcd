#include "tools/moesim/validation/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "models/answers/doubt.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/question/apply_recipe.h"
#include "models/step/pipeline_layout.h"
#include "models/step/step_forecast.h"
#include "models/step/training_flops.h"

namespace moesim::tools {

namespace {

using calibration::CsvTable;
using calibration::Device;

constexpr std::string_view kLayerTime = "forward_backward_ms";
// Routing of rows that say "natural" without a load: the one imbalance of training that was published.
constexpr const char* kNaturalRouting = "measured:deepseek-v3:shared";
constexpr std::int64_t kMostGpus = 1 << 24;

// Returns the integer of "12 (by the launcher example)"; 0 without one.
std::int64_t leading_integer(const std::string& text) {
  return parse_int(std::string_view(text).substr(0, text.find(' '))).value_or(0);
}

const Device& device_of(const std::string& gpu) {
  const Device* device = calibration::device_of_gpu(gpu);
  if (!device && gpu.starts_with("A100")) device = calibration::find_device("a100-sxm");
  if (!device) throw InputError(fmt::format("no profile of GPU {}", in_quotes(gpu)));
  return *device;
}

// Reads one row. Throws InputError with the reason why it cannot be forecast.
class Reader {
 public:
  Reader(const CsvTable& table, std::size_t row, RowsWith with) : t_(table), row_(row), with_(with) {}

  RowText facts() const {
    return {t_.place(row_).file, t_.place(row_).line, text("source"),  text("framework"), text("gpu"),
            text("model"),       text("decision_id"), text("backend"), text("grade")};
  }

  PublishedRow read(const RowText& facts) {
    PublishedRow row{facts};
    if (t_.has(kLayerTime)) return read_layer(std::move(row));
    if (with_ == RowsWith::kPlan) measure_memory(row);
    const Device& device = device_of(row.gpu);
    say("scope", "step");
    say("model", model_of(row));
    const std::int64_t gpus = t_.has("gpus") ? size("gpus") : 0;
    if (gpus == 0) throw InputError("the number of GPUs is not stated");
    if (!stated("gbs")) throw InputError("the global batch size is not stated");
    say("gpus", gpus);
    for (const auto& size_of : row_words().at("sizes"))
      if (const std::string column = size_of[0]; stated(column))
        say(size_of[1].get<std::string>(), size(column));
    say("training.precision", precision_of());
    say_run(row);
    for (const RowSetting& setting : settings_of_note(text("note"))) say(setting.path, setting.value);

    models::Scenario& s = row.scenario;
    set_cluster(row, device, gpus, stated("gpus_per_node") ? size("gpus_per_node") : 0);
    set_all(s);
    if (stated("mtp")) s.origins.set(models::kPrediction, *s.origins.find("model"));
    const auto recipe = models::FrameworkRecipe::recognise(row.framework);
    const std::string named = dispatcher_of(row, recipe ? recipe->name : "");
    if (!named.empty() && s.model.experts > 0) set("dispatcher", named, s);
    take_data_parallel(s, gpus);
    row.framework_known = recipe != nullptr;
    if (recipe)
      take(*recipe, row);
    else
      row.assumptions.push_back(
          fmt::format("framework {} is not known: no recipe is taken for it", in_quotes(row.framework)));
    require_sizes(s);
    take_data_parallel(s, gpus);
    if (!s.gave("parallel.micro_batch")) row.assumptions.push_back("microbatches of 1");
    if (s.model.experts > 0) finish_dispatcher(row);
    take_natural_routing(row);
    s.resolve();
    row.recompute_known = s.origin_of("training.recompute").kind == models::Origin::Kind::kFile;
    if (with_ != RowsWith::kPlan) measure(row, gpus, s.batch.sequences);
    return row;
  }

 private:
  std::string text(std::string_view column) const {
    return t_.has(column) ? std::string(trim(t_.text(row_, column))) : std::string();
  }
  bool stated(std::string_view column) const {
    const std::string value = text(column);
    return !value.empty() && value != "n/a" && value != "N/A" && value != "-" && value != "none" &&
           value != "not stated";
  }
  // 0 where it is not stated.
  double number(std::string_view column) const {
    return stated(column) ? t_.number(row_, column, 0, 1e12) : 0;
  }
  std::int64_t size(std::string_view column) const {
    return stated(column) ? t_.integer(row_, column, 1, kMostGpus) : 0;
  }

  // Records the row's value of a field; an earlier value stays.
  void say(std::string_view path, nlohmann::json value) {
    if (std::ranges::none_of(settings_, [&](const RowSetting& s) { return s.path == path; }))
      settings_.push_back({std::string(path), std::move(value)});
  }
  void set(std::string_view path, const nlohmann::json& value, models::Scenario& s) const {
    const models::Origin origin = models::Origin::file(t_.place(row_).str());
    models::set_field(*models::find_field(path), s, JsonNode::from_json(value, ""), &origin);
  }
  void set_all(models::Scenario& s) const {
    for (const RowSetting& setting : settings_) set(setting.path, setting.value, s);
  }

  // Returns the model that the row names, shortened as its columns say.
  nlohmann::json model_of(PublishedRow& row) const {
    auto named = row_model(row.model, row.source, row.assumptions);
    if (!named)
      throw InputError(fmt::format("model {}: its layers are not known here", in_quotes(row.model)));
    if (row.model.find("proxy") != std::string::npos)
      throw InputError("a proxy of the model, of which precision and GPU count are not stated");
    nlohmann::json& model = *named;
    const auto change = [&](const char* key, std::int64_t value) {
      if (model.is_string()) model = {{"base", model}};
      model[key] = value;
    };
    const models::Architecture whole = models::Architecture::parse(JsonNode::from_json(model, ""));
    if (const std::string layers = text("layers"); !layers.empty() && layers != "n/a") {
      const std::int64_t count = leading_integer(layers);
      if (count < 1 || count > whole.layers)
        throw InputError(fmt::format("{} layers: more than the model's", layers));
      if (count < whole.layers && !whole.pattern.empty())
        throw InputError(
            fmt::format("{} of {} layers that follow a pattern: which is not stated", count, whole.layers));
      if (count < whole.layers) {
        shorten_model(model, count);
        if (whole.dense_layers > count) change("dense_layers", count);
      }
      if (const std::string dense = text("dense_layers"); !dense.empty() && whole.experts > 0)
        change("dense_layers", leading_integer(dense));
    }
    if (const std::string mtp = text("mtp"); !mtp.empty() && leading_integer(mtp) != whole.mtp_layers)
      change("mtp_layers", leading_integer(mtp));
    return model;
  }

  std::string precision_of() const {
    std::string name = lower(text("precision"));
    if (name.empty() || name == "not stated") throw InputError("the precision is not stated");
    if (std::string meant = meaning("precision", name); !meant.empty()) return meant;
    if (std::ranges::find(models::kPrecisions, name) == models::kPrecisions.end())
      throw InputError(fmt::format("precision {} is not one of {}", in_quotes(text("precision")),
                                   fmt::join(models::kPrecisions, ", ")));
    return name;
  }

  // Sets launch mode, recomputation, overlap, sharding and the optimizer's types of the run.
  void say_run(PublishedRow& row) {
    const auto unstated = [](const std::string& value) { return value.empty() || value == "not stated"; };
    if (const std::string recompute = text("recompute"); !unstated(recompute)) {
      // "none (stated)": given, but doubted by the collector of the rows.
      std::string plain = recompute.substr(0, recompute.find(" ("));
      if (plain == "selective" && row.framework.starts_with("torchtitan")) plain = "op";
      if (plain.starts_with("selective: ")) plain.erase(0, plain.find(' ') + 1);
      if (recompute.ends_with("(stated)"))
        row.assumptions.push_back("recompute " + plain + ", of which the table is not sure");
      try {
        models::StepRecompute::parse(plain);
      } catch (const InputError&) {
        throw InputError(fmt::format("recompute {} is not known here", in_quotes(plain)));
      }
      say("training.recompute", plain);
    }
    if (text("overlap") == "compiler")
      row.assumptions.push_back("no overlap of dispatch and combine by the compiler");
    if (leading_integer(text("fsdp")) > 1) say("training.sharding", "fsdp");
    for (const char* column : {"overlap", "cuda_graphs", "optimizer", "framework"})
      if (const std::string words = text(column); !unstated(words))
        for (const RowSetting& setting : settings_of(column, words)) say(setting.path, setting.value);
    if (with_ == RowsWith::kPlan && text("routing").starts_with("natural") && size("ep") != 1)
      throw InputError("routing as it came: how imbalanced it was is not stated");
  }

  // A load for rows that only say that their routing was natural: as it was measured elsewhere, unless a
  // capacity bounds what an expert computes or the recipe knows better.
  void take_natural_routing(PublishedRow& row) const {
    const std::string routing = text("routing");
    if (!routing.starts_with("natural") || row.scenario.gave("routing")) return;
    if (routing.find("capacity") != std::string::npos &&
        routing.find(fmt::format("no drops ({})", row.backend)) == std::string::npos) {
      row.assumptions.push_back("balanced routing, where the run's was natural up to a capacity");
      return;
    }
    set("routing", kNaturalRouting, row.scenario);
    row.assumptions.push_back(fmt::format("routing {}, where the run's was natural", kNaturalRouting));
  }

  // Sets the data-parallel ranks from the remaining GPUs; all of them are used.
  void take_data_parallel(models::Scenario& s, std::int64_t gpus) const {
    const models::Parallel& p = s.parallel;
    const std::int64_t ranks = checked_product("tp x cp x pp", {p.tp, p.cp, p.pp});
    if (gpus % ranks != 0)
      throw InputError(fmt::format("{} GPUs are no multiple of tp x cp x pp = {}", gpus, ranks));
    set("parallel.dp", gpus / ranks, s);
  }

  // Takes the framework's own defaults, each one listed as an assumption.
  void take(const models::FrameworkRecipe& recipe, PublishedRow& row) const {
    models::Scenario& s = row.scenario;
    set("recipe", recipe.id(), s);
    const models::RecipeFacts said{{"framework", lower(row.framework)}, {"grade", lower(row.grade)}};
    for (const std::string& path : models::apply(recipe, s, said)) {
      const models::Field* field = models::find_field(path);
      const nlohmann::ordered_json value =
          field ? field->write(s) : nlohmann::ordered_json(s.model.mtp_layers);
      row.assumptions.push_back(fmt::format(
          "{} {} ({})", path, value.is_string() ? value.get<std::string>() : value.dump(), recipe.id()));
    }
    if (with_ == RowsWith::kPlan && recipe.holds_one_microbatch) {
      s.training.overlap.expert_communication = false;
      row.assumptions.push_back("overlap inside a microbatch: no second one is held");
    }
  }

  // Requires the decisive sizes, which the row or its framework must give.
  static void require_sizes(const models::Scenario& s) {
    std::vector<std::string> missing;
    for (const char* size : {"tp", "pp", "ep"})
      if (!s.gave(std::string("parallel.") + size) && (s.model.experts > 0 || size != std::string_view("ep")))
        missing.emplace_back(size);
    if (!missing.empty())
      throw InputError(fmt::format("{} {} not stated, and decide{} the step", join(missing, ", "),
                                   missing.size() > 1 ? "are" : "is", missing.size() > 1 ? "" : "s"));
  }

  // Sets the machine that the row's source, GPU or network names; several racks, and the port rate of the
  // table. `per_node`: 0 where the row does not say it.
  void set_cluster(PublishedRow& row, const Device& device, std::int64_t gpus, std::int64_t per_node) const {
    if (per_node == 0) per_node = device.limits.gpus_per_node;
    models::Cluster cluster =
        cluster_of(models::Profile::load(std::string(device.profile)),
                   calibration::machine_of(row.source, row.gpu + " " + text("network")),
                   static_cast<int>((gpus + per_node - 1) / per_node), static_cast<int>(per_node));
    // Jobs of several racks use 64 of a rack's 72 GPUs, so that groups of powers of two stay inside.
    if (cluster.nvlink.domain == 72 && gpus > 72) cluster.nvlink.domain = 64;
    if (row.gpu.find("Perlmutter") != std::string::npos) {
      cluster.nic.ports_per_node = static_cast<int>(per_node);
      cluster.nic.bandwidth = kPerlmutterPort;
    }
    if (const double rate = number("nic_GBps_per_gpu"); rate > 0) {
      cluster.nic.bandwidth = rate * 1e9 * cluster.gpus_per_node / cluster.nic.ports_per_node;
      row.assumptions.push_back(fmt::format("network {}: {:.0f} GB/s a GPU, as {} was measured",
                                            in_quotes(text("network")), rate, cluster.network));
    }
    row.scenario.cluster = std::make_shared<const models::Cluster>(std::move(cluster));
    row.scenario.give("cluster", models::Origin::file(t_.place(row_).str()));
  }

  // Returns the dispatcher that the row names: padded to a capacity, by its library, by its own name; "" for
  // none. `framework`: of the recipe.
  std::string dispatcher_of(const PublishedRow& row, std::string_view framework) const {
    if (text("routing").starts_with("capacity factor 1, padded"))
      return "alltoall:capacity_factor=1:pad=true";
    const std::string named = text("dispatcher");
    // MaxText's products with one-hot masks: every sequence has its own capacity.
    constexpr std::string_view kCapacity = "capacity factor ";
    if (named.starts_with(kCapacity) && named.find("dense einsum") != std::string::npos)
      return fmt::format(
          "deepspeed:capacity_factor={}:min_capacity=0:group={}",
          named.substr(kCapacity.size(), named.find_first_of(" ,", kCapacity.size()) - kCapacity.size()),
          row.scenario.parallel.seq);
    const std::string backend = meaning("backend", row.backend);
    const std::string meant = backend.empty() ? meaning("dispatcher", named) : backend;
    if (meant == "none")
      throw InputError(
          fmt::format("{} is no dispatcher here", in_quotes(backend.empty() ? named : row.backend)));
    return (framework == "torchtitan" && meant.starts_with("alltoall") ? "torchtitan-" : "") + meant;
  }

  // One GPU's experts need no library; adds the SMs and the transport that the row states.
  void finish_dispatcher(PublishedRow& row) const {
    models::Scenario& s = row.scenario;
    if (!s.gave("dispatcher")) {
      row.assumptions.push_back("dispatcher alltoall");
      set("dispatcher", "alltoall", s);
    }
    models::DispatcherSpec spec = s.dispatchers.front();
    if (s.parallel.dispatch_ranks() == 1 && spec.name.starts_with("flex"))
      spec = models::DispatcherSpec::parse("alltoall");
    if (stated("comm_sms") && spec.name.starts_with("flex")) spec.options["sms"] = text("comm_sms");
    const std::size_t plus = spec.options.contains("balance") ? std::string::npos : row.backend.find('+');
    models::DispatcherSpec with_transport = spec;
    if (plus != std::string::npos) with_transport.options["transport"] = row.backend.substr(plus + 1);
    if (spec.name == "flex-deepep" && text("note").find("DeepEP over UCCL") != std::string::npos)
      with_transport.options["transport"] = "uccl";
    try {
      models::make_dispatcher(with_transport);  // throws where it has no such option
    } catch (const InputError&) {
      if (plus == std::string::npos) throw;
      row.assumptions.push_back("transport " + row.backend.substr(plus + 1) + " is not told from others");
      with_transport = spec;
    }
    s.dispatchers = {with_transport};
  }

  // One layer with experts only, forward and backward.
  PublishedRow read_layer(PublishedRow row) {
    const Device& device = device_of(row.gpu);
    row.model = text("case");
    row.framework = "Megatron-Core (eager, one layer)";
    for (const char* column : {"hidden", "experts", "topk", "moe_inter", "tokens_per_rank"})
      if (!stated(column)) throw InputError("the sizes of the layer are not stated");
    say("scope", "layer");
    // Attention is not used in a pattern of experts.
    say("model", {{"name", row.model},
                  {"layers", 1},
                  {"pattern", "E"},
                  {"vocabulary", 1024},
                  {"attention", {{"heads", 16}, {"head_dim", 128}}},
                  {"hidden", size("hidden")},
                  {"experts", size("experts")},
                  {"topk", size("topk")},
                  {"expert_ffn", size("moe_inter")}});
    say("training.precision", precision_of());
    say("parallel.ep", stated("ep") ? size("ep") : 1);
    say("parallel.dp", stated("gpus") ? size("gpus") : 1);
    say("parallel.seq", size("tokens_per_rank"));
    models::Scenario& s = row.scenario;
    set_all(s);
    set_cluster(row, device, s.parallel.dp, 0);
    if (const std::string named = dispatcher_of(row, ""); !named.empty()) set("dispatcher", named, s);
    models::apply(*models::FrameworkRecipe::recognise(row.framework), s);
    row.recompute_known = true;
    finish_dispatcher(row);
    s.resolve();
    row.measured_s = number(kLayerTime) * 1e-3;
    row.measured_from = "layer time";
    if (row.measured_s == 0) throw InputError("no time is stated");
    return row;
  }

  // Reads columns of tables of measured peaks (../shared/data/memory).
  void measure_memory(PublishedRow& row) const {
    const auto bytes = [&](const char* column) { return number(column) * 1024 * 1024 * 1024; };
    const std::string status = text("status"), note = text("note");
    row.memory = {text("id"), bytes("peak_allocated_GiB"), bytes("peak_allocated_first_stage_GiB"),
                  bytes("peak_allocated_last_stage_GiB"), status.empty() || status.starts_with("fits")};
    if (note.starts_with("LoRA")) throw InputError("LoRA: which weights were trained is not stated");
    if (note.find("fine-tuning") != std::string::npos)
      throw InputError("fine-tuning: how long its sequences are is not stated, only how long they may be");
    if (note.find("memory taken from the same topology") != std::string::npos)
      throw InputError(
          "its memory is that of another row: the peak does not depend on the number of microbatches");
  }

  void measure(PublishedRow& row, std::int64_t gpus, std::int64_t batch) const {
    const models::Scenario& s = row.scenario;
    const double tokens = static_cast<double>(batch * s.parallel.seq) / static_cast<double>(gpus);
    const double flops = tokens * models::training_flops_per_token(s.model, s.parallel.seq, s.topk);
    const double peak =
        s.cluster->profile.device().peak_flops[static_cast<std::size_t>(models::DType::kBf16)];
    struct Rate {
      const char *column, *name;
      double work, of, unit;
    };
    row.measured_s = number("step_time_s");
    row.measured_from = "step time";
    for (const auto& [column, name, work, of, unit] : {Rate{"tokens_per_s_per_gpu", "tokens/s", tokens, 1, 1},
                                                       {"model_tflops_per_gpu", "TFLOP/s", flops, 1, 1e12},
                                                       {"mfu_percent", "MFU", flops, 100, peak}})
      if (const double rate = number(column); row.measured_s == 0 && rate > 0) {
        row.measured_s = work / (rate / of * unit);
        row.measured_from = name;
      }
    if (row.measured_s == 0 && with_ == RowsWith::kTimeOrLimit && text("note").starts_with("OUT OF MEMORY")) {
      row.measured_s = std::numeric_limits<double>::infinity();
      row.measured_from = "out of memory";
      row.memory.ran = false;
      return;
    }
    if (row.measured_s == 0) throw InputError("neither a step time nor a rate is stated");
    constexpr double kShortest = 1e-6, kLongest = 1e7;
    if (!(row.measured_s >= kShortest && row.measured_s <= kLongest))
      throw InputError(fmt::format("a step of {:.3g} s, which no job has", row.measured_s));
  }

  const CsvTable& t_;
  const std::size_t row_;
  const RowsWith with_;
  std::vector<RowSetting> settings_;  // in the order in which they are set
};

// The job ran: its recipe's recomputation stays where the excess is within the worst error of memory
// forecasts (6.8 % of 28 measured peaks, docs/step.md).
bool may_fit(const PublishedRow& row, const models::StepMemory& memory) {
  constexpr double kWorstError = 1.068;
  const bool of_recipe = row.scenario.origin_of("training.recompute").kind == models::Origin::Kind::kRecipe;
  return memory.fits || row.recompute_known ||
         (of_recipe && memory.max_bytes < kWorstError * memory.limit_bytes);
}

// Returns false where no modules make it fit.
bool take_recompute(PublishedRow& row, const std::string& modules) {
  if (modules.empty()) return false;
  row.assumptions.push_back("recompute " + modules + ", without which it would not fit the memory");
  row.scenario.training.recompute = models::StepRecompute::parse(modules);
  return true;
}

}  // namespace

PublishedTable read_tables(const std::vector<std::string>& paths, RowsWith with, std::string_view needed) {
  PublishedTable all;
  for (const std::string& path : paths) {
    std::vector<InputError> ragged;
    const CsvTable table = CsvTable::parse(read_file(path), path, &ragged);
    if (!needed.empty() && !table.has(needed))
      throw InputError(SourcePlace{path, 1, 0},
                       fmt::format("found no column '{}', expected one: rows that have the same are one "
                                   "decision",
                                   needed));
    for (const char* column : {"gpu", "gpus", "model", "precision", "gbs"})
      if (!table.has(kLayerTime) && !table.has(column))
        throw InputError(
            SourcePlace{path, 1, 0},
            fmt::format("found no column {}, expected the columns of published training steps (gpu, gpus, "
                        "model, framework, precision, gbs, mbs, seq_len, tp, pp, cp, vp, ep, etp, "
                        "step_time_s or tokens_per_s_per_gpu, source)",
                        in_quotes(column)));
    for (const InputError& error : ragged) {
      RowText where;
      where.line = error.place().line;
      all.skipped.push_back({where, error.what()});
    }
    for (std::size_t r = 0; r < table.rows(); ++r) {
      Reader reader(table, r, with);
      const RowText facts = reader.facts();
      try {
        all.rows.push_back(reader.read(facts));
      } catch (const InputError& error) {
        all.skipped.push_back({facts, error.what()});
      }
    }
  }
  return all;
}

std::string plan_text(const models::Scenario& s) {
  const models::Parallel& p = s.parallel;
  std::string text = fmt::format("TP{} CP{} PP{}", p.tp, p.cp, p.pp);
  if (p.vpp > 1) text += fmt::format(" VPP{}", p.vpp);
  text += fmt::format(" EP{}", p.ep);
  if (p.etp > 1) text += fmt::format(" ETP{}", p.etp);
  return text + fmt::format(" DP{} mb{}x{} seq{} {}", p.dp, p.microbatches, p.micro_batch, p.seq,
                            s.training.precision);
}

models::Answer forecast_of(PublishedRow& row, int draws) {
  models::AnswerOptions options;
  options.draws = draws;
  options.without = row.left_out;
  models::Answer forecast = models::answer(row.scenario, options).answers.front();
  if (!may_fit(row, forecast.memory) && take_recompute(row, forecast.memory.recompute_that_fits))
    forecast = models::answer(row.scenario, options).answers.front();
  // A job of an unknown framework may run as any recipe does.
  if (row.framework_known || forecast.draws_us.empty() || !row.scenario.is_step()) return forecast;
  const double sigma = models::spread_of_unknown(row.scenario, [](const models::Scenario& as) {
    models::AnswerOptions plain;
    plain.draws = 0;
    plain.breakdown = false;
    return models::answer(as, plain).answers.front().seconds();
  });
  models::doubt_part(forecast, "framework", 1, sigma);
  models::doubt_part(forecast, "dispatchers of the framework: " + forecast.dispatcher + row.backend, 1,
                     models::kStrangerArmSigma);
  forecast.time_us = models::Estimate::from_samples(forecast.time_us.value, forecast.draws_us);
  return forecast;
}

models::StepMemory memory_of(PublishedRow& row) {
  const models::Scenario& s = row.scenario;
  if (s.model.experts == 0) return models::memory_of(s, models::PipelineLayout(s, false));
  const models::StepForecaster forecaster(s, s.dispatchers.front());
  models::StepMemory memory = forecaster.memory();
  if (may_fit(row, memory) || !take_recompute(row, forecaster.recompute_that_fits())) return memory;
  return models::StepForecaster(s, s.dispatchers.front()).memory();
}

}  // namespace moesim::tools

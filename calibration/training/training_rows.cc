#include "calibration/training/training_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/training/row_model.h"
#include "calibration/training/row_notes.h"
#include "models/answers/doubt.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/question/apply_recipe.h"
#include "models/step/pipeline_layout.h"
#include "models/step/step_forecast.h"
#include "models/step/training_flops.h"

namespace moesim::calibration {

namespace {

// The reason why a row cannot be forecast.
struct Skip {
  std::string reason;
};

constexpr std::string_view kLayerTime = "forward_backward_ms";
// Routing of rows that say "natural" without a load: the one imbalance of training that was published.
constexpr const char* kNaturalRouting = "measured:deepseek-v3:shared";

// Returns the integer of "12 (by the launcher example)"; 0 without one.
std::int64_t leading_integer(const std::string& text) {
  const std::size_t end = text.find(' ');
  return parse_int(std::string_view(text).substr(0, end)).value_or(0);
}

class Reader {
 public:
  Reader(const CsvTable& table, RowsWith with) : t_(table), with_(with) {}

  TrainingRow read(std::size_t r) {
    row_ = r;
    settings_.clear();
    TrainingRow row;
    row.table = t_.place(r).file;
    row.line = t_.place(r).line;
    row.source = text("source");
    row.framework = text("framework");
    row.gpu = text("gpu");
    row.model = text("model");
    row.decision_id = text("decision_id");
    row.grade = text("grade");
    row.backend = text("backend");
    if (t_.has(kLayerTime)) return read_layer(std::move(row));
    if (with_ == RowsWith::kPlan) measure_memory(row);
    const Device* device = device_of(row.gpu);
    say("scope", "step");
    say("model", model_of(row));
    const std::int64_t gpus = t_.has("gpus") && stated("gpus") ? t_.integer(row_, "gpus", 1, 1 << 24) : 0;
    if (gpus == 0) throw Skip{"the number of GPUs is not stated"};
    if (!stated("gbs")) throw Skip{"the global batch size is not stated"};
    say("gpus", gpus);
    for (const auto& [column, path] : kSizes)
      if (stated(column)) say(path, t_.integer(row_, column, 1, 1 << 24));
    say("training.precision", precision_of());
    say_run(row);
    say_memory();
    for (const RowSetting& setting : settings_of_note(text("note"))) say(setting.path, setting.value);

    models::Scenario& s = row.scenario;
    const std::int64_t per_node = stated("gpus_per_node") ? t_.integer(row_, "gpus_per_node", 1, 1 << 24)
                                                          : device->limits.gpus_per_node;
    set_cluster(row, *device, gpus, per_node);
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
  struct Size {
    std::string_view column, path;
  };
  static constexpr std::array<Size, 9> kSizes{{{"tp", "parallel.tp"},
                                               {"pp", "parallel.pp"},
                                               {"cp", "parallel.cp"},
                                               {"vp", "parallel.vpp"},
                                               {"ep", "parallel.ep"},
                                               {"etp", "parallel.etp"},
                                               {"mbs", "parallel.micro_batch"},
                                               {"seq_len", "parallel.seq"},
                                               {"gbs", "parallel.global_batch"}}};

  // Records the row's value of a field; an earlier value stays.
  void say(std::string_view path, nlohmann::json value) {
    if (std::ranges::none_of(settings_, [&](const RowSetting& s) { return s.path == path; }))
      settings_.push_back({std::string(path), std::move(value)});
  }
  void set(std::string_view path, const nlohmann::json& value, models::Scenario& s) const {
    const models::Field* field = models::find_field(path);
    const models::Origin origin = models::Origin::file(t_.place(row_).str());
    models::set_field(*field, s, JsonNode::from_json(value, ""), &origin);
  }
  void set_all(models::Scenario& s) const {
    for (const RowSetting& setting : settings_) set(setting.path, setting.value, s);
  }

  static std::string small(std::string_view text) {
    std::string letters;
    for (const char c : text) letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return letters;
  }

  static const Device* device_of(const std::string& gpu) {
    const Device* device = device_of_gpu(gpu);
    if (!device && gpu.starts_with("A100")) device = find_device("a100-sxm");
    if (!device) throw Skip{fmt::format("no profile of GPU {}", in_quotes(gpu))};
    return device;
  }

  // Returns the model that the row names, shortened as its columns say.
  nlohmann::json model_of(TrainingRow& row) const {
    auto named = row_model(row.model, row.source, row.assumptions);
    if (!named) throw Skip{fmt::format("model {}: its layers are not known here", in_quotes(row.model))};
    if (row.model.find("proxy") != std::string::npos)
      throw Skip{"a proxy of the model, of which precision and GPU count are not stated"};
    nlohmann::json& model = *named;
    const auto change = [&](const char* key, std::int64_t value) {
      if (model.is_string()) model = {{"base", model}};
      model[key] = value;
    };
    const models::Architecture whole = models::Architecture::parse(JsonNode::from_json(model, ""));
    if (const std::string layers = text("layers"); !layers.empty() && layers != "n/a") {
      const std::int64_t count = leading_integer(layers);
      if (count < 1 || count > whole.layers)
        throw Skip{fmt::format("{} layers: more than the model's", layers)};
      if (count < whole.layers && !whole.pattern.empty())
        throw Skip{
            fmt::format("{} of {} layers that follow a pattern: which is not stated", count, whole.layers)};
      if (count < whole.layers) {
        change("layers", count);
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
    std::string name = small(text("precision"));
    if (name.empty() || name == "not stated") throw Skip{"the precision is not stated"};
    const auto is = [&](std::string_view start) { return name.starts_with(start); };
    if (is("fp8_cs") || is("fp8-cs") || name == "bf16 + fp8 hybrid") return "fp8";
    if (is("fp8_mx") || is("fp8-mx")) return "mxfp8";
    if (is("fp8_sc") || is("fp8-sc") || name == "fp8_block") return "fp8_block";
    if (name == "fp16" || name == "bfloat16" || name == "bf16 presumed") return "bf16";
    const auto known = models::kPrecisions;
    if (std::ranges::find(known, name) == known.end())
      throw Skip{
          fmt::format("precision {} is not one of bf16, fp8, mxfp8, nvfp4", in_quotes(text("precision")))};
    return name;
  }

  // Sets launch mode, recomputation and overlap of the run.
  void say_run(TrainingRow& row) {
    const auto unstated = [](const std::string& value) { return value.empty() || value == "not stated"; };
    if (const std::string recompute = text("recompute"); !unstated(recompute)) {
      // "none (stated)": given, but doubted by the collector of the rows.
      const std::string plain = recompute.substr(0, recompute.find(" ("));
      if (recompute.ends_with("(stated)"))
        row.assumptions.push_back("recompute " + plain + ", of which the table is not sure");
      try {
        models::StepRecompute::parse(plain);
      } catch (const InputError&) {
        throw Skip{fmt::format("recompute {} is not known here", in_quotes(plain))};
      }
      say("training.recompute", plain);
    }
    if (const std::string overlap = text("overlap"); !unstated(overlap)) {
      say("training.overlap.expert_communication", overlap.starts_with("expert-communication"));
      say("training.overlap.delayed_wgrad", overlap.find("delay_wgrad") != std::string::npos);
      if (overlap == "compiler")
        row.assumptions.push_back("no overlap of dispatch and combine by the compiler");
    }
    if (const std::string graphs = text("cuda_graphs"); !unstated(graphs))
      say("training.launch", graphs == "none"             ? "eager"
                             : graphs == "full_iteration" ? "graphs"
                                                          : "partial-graphs");
    if (leading_integer(text("fsdp")) > 1) say("training.sharding", "fsdp");
    if (with_ == RowsWith::kPlan && text("routing").starts_with("natural"))
      throw Skip{"routing as it came: how imbalanced it was is not stated"};
  }

  // A load for rows that only say that their routing was natural: as it was measured elsewhere, unless a
  // capacity bounds what an expert computes or the recipe knows better.
  void take_natural_routing(TrainingRow& row) const {
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

  void say_memory() {
    const std::string optimizer = text("optimizer");
    if (optimizer.find("fp32 gradients") != std::string::npos) say("training.gradient_bytes", 4);
    if (optimizer.find("FSDP") != std::string::npos) say("training.sharding", "fsdp");
  }

  // Sets the data-parallel ranks from the remaining GPUs; all of them are used.
  void take_data_parallel(models::Scenario& s, std::int64_t gpus) const {
    const models::Parallel& p = s.parallel;
    const std::int64_t ranks = checked_product("tp x cp x pp", {p.tp, p.cp, p.pp});
    if (gpus % ranks != 0)
      throw Skip{fmt::format("{} GPUs are no multiple of tp x cp x pp = {}", gpus, ranks)};
    set("parallel.dp", gpus / ranks, s);
  }

  // Takes the framework's own defaults, each one listed as an assumption.
  void take(const models::FrameworkRecipe& recipe, TrainingRow& row) const {
    models::Scenario& s = row.scenario;
    set("recipe", recipe.id(), s);
    const models::RecipeFacts said{{"framework", small(row.framework)}, {"grade", small(row.grade)}};
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
      throw Skip{fmt::format("{} {} not stated, and decide{} the step", join(missing, ", "),
                             missing.size() > 1 ? "are" : "is", missing.size() > 1 ? "" : "s")};
  }

  // Sets the machine that the row's source, GPU or network names; several racks, and the port rate of the
  // table.
  void set_cluster(TrainingRow& row, const Device& device, std::int64_t gpus, std::int64_t per_node) const {
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

  // Returns the dispatcher that the row names: padded to a capacity, by its library, by its own name.
  std::string dispatcher_of(const TrainingRow& row, std::string_view framework) const {
    if (text("routing").starts_with("capacity factor 1, padded"))
      return "alltoall:capacity_factor=1:pad=true";
    // MaxText's products with one-hot masks: every sequence has its own capacity.
    constexpr std::string_view kCapacity = "capacity factor ";
    if (const std::string asked = text("dispatcher");
        asked.starts_with(kCapacity) && asked.find("dense einsum") != std::string::npos)
      return fmt::format(
          "deepspeed:capacity_factor={}:min_capacity=0:group={}",
          asked.substr(kCapacity.size(), asked.find_first_of(" ,", kCapacity.size()) - kCapacity.size()),
          row.scenario.parallel.seq);
    std::string alltoall = framework == "torchtitan" ? "torchtitan-alltoall" : "alltoall";
    const std::string& library = row.backend;
    const auto is = [&](std::string_view start) { return library.starts_with(start); };
    if (is("deepep")) return "flex-deepep";
    if (is("hybridep")) return "flex-hybridep";
    if (is("nccl-ep")) return "nccl-ep";
    if (library == "allgather") return "allgather";
    if (library == "nccl" || library == "nccl-ragged" || library == "rccl") return alltoall;
    if (library == "nccl+llep") return alltoall + ":balance=least-loaded";
    if (is("nccl")) throw Skip{fmt::format("backend {} is no dispatcher here", in_quotes(library))};
    return dispatcher_of_text(text("dispatcher"), alltoall);
  }

  // One GPU's experts need no library; adds the SMs and the transport that the row states.
  void finish_dispatcher(TrainingRow& row) const {
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
    } catch (const InputError& error) {
      if (plus == std::string::npos) throw Skip{error.what()};
      row.assumptions.push_back("transport " + row.backend.substr(plus + 1) + " is not told from others");
      with_transport = spec;
    }
    s.dispatchers = {with_transport};
  }

  // One layer with experts only, forward and backward.
  TrainingRow read_layer(TrainingRow row) {
    const Device* device = device_of(row.gpu);
    row.model = text("case");
    row.framework = "Megatron-Core (eager, one layer)";
    nlohmann::json model{{"name", row.model}, {"layers", 1}, {"pattern", "E"}, {"vocabulary", 1024}};
    model["attention"] = {{"heads", 16}, {"head_dim", 128}};  // unused in a pattern of experts
    for (const auto& [column, key] : {std::pair{"hidden", "hidden"},
                                      {"experts", "experts"},
                                      {"topk", "topk"},
                                      {"moe_inter", "expert_ffn"},
                                      {"tokens_per_rank", ""}}) {
      if (!stated(column)) throw Skip{"the sizes of the layer are not stated"};
      if (const std::int64_t value = t_.integer(row_, column, 1, 1 << 24); *key != 0) model[key] = value;
    }
    say("scope", "layer");
    say("model", model);
    say("training.precision", precision_of());
    for (const auto& [column, path] :
         {std::pair{"ep", "parallel.ep"}, {"gpus", "parallel.dp"}, {"tokens_per_rank", "parallel.seq"}})
      say(path, stated(column) ? t_.integer(row_, column, 1, 1 << 24) : 1);
    models::Scenario& s = row.scenario;
    set_all(s);
    set_cluster(row, *device, s.parallel.dp, device->limits.gpus_per_node);
    if (const std::string named = dispatcher_of(row, ""); !named.empty()) set("dispatcher", named, s);
    models::apply(*models::FrameworkRecipe::recognise(row.framework), s);
    row.recompute_known = true;
    finish_dispatcher(row);
    s.resolve();
    row.measured_s = number(kLayerTime) * 1e-3;
    row.measured_from = "layer time";
    if (row.measured_s == 0) throw Skip{"no time is stated"};
    return row;
  }

  std::string text(std::string_view column) const {
    return t_.has(column) ? std::string(trim(t_.text(row_, column))) : std::string();
  }
  bool stated(std::string_view column) const {
    const std::string value = text(column);
    return !value.empty() && value != "n/a" && value != "N/A" && value != "-" && value != "none" &&
           value != "not stated";
  }
  double number(std::string_view column) const {
    return stated(column) ? t_.number(row_, column, 0, 1e12) : 0;
  }

  // Reads columns of tables of measured peaks (../shared/data/memory).
  void measure_memory(TrainingRow& row) const {
    MeasuredMemory& m = row.memory;
    m.id = text("id");
    const auto gib = [&](std::string_view column) { return number(column) * 1024 * 1024 * 1024; };
    m.peak = gib("peak_allocated_GiB");
    m.reserved = gib("peak_reserved_GiB");
    m.first_stage = gib("peak_allocated_first_stage_GiB");
    m.last_stage = gib("peak_allocated_last_stage_GiB");
    const std::string status = text("status"), note = text("note");
    m.ran = status.empty() || status.starts_with("fits");
    if (note.starts_with("LoRA")) throw Skip{"LoRA: which weights were trained is not stated"};
    if (note.find("fine-tuning") != std::string::npos)
      throw Skip{"fine-tuning: how long its sequences are is not stated, only how long they may be"};
    if (note.find("memory taken from the same topology") != std::string::npos)
      throw Skip{"its memory is that of another row: the peak does not depend on the number of microbatches"};
  }

  void measure(TrainingRow& row, std::int64_t gpus, std::int64_t batch) const {
    const double tokens = static_cast<double>(batch * row.scenario.parallel.seq);
    const double flops =
        tokens / static_cast<double>(gpus) *
        models::training_flops_per_token(row.scenario.model, row.scenario.parallel.seq, row.scenario.topk);
    if (const double seconds = number("step_time_s"); seconds > 0) {
      row.measured_s = seconds;
      row.measured_from = "step time";
    } else if (const double rate = number("tokens_per_s_per_gpu"); rate > 0) {
      row.measured_s = tokens / static_cast<double>(gpus) / rate;
      row.measured_from = "tokens/s";
    } else if (const double tflops = number("model_tflops_per_gpu"); tflops > 0) {
      row.measured_s = flops / (tflops * 1e12);
      row.measured_from = "TFLOP/s";
    } else if (const double mfu = number("mfu_percent"); mfu > 0) {
      const double peak =
          row.scenario.cluster->profile.device().peak_flops[static_cast<std::size_t>(models::DType::kBf16)];
      row.measured_s = flops / (mfu / 100 * peak);
      row.measured_from = "MFU";
    } else if (with_ == RowsWith::kTimeOrLimit && text("note").starts_with("OUT OF MEMORY")) {
      row.measured_s = std::numeric_limits<double>::infinity();
      row.measured_from = "out of memory";
      row.memory.ran = false;
      return;
    } else {
      throw Skip{"neither a step time nor a rate is stated"};
    }
    constexpr double kShortest = 1e-6, kLongest = 1e7;
    if (!(row.measured_s >= kShortest && row.measured_s <= kLongest)) {
      throw Skip{fmt::format("a step of {:.3g} s, which no job has", row.measured_s)};
    }
  }

  const CsvTable& t_;
  RowsWith with_;
  std::size_t row_ = 0;
  std::vector<RowSetting> settings_;  // of the row, in the order in which they are set
};

}  // namespace

TrainingTable read_training_table(const std::string& path, RowsWith with) {
  const CsvTable table = CsvTable::parse(read_file(path), path);
  const bool layers = table.has(kLayerTime);
  for (const char* column : {"gpu", "gpus", "model", "precision", "gbs"})
    if (!layers && !table.has(column))
      throw InputError(
          SourcePlace{path, 1, 0},
          fmt::format("found no column {}, expected the columns of published training steps (gpu, gpus, "
                      "model, framework, precision, gbs, mbs, seq_len, tp, pp, cp, vp, ep, etp, "
                      "step_time_s or tokens_per_s_per_gpu, source)",
                      in_quotes(column)));
  TrainingTable result;
  Reader reader(table, with);
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const auto skip = [&](const std::string& reason) {
      const auto get = [&](const char* column) {
        return table.has(column) ? table.text(r, column) : std::string();
      };
      result.skipped.push_back({table.place(r).line, get("source"), get("gpu"), get("model"), reason,
                                get("decision_id"), get("backend")});
    };
    try {
      result.rows.push_back(reader.read(r));
    } catch (const Skip& reason) {
      skip(reason.reason);
    } catch (const InputError& error) {
      // An invalid number is an error of the table; an inconsistent plan is one of the row.
      if (!error.place().file.empty()) throw;
      skip(error.what());
    }
  }
  return result;
}

TrainingTable read_tables(const std::vector<std::string>& paths, RowsWith with) {
  TrainingTable all;
  for (const std::string& path : paths) {
    TrainingTable one = read_training_table(path, with);
    std::ranges::move(one.rows, std::back_inserter(all.rows));
    std::ranges::move(one.skipped, std::back_inserter(all.skipped));
  }
  return all;
}

std::string plan_text(const models::Scenario& s) {
  const models::Parallel& p = s.parallel;
  std::string text = fmt::format("TP{} CP{} PP{}", p.tp, p.cp, p.pp);
  if (p.vpp > 1) text += fmt::format(" VPP{}", p.vpp);
  text += fmt::format(" EP{}", p.ep);
  if (p.etp > 1) text += fmt::format(" ETP{}", p.etp);
  text +=
      fmt::format(" DP{} mb{}x{} seq{} {}", p.dp, p.microbatches, p.micro_batch, p.seq, s.training.precision);
  return text;
}

namespace {

void take_recompute(TrainingRow& row, const std::string& modules) {
  row.assumptions.push_back("recompute " + modules + ", without which it would not fit the memory");
  row.scenario.training.recompute = models::StepRecompute::parse(modules);
}

// The job ran: its recipe's recomputation stays where the excess is within the worst error of memory
// forecasts (6.8 % of 28 measured peaks, docs/step.md).
bool may_fit(const TrainingRow& row, const models::StepMemory& memory) {
  constexpr double kWorstError = 1.068;
  const bool of_recipe = row.scenario.origin_of("training.recompute").kind == models::Origin::Kind::kRecipe;
  return memory.fits || row.recompute_known ||
         (of_recipe && memory.max_bytes < kWorstError * memory.limit_bytes);
}

models::StepMemory memory_of(const models::Scenario& s) {
  if (s.model.experts == 0) return models::memory_of(s, models::PipelineLayout(s, false));
  return models::StepForecaster(s, s.dispatchers.front()).memory();
}

}  // namespace

namespace {

// A job of an unknown framework may run as any recipe does.
models::Answer doubted(const TrainingRow& row, models::Answer forecast) {
  if (row.framework_known || forecast.draws_us.empty() || !row.scenario.is_step()) return forecast;
  const double sigma = models::spread_of_unknown(row.scenario, [](const models::Scenario& as) {
    models::AnswerOptions options;
    options.draws = 0;
    options.breakdown = false;
    return models::answer(as, options).answers.front().seconds();
  });
  models::doubt_part(forecast, "framework", 1, sigma);
  models::doubt_part(forecast, "dispatchers of the framework: " + forecast.dispatcher + row.backend, 1,
                     models::kStrangerArmSigma);
  forecast.time_us = models::Estimate::from_samples(forecast.time_us.value, forecast.draws_us);
  return forecast;
}

}  // namespace

models::Answer forecast_of(TrainingRow& row, int draws) {
  models::AnswerOptions options;
  options.draws = draws;
  options.without = row.left_out;
  models::Answer forecast = models::answer(row.scenario, options).answers.front();
  const std::string more = forecast.memory.recompute_that_fits;
  if (may_fit(row, forecast.memory) || more.empty()) return doubted(row, std::move(forecast));
  take_recompute(row, more);
  return doubted(row, models::answer(row.scenario, options).answers.front());
}

models::StepMemory memory_of(TrainingRow& row) {
  models::StepMemory memory = memory_of(row.scenario);
  if (may_fit(row, memory) || row.scenario.model.experts == 0) return memory;
  const std::string more =
      models::StepForecaster(row.scenario, row.scenario.dispatchers.front()).recompute_that_fits();
  if (more.empty()) return memory;
  take_recompute(row, more);
  return memory_of(row.scenario);
}

}  // namespace moesim::calibration

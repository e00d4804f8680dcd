#include "calibration/training/training_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <memory>
#include <optional>

#include "base/checked.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/training/training_models.h"
#include "calibration/training/training_recipes.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/step/job_plan.h"
#include "models/step/step_forecast.h"
#include "models/step/training_flops.h"

namespace moesim::calibration {

namespace {

// Why a row cannot be forecast.
struct Skip {
  std::string reason;
};

// NCCL on Perlmutter as cornell-sysphotonics/ccl-bench ran it. Its row
// deepseek-v3-16b-torchtitan-ep4-dp2-tp4, from which this one number was taken, communicates for 12.0 s;
// parameters gathered twice and gradients reduced once over pairs of GPUs of two nodes are 8.4 GB (its
// all-gather volume counts the shard that a rank puts in) and 8.3 GB through a GPU's port: with the laws of
// slingshot-polaris, the line rate at which they take that long.
constexpr double kPerlmutterPort = 1.3e9;  // bytes/s of a GPU

constexpr std::string_view kLayerTime = "forward_backward_ms";

// Of "12 (by the launcher example)"; 0 where there is none.
std::int64_t leading_integer(const std::string& text) {
  const std::size_t end = text.find(' ');
  return parse_int(std::string_view(text).substr(0, end)).value_or(0);
}

class Reader {
 public:
  Reader(const CsvTable& table, RowsWith with) : t_(table), with_(with) {}

  TrainingRow read(std::size_t r) {
    row_ = r;
    padded_ = false;
    TrainingRow row;
    row.line = t_.place(r).line;
    row.source = text("source");
    row.framework = text("framework");
    row.gpu = text("gpu");
    row.model = text("model");
    row.decision_id = text("decision_id");
    row.grade = text("grade");
    row.backend = text("backend");
    if (t_.has(kLayerTime)) return read_layer(std::move(row));
    models::Scenario& s = row.scenario;
    const auto dense = with_ == RowsWith::kPlan ? dense_model(row.model) : std::nullopt;
    const auto model = dense ? dense : training_model(row.model, row.source, row.assumptions);
    if (!model) throw Skip{fmt::format("model {}: its layers are not known here", in_quotes(row.model))};
    if (row.model.find("proxy") != std::string::npos)
      throw Skip{"a proxy of the model, of which precision and GPU count are not stated"};
    s.model = *model;
    if (with_ == RowsWith::kPlan) measure_memory(row);
    const Device* device = device_of(row.gpu);
    const std::int64_t gpus = size("gpus", 0);
    if (gpus == 0) throw Skip{"the number of GPUs is not stated"};
    const std::int64_t per_node = size("gpus_per_node", device->limits.gpus_per_node);

    models::Parallel& p = s.parallel;
    p.tp = size("tp", 1);
    p.pp = size("pp", 1);
    p.cp = size("cp", 1);
    p.vpp = size("vp", 1);
    p.ep = size("ep", 1);
    p.seq = size("seq_len", 4096);
    const std::string precision = text("precision");
    const TrainingRecipe recipe =
        recipe_of(row.framework, text("note"), text("dispatcher"), s.model.name, row.gpu, precision, p.pp);
    s.training = recipe.plan;
    set_precision(s, precision);
    row.recompute_known = recipe.recompute_known;
    if (with_ == RowsWith::kPlan) {
      state_memory(row);
      if (recipe.overlaps_inside) {
        s.training.overlap.expert_communication = false;
        row.assumptions.push_back("overlap inside a microbatch: no second one is held");
      }
    }
    read_run(row);
    if (recipe.cp_fills_node && !stated("cp")) {
      p.cp = std::max<std::int64_t>(1, per_node / p.tp);
      row.assumptions.push_back(fmt::format("attention split over {} GPUs along the sequence", p.cp));
    }
    p.etp = size("etp", recipe.etp_is_tp ? p.tp : 1);
    if (!stated("etp") && recipe.etp_is_tp && p.tp > 1)
      row.assumptions.push_back(fmt::format("ETP = TP = {}", p.tp));
    const std::int64_t model_ranks = checked_product("tp x cp x pp", {p.tp, p.cp, p.pp});
    if (gpus % model_ranks != 0)
      throw Skip{fmt::format("{} GPUs are no multiple of tp x cp x pp = {}", gpus, model_ranks)};
    p.dp = gpus / model_ranks;
    s.give("parallel.dp"), s.give("parallel.seq");
    if ((p.tp * p.cp * p.dp) % (p.etp * p.ep) != 0)
      throw Skip{fmt::format("etp x ep = {} does not divide the {} GPUs of a pipeline stage", p.etp * p.ep,
                             p.tp * p.cp * p.dp)};
    const std::int64_t batch = size("gbs", 0);
    if (batch == 0) throw Skip{"the global batch size is not stated"};
    p.micro_batch = size("mbs", 0);
    if (p.micro_batch == 0) {
      // torchtitan runs a rank's whole batch at once without a pipeline; elsewhere one sequence.
      const bool whole = row.framework == "torchtitan" && p.pp == 1;
      p.micro_batch = whole ? std::max<std::int64_t>(1, batch / p.dp) : 1;
      row.assumptions.push_back(fmt::format("microbatches of {}", p.micro_batch));
    }
    if (batch % (p.dp * p.micro_batch) != 0)
      throw Skip{
          fmt::format("a batch of {} is no multiple of dp x micro batch = {}", batch, p.dp * p.micro_batch)};
    p.microbatches = batch / (p.dp * p.micro_batch);
    if (recipe.most_interleaved && !stated("vp") && p.pp > 1 && s.model.layers % p.pp == 0 &&
        p.microbatches % p.pp == 0) {
      p.vpp = s.model.layers / p.pp;
      row.assumptions.push_back(fmt::format("interleaved, {} virtual stages", p.vpp));
    }

    models::Cluster cluster =
        cluster_of(models::Profile::load(std::string(device->profile)), machine_of(row),
                   static_cast<int>((gpus + per_node - 1) / per_node), static_cast<int>(per_node));
    // Jobs of several racks take 64 of a rack's 72 GPUs, so that groups of powers of two stay inside.
    if (cluster.nvlink.domain == 72 && gpus > 72) cluster.nvlink.domain = 64;
    if (row.gpu.find("Perlmutter") != std::string::npos) {
      cluster.nic.ports_per_node = static_cast<int>(per_node);
      cluster.nic.bandwidth = kPerlmutterPort;
    }
    set_network(row, cluster);
    s.cluster = std::make_shared<const models::Cluster>(std::move(cluster));
    s.scope = models::Scenario::Scope::kStep;
    if (s.model.experts == 0) {
      p.validate(1);
      return row;
    }
    // Tables of peaks state the dispatcher of each job; others have their recipe's.
    const bool alltoall = with_ == RowsWith::kPlan && text("dispatcher") == "alltoall";
    if (padded_)
      s.set_dispatchers("alltoall:capacity_factor=1:pad=true");
    else
      set_dispatcher(row, alltoall ? "alltoall" : recipe.dispatcher);
    s.resolve();
    if (with_ == RowsWith::kTime) measure(row, gpus, batch);
    return row;
  }

 private:
  static const Device* device_of(const std::string& gpu) {
    const Device* device = device_of_gpu(gpu);
    if (!device && gpu.starts_with("A100")) device = find_device("a100-sxm");
    if (!device) throw Skip{fmt::format("no profile of GPU {}", in_quotes(gpu))};
    return device;
  }

  // One layer with experts alone, forward and backward.
  TrainingRow read_layer(TrainingRow row) const {
    const Device* device = device_of(row.gpu);
    row.model = text("case");
    row.framework = "Megatron-Core";
    models::Scenario& s = row.scenario;
    models::Architecture& a = s.model;
    a.name = row.model;
    a.hidden = size("hidden", 0);
    a.experts = size("experts", 0);
    a.topk = size("topk", 0);
    a.expert_ffn = size("moe_inter", 0);
    a.layers = 1;
    a.pattern = "E";  // no attention
    a.vocabulary = 1024;
    a.attention.heads = a.attention.kv_heads = 16;
    a.attention.head_dim = 128;
    models::Parallel& p = s.parallel;
    p.ep = size("ep", 1);
    p.dp = size("gpus", 1);
    p.seq = size("tokens_per_rank", 0);
    if (a.hidden == 0 || a.experts == 0 || a.topk == 0 || a.expert_ffn == 0 || p.seq == 0)
      throw Skip{"the sizes of the layer are not stated"};
    s.give("parallel.dp"), s.give("parallel.seq");
    set_precision(s, text("precision"));
    s.training.framework = models::Framework::kMegatronStock;  // eager, one layer, nothing tuned
    row.recompute_known = true;
    s.cluster = std::make_shared<const models::Cluster>(
        cluster_of(models::Profile::load(std::string(device->profile)), machine_of(row),
                   static_cast<int>((p.dp + device->limits.gpus_per_node - 1) / device->limits.gpus_per_node),
                   device->limits.gpus_per_node));
    set_dispatcher(row, "alltoall");
    s.scope = models::Scenario::Scope::kLayer;
    s.resolve();
    row.measured_s = number(kLayerTime) * 1e-3;
    row.measured_from = "layer time";
    if (row.measured_s == 0) throw Skip{"no time is stated"};
    return row;
  }

  // What a table says of the run itself; what it leaves open stays as the framework's presets have it.
  void read_run(TrainingRow& row) const {
    models::TrainingPlan& plan = row.scenario.training;
    // Functional runs of a model card: natural routing, checks on; its performance runs are graded A.
    if (row.grade == "A" && plan.framework == models::Framework::kMegatronStock)
      plan.framework = models::Framework::kMegatronRecipe;
    const auto unstated = [](const std::string& value) { return value.empty() || value == "not stated"; };
    if (const std::string recompute = text("recompute"); !unstated(recompute)) {
      // "none (stated)": said, and doubted by whoever collected the rows.
      const std::string plain = recompute.substr(0, recompute.find(" ("));
      if (plain != recompute)
        row.assumptions.push_back("recompute " + plain + ", of which the table is not sure");
      try {
        plan.recompute = models::StepRecompute::parse(plain);
      } catch (const InputError&) {
        throw Skip{fmt::format("recompute {} is not known here", in_quotes(plain))};
      }
      row.recompute_known = true;
    }
    if (const std::string overlap = text("overlap"); !unstated(overlap)) {
      plan.overlap.expert_communication = overlap.starts_with("expert-communication");
      plan.overlap.delayed_wgrad = overlap.find("delay_wgrad") != std::string::npos;
      if (overlap == "compiler")
        row.assumptions.push_back("no overlap of dispatch and combine by the compiler");
    }
    if (const std::string graphs = text("cuda_graphs"); !unstated(graphs))
      plan.launch = graphs == "none"             ? models::LaunchMode::kEager
                    : graphs == "full_iteration" ? models::LaunchMode::kGraphs
                                                 : models::LaunchMode::kPartialGraphs;
    if (leading_integer(text("fsdp")) > 1) plan.set_sharding("fsdp");
    const std::string routing = text("routing");
    if (routing.starts_with("natural"))
      row.assumptions.push_back("balanced routing, where the run's was natural");
  }

  // The machine that the row's source, GPU or network names.
  const Machine* machine_of(const TrainingRow& row) const {
    return calibration::machine_of(row.source, row.gpu + " " + text("network"));
  }

  // The line rate that the table states, on the network that it names, else on the GPU's usual one.
  void set_network(TrainingRow& row, models::Cluster& cluster) const {
    const double rate = number("nic_GBps_per_gpu");
    if (rate == 0) return;
    cluster.nic.bandwidth = rate * 1e9 * cluster.gpus_per_node / cluster.nic.ports_per_node;
    row.assumptions.push_back(fmt::format("network {}: {:.0f} GB/s a GPU, as {} was measured",
                                          in_quotes(text("network")), rate, cluster.network));
  }

  // By the library that the row names, otherwise `usual`.
  void set_dispatcher(TrainingRow& row, const std::string& usual) const {
    models::Scenario& s = row.scenario;
    std::string name = usual;
    const std::string& library = row.backend;
    const auto is = [&](std::string_view start) { return library.starts_with(start); };
    if (is("deepep"))
      name = "flex-deepep";
    else if (is("hybridep"))
      name = "flex-hybridep";
    else if (is("nccl-ep"))
      name = "nccl-ep";
    else if (library == "allgather")
      name = "allgather";
    else if (library == "nccl" || library == "nccl-ragged")
      name = row.framework.starts_with("torchtitan") ? "torchtitan-alltoall" : "alltoall";
    else if (is("nccl"))
      throw Skip{fmt::format("backend {} is no dispatcher here", in_quotes(library))};
    if (s.parallel.dispatch_ranks() == 1 && name.starts_with("flex")) name = "alltoall";
    if (stated("comm_sms") && name.starts_with("flex")) name += ":sms=" + text("comm_sms");
    const std::size_t plus = library.find('+');
    try {
      s.set_dispatchers(plus == std::string::npos ? name : name + ":transport=" + library.substr(plus + 1));
      models::make_dispatcher(s.dispatchers.front());  // throws where it has no such option
      return;
    } catch (const InputError& error) {
      if (plus == std::string::npos) throw Skip{error.what()};
    }
    s.set_dispatchers(name);
    row.assumptions.push_back("transport " + library.substr(plus + 1) + " is not told from others");
  }

  std::string text(std::string_view column) const {
    return t_.has(column) ? std::string(trim(t_.text(row_, column))) : std::string();
  }
  bool stated(std::string_view column) const {
    const std::string value = text(column);
    return !value.empty() && value != "n/a" && value != "N/A" && value != "-" && value != "none";
  }
  std::int64_t size(std::string_view column, std::int64_t otherwise) const {
    if (!stated(column)) return otherwise;
    return t_.integer(row_, column, 1, 1 << 24);
  }
  double number(std::string_view column) const {
    return stated(column) ? t_.number(row_, column, 0, 1e12) : 0;
  }

  static void set_precision(models::Scenario& s, const std::string& text) {
    std::string name;
    for (const char c : text) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (name.starts_with("fp8_cs") || name.starts_with("fp8-cs")) name = "fp8";
    if (name.starts_with("fp8_mx") || name.starts_with("fp8-mx")) name = "mxfp8";
    if (name.starts_with("fp8_sc") || name.starts_with("fp8-sc") || name == "fp8_block") name = "fp8_block";
    if (name == "fp16" || name == "bfloat16") name = "bf16";
    try {
      s.training.set_precision(name);
    } catch (const InputError&) {
      throw Skip{text.empty()
                     ? "the precision is not stated"
                     : fmt::format("precision {} is not one of bf16, fp8, mxfp8, nvfp4", in_quotes(text))};
    }
  }

  // Columns of tables of measured peaks (../shared/data/memory): what was held, and of which cut of the
  // model.
  void measure_memory(TrainingRow& row) {
    MeasuredMemory& m = row.memory;
    m.id = text("id");
    const auto gib = [&](std::string_view column) { return number(column) * 1024 * 1024 * 1024; };
    m.peak = gib("peak_allocated_GiB");
    m.reserved = gib("peak_reserved_GiB");
    m.first_stage = gib("peak_allocated_first_stage_GiB");
    m.last_stage = gib("peak_allocated_last_stage_GiB");
    const std::string status = text("status");
    m.ran = status.empty() || status.starts_with("fits");
    const std::string note = text("note");
    if (note.starts_with("LoRA")) throw Skip{"LoRA: which weights were trained is not stated"};
    if (note.find("fine-tuning") != std::string::npos)
      throw Skip{"fine-tuning: how long its sequences are is not stated, only how long they may be"};
    if (note.find("memory taken from the same topology") != std::string::npos)
      throw Skip{"its memory is that of another row: the peak does not depend on the number of microbatches"};
    models::Architecture& a = row.scenario.model;
    const std::string layers = text("layers");
    if (layers.empty()) return;
    const std::int64_t count = leading_integer(layers);
    if (count < 1 || count > a.layers) throw Skip{fmt::format("{} layers: more than the model's", layers)};
    if (a.pattern.empty()) a.layers = count;
    a.dense_layers = std::min(a.dense_layers, count);
    if (const std::string dense = text("dense_layers"); !dense.empty() && a.experts > 0)
      a.dense_layers = leading_integer(dense);
    if (count < models::Architecture(a).layers) a.mtp_layers = 0;
  }

  // What such a table says about the plan.
  void state_memory(TrainingRow& row) {
    models::TrainingPlan& plan = row.scenario.training;
    const std::string again = text("recompute"), optimizer = text("optimizer"), routing = text("routing");
    if (again == "not stated") {
      row.recompute_known = false;
    } else if (!again.empty()) {
      plan.recompute = models::StepRecompute::parse(again);
      row.recompute_known = true;
    }
    if (optimizer.find("fp32 gradients") != std::string::npos) plan.gradient_bytes = 4;
    if (optimizer.find("FSDP") != std::string::npos) plan.set_sharding("fsdp");
    if (text("note").find("expert communication overlapped") != std::string::npos)
      plan.overlap.expert_communication = true;
    padded_ = routing.starts_with("capacity factor 1, padded");
    if (routing.starts_with("natural")) throw Skip{"routing as it came: how imbalanced it was is not stated"};
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
  bool padded_ = false;  // experts take as many rows as with balanced routing
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
      // A number that is none is the table's mistake; a plan that does not fit together is that row's.
      if (!error.place().file.empty()) throw;
      skip(error.what());
    }
  }
  return result;
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

models::StepMemory memory_of(const models::Scenario& s) {
  if (s.model.experts == 0) return models::memory_of(s, models::JobPlan(s, false));
  return models::StepForecaster(s, s.dispatchers.front()).memory();
}

}  // namespace

models::Answer forecast_of(TrainingRow& row, int draws) {
  models::AnswerOptions options;
  options.draws = draws;
  models::Answer forecast = models::answer(row.scenario, options).answers.front();
  const std::string more = forecast.memory.recompute_that_fits;
  if (forecast.memory.fits || row.recompute_known || more.empty()) return forecast;
  take_recompute(row, more);
  return models::answer(row.scenario, options).answers.front();
}

models::StepMemory memory_of(TrainingRow& row) {
  models::StepMemory memory = memory_of(row.scenario);
  if (memory.fits || row.recompute_known || row.scenario.model.experts == 0) return memory;
  const std::string more =
      models::StepForecaster(row.scenario, row.scenario.dispatchers.front()).recompute_that_fits();
  if (more.empty()) return memory;
  take_recompute(row, more);
  return memory_of(row.scenario);
}

}  // namespace moesim::calibration

#include "tools/moesim/verbs/training_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <memory>
#include <optional>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "models/hardware/cluster.h"
#include "models/step/training_flops.h"
#include "tools/moesim/verbs/training_recipes.h"

namespace moesim::tools {

namespace {

using calibration::CsvTable;
using models::Architecture;

// Why a row cannot be forecast.
struct Skip {
  std::string reason;
};

std::string plain(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// Names of published tables against built-in models; the first one that the letters of a name start with.
struct Alias {
  std::string_view letters, model;
};
constexpr std::array<Alias, 24> kAliases{{{"mixtral8x7b", "mixtral-8x7b"},
                                          {"mixtral8x22b", "mixtral-8x22b"},
                                          {"llama38x70b", "llama3-8x70b"},
                                          {"qwen257b", "qwen2-57b-a14b"},
                                          {"qwen330b", "qwen3-30b-a3b"},
                                          {"qwen3235b", "qwen3-235b-a22b"},
                                          {"deepseekv316b", "deepseek-v2-lite"},  // torchtitan's test sizes
                                          {"deepseekv3236b", "deepseek-v2"},
                                          {"deepseekv3671b", "deepseek-v3"},
                                          {"deepseekv2lite", "deepseek-v2-lite"},
                                          {"deepseekv2", "deepseek-v2"},
                                          {"deepseekv3", "deepseek-v3"},
                                          {"deepseekmoe16b", "deepseek-moe-16b"},
                                          {"kimik2", "kimi-k2"},
                                          {"gptoss120b", "gpt-oss-120b"},
                                          {"gptoss20b", "gpt-oss-20b"},
                                          {"nemotron3nano", "nemotron-3-nano"},
                                          {"nemotron3super", "nemotron-3-super"},
                                          {"hunyuanlarge", "hunyuan-large"},
                                          {"phi35moe", "phi-3.5-moe"},
                                          {"llama4scout", "llama4-scout"},
                                          {"llama4maverick", "llama4-maverick"},
                                          {"dbrx", "dbrx"},
                                          {"olmoe", "olmoe"}}};

Architecture architecture_of(const std::string& name, const std::string& source) {
  const std::string letters = plain(name);
  Architecture a;
  if (letters.starts_with("internal352b")) {  // arXiv 2505.11432, table 2
    a = Architecture::load("mixtral-8x7b");
    a.name = "internal-352b";
    a.layers = 60, a.experts = 32, a.topk = 3, a.expert_ffn = 14336, a.vocabulary = 65536;
    // One shared expert: with it the sizes give 352 B parameters (341 B without) and the 282 GFLOP a token of
    // the published MFU (219 without).
    a.shared_ffn = 14336;
    return a;
  }
  for (const Alias& alias : kAliases)
    if (letters.starts_with(alias.letters)) {
      a = Architecture::load(std::string(alias.model));
      break;
    }
  if (a.name.empty()) {
    const auto names = Architecture::names();
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Skip{fmt::format("model {}: its layers are not known here", in_quotes(name))};
    a = Architecture::load(name);
  }
  if (letters.find("g8t8") != std::string::npos) {  // arXiv 2504.14960: every expert cut into eight
    a.name += "-g8t8";
    a.experts = 64, a.topk = 8, a.expert_ffn = 2048;
  }
  if (letters.find("proxy") != std::string::npos)
    throw Skip{"a proxy of the model, of which precision and GPU count are not stated"};
  if (source.find("2505.11432") !=
      std::string::npos) {  // table 2 there: no shared experts, every layer the same
    a.vocabulary = 65536;
    a.shared_ffn = 0;
    a.dense_layers = 0;
  }
  return a;
}

// NCCL on Perlmutter as cornell-sysphotonics/ccl-bench ran it. Its row
// deepseek-v3-16b-torchtitan-ep4-dp2-tp4, from which this one number was taken, communicates for 12.0 s;
// parameters gathered twice and gradients reduced once over pairs of GPUs of two nodes are 8.4 GB (its
// all-gather volume counts the shard that a rank puts in) and 8.3 GB through a GPU's port.
constexpr double kPerlmutterPort = 1.4e9;  // bytes/s of a GPU

class Reader {
 public:
  explicit Reader(const CsvTable& table) : t_(table) {}

  TrainingRow read(std::size_t r) {
    row_ = r;
    TrainingRow row;
    row.line = t_.place(r).line;
    row.source = text("source");
    row.framework = text("framework");
    row.gpu = text("gpu");
    row.model = text("model");
    models::Scenario& s = row.scenario;
    s.model = architecture_of(row.model, row.source);
    const calibration::Device* device = calibration::device_of_gpu(row.gpu);
    if (!device && row.gpu.starts_with("A100")) device = calibration::find_device("a100-sxm");
    if (!device) throw Skip{fmt::format("no profile of GPU {}", in_quotes(row.gpu))};
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
    if (recipe.cp_fills_node && !stated("cp")) {
      p.cp = std::max<std::int64_t>(1, per_node / p.tp);
      row.assumptions.push_back(fmt::format("attention split over {} GPUs along the sequence", p.cp));
    }
    p.etp = size("etp", recipe.etp_is_tp ? p.tp : 1);
    if (!stated("etp") && recipe.etp_is_tp && p.tp > 1)
      row.assumptions.push_back(fmt::format("ETP = TP = {}", p.tp));
    const std::int64_t model_ranks = p.tp * p.cp * p.pp;
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

    models::Cluster cluster = calibration::cluster_of(
        models::Profile::load(std::string(device->profile)), calibration::machine_of(row.source, row.gpu),
        static_cast<int>((gpus + per_node - 1) / per_node), static_cast<int>(per_node));
    // Jobs of several racks take 64 of a rack's 72 GPUs, so that groups of powers of two stay inside.
    if (cluster.nvlink.domain == 72 && gpus > 72) cluster.nvlink.domain = 64;
    if (row.gpu.find("Perlmutter") != std::string::npos) {
      cluster.nic.ports_per_node = static_cast<int>(per_node);
      cluster.nic.bandwidth = kPerlmutterPort;
    }
    s.cluster = std::make_shared<const models::Cluster>(std::move(cluster));
    s.set_dispatchers(p.dispatch_ranks() == 1 && recipe.dispatcher.starts_with("flex") ? "alltoall"
                                                                                       : recipe.dispatcher);
    s.scope = models::Scenario::Scope::kStep;
    s.resolve();
    measure(row, gpus, batch);
    return row;
  }

 private:
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
  }

  const CsvTable& t_;
  std::size_t row_ = 0;
};

}  // namespace

TrainingTable read_training_table(const std::string& path) {
  const CsvTable table = CsvTable::parse(read_file(path), path);
  for (const char* column : {"gpu", "gpus", "model", "precision", "gbs"})
    if (!table.has(column))
      throw InputError(
          SourcePlace{path, 1, 0},
          fmt::format("found no column {}, expected the columns of published training steps (gpu, gpus, "
                      "model, framework, precision, gbs, mbs, seq_len, tp, pp, cp, vp, ep, etp, "
                      "step_time_s or tokens_per_s_per_gpu, source)",
                      in_quotes(column)));
  TrainingTable result;
  Reader reader(table);
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const auto skip = [&](const std::string& reason) {
      const auto get = [&](const char* column) {
        return table.has(column) ? table.text(r, column) : std::string();
      };
      result.skipped.push_back({table.place(r).line, get("source"), get("gpu"), get("model"), reason});
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

}  // namespace moesim::tools

#include "layer/recording.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace moesim::bench {
namespace {

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
  va_list first, second;
  va_start(first, format);
  va_copy(second, first);
  std::string out(static_cast<std::size_t>(std::vsnprintf(nullptr, 0, format, first)), '\0');
  va_end(first);
  std::vsnprintf(out.data(), out.size() + 1, format, second);
  va_end(second);
  return out;
}

std::string utc(const char* format) {
  const std::time_t now = std::time(nullptr);
  char out[32];
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(out, sizeof out, format, &parts);
  return out;
}

// Escapes text for a comment or a JSON string: one line of plain characters.
std::string plain(const std::string& any) {
  std::string out;
  for (const char c : any) out += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

std::string quoted(const std::string& any) { return '"' + plain(any) + '"'; }

template <class T>
std::string list_of(const std::vector<T>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  return out + "]";
}

// Milliseconds to the nanosecond.
std::string ms(double seconds) { return text("%.6f", seconds * 1e3); }

const char* dtype(Element element) { return element == Element::kBf16 ? "torch.bfloat16" : "torch.float32"; }

std::string sub_operation(const RankLayer& rank, const Transfer& transfer, double at, Element element) {
  using Kind = Transfer::Kind;
  const char* type = transfer.kind == Kind::kCounts ? "torch.int32"
                     : transfer.kind == Kind::kLoss ? "torch.float32"
                                                    : dtype(element);
  return text(
      "'trace_src_func=%s,duration=0.0,timestamp=%s,input__shape=%s,input__dtype=%s,func_name=%s,group=%s,"
      "comm_func=%s'",
      transfer.source.c_str(), ms(at).c_str(), list_of(rank.shape_of(transfer.kind)).c_str(), type,
      transfer.function.c_str(), transfer.group.c_str(), transfer.comm.c_str());
}

// A line of the recording: consecutive operations of one step.
struct Line {
  std::string name;
  double seconds = 0;
  std::vector<std::string> subs;
};

std::string format(const Line& line, const RankLayer& rank, int number, double end, Element element) {
  std::string group = "None", shape = "None", type = "None";
  if (line.name == "dp_allreduce") {
    group = "dp", shape = "[" + std::to_string(rank.gate.elements) + "]", type = "torch.float32";
  } else if (line.name == "exp_dp_allreduce") {
    group = "exp_dp", shape = "[" + std::to_string(rank.up.elements + rank.down.elements) + "]",
    type = dtype(element);
  }
  const bool last =
      line.name == "dp_allreduce" || line.name == "exp_dp_allreduce" || line.name == "optimizer_step";
  std::string subs;
  for (const std::string& sub : line.subs) subs += (subs.empty() ? "" : ", ") + sub;
  return text(
      "rank:%d:%s(stage_id=0,batch_id=0,mg_state=%s,duration=%s,description=simulation; medians of the "
      "step's operations,"
      "group_kind=%s,cmd_uid=cmd-%06x%06x,op_semantics=None,finalize_base_duration_ms=None,input__shape=%s,"
      "input__dtype=%s,timestamp=%s,sub_operations=[%s])\n",
      rank.rank(), line.name.c_str(), last ? "finalize" : "None", ms(line.seconds).c_str(), group.c_str(),
      static_cast<unsigned>(rank.rank()), static_cast<unsigned>(number), shape.c_str(), type.c_str(),
      ms(end).c_str(), subs.c_str());
}

std::vector<std::string> header(const RankLayer& rank, const LayerDevice& device, const RankTimes& times,
                                const RecordingFacts& facts) {
  const LayerShape& s = rank.shape();
  std::vector<std::string> lines;
  lines.push_back(
      text("moesim-layer, scaling recording of rank %d, %s", rank.rank(), device.clock().c_str()));
  lines.push_back("device: " + device.kind() + ", " + device.name());
  for (const std::string& fact : device.about()) lines.push_back(fact);
  lines.push_back("recorded at " + utc("%Y-%m-%d %H:%M:%S") + " UTC");
  lines.push_back("command: " + facts.command);
  lines.push_back(
      text("job: one MoE layer alone (no attention), ep %d, experts %d, topk %d, hidden %d, ffn %d, tokens "
           "%d, skew %g, "
           "%s, seed %u; medians of %d steps after %d",
           s.ep, s.experts, s.topk, s.hidden, s.ffn, s.tokens, s.skew,
           device.element() == Element::kBf16 ? "bf16" : "fp32", s.seed, facts.plan.iterations,
           facts.plan.warmup));
  std::string condition;
  for (const auto& [what, value] : times.readings)
    condition += text("%s%s %g", condition.empty() ? "" : ", ", what.c_str(), value);
  if (!condition.empty()) lines.push_back("device right after: " + condition);
  lines.push_back(
      text("a step without marks took %.3f us (%.3f .. %.3f), the operations here together %.3f us",
           times.step * 1e6, times.step_low * 1e6, times.step_high * 1e6, sum(times.operations) * 1e6));
  return lines;
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file)
    throw std::runtime_error(path.string() +
                             ": found no way to write, expected a folder that can be written");
}

std::string routing(World& world) {
  const LayerShape& shape = world.shape();
  std::string ranks, matrix, choices;
  for (const auto& rank : world.ranks()) {
    std::vector<int> starts(static_cast<std::size_t>(shape.experts) + 1), counts, chosen(shape.choices());
    world.device().download(starts.data(), rank->starts.get(), starts.size() * sizeof(int));
    world.device().download(chosen.data(), rank->chosen.get(), chosen.size() * sizeof(int));
    for (std::size_t e = 0; e + 1 < starts.size(); ++e) counts.push_back(starts[e + 1] - starts[e]);
    const char* comma = rank->rank() > 0 ? ", " : "";
    ranks +=
        text("%s\"%d\": {\"num_local_tokens_per_expert\": %s}", comma, rank->rank(), list_of(counts).c_str());
    matrix += comma + list_of(counts);
    choices += text("%s\"%d\": [", comma, rank->rank());
    for (auto at = chosen.begin(); at != chosen.end(); at += shape.topk)
      choices += (at == chosen.begin() ? "" : ", ") + list_of(std::vector<int>(at, at + shape.topk));
    choices += "]";
  }
  return text(
             "{\"schema\": \"moesim.dispatching/1\", \"about\": \"chosen by the router of moesim-layer, skew "
             "%g\", \"ep\": %d, \"experts\": %d, "
             "\"per_rank_results\": {",
             shape.skew, shape.ep, shape.experts) +
         ranks + "}, \"num_global_tokens_per_expert\": [" + matrix + "], \"topk_indices\": {" + choices +
         "}}\n";
}

std::string rank_json(const RankLayer& rank, const RankTimes& times) {
  std::string out = text(
      "  {\"rank\": %d, \"rows\": %d, \"step_us\": %.3f, \"step_low_us\": %.3f, \"step_high_us\": %.3f, "
      "\"operations_us\": %.3f,\n",
      rank.rank(), rank.plan().rows(), times.step * 1e6, times.step_low * 1e6, times.step_high * 1e6,
      sum(times.operations) * 1e6);
  out += "   \"condition\": {";
  for (std::size_t c = 0; c < times.readings.size(); ++c)
    out += text("%s\"%s\": %g", c ? ", " : "", times.readings[c].first.c_str(), times.readings[c].second);
  out += "},\n   \"operations\": [\n";
  const auto& operations = rank.operations();
  for (std::size_t o = 0; o < operations.size(); ++o) {
    out += text("    {\"step\": \"%s\", \"name\": \"%s\", \"us\": %.3f", operations[o].step.c_str(),
                operations[o].name.c_str(), times.operations[o] * 1e6);
    if (operations[o].flops && times.operations[o] > 0)
      out += text(", \"tflops\": %.3f", operations[o].flops() / times.operations[o] * 1e-12);
    if (operations[o].transfer) out += ", \"not_executed\": true";
    out += o + 1 < operations.size() ? "},\n" : "}\n";
  }
  return out + "   ]}";
}

std::string layer_json(World& world, const std::vector<RankTimes>& times, const RecordingFacts& facts) {
  const LayerDevice& device = world.device();
  const LayerShape& s = world.shape();
  double step = 0, together = 0;
  for (const RankTimes& rank : times) {
    step = std::max(step, rank.step);
    together = std::max(together, sum(rank.operations));
  }
  std::string out = "{\n\"schema\": \"moesim.layer-run/1\",\n\"device\": " + quoted(device.name()) +
                    ",\n\"clock\": " + quoted(device.clock()) + ",\n\"command\": " + quoted(facts.command) +
                    ",\n";
  out += text(
      "\"ep\": %d, \"tokens\": %d, \"hidden\": %d, \"ffn\": %d, \"experts\": %d, \"topk\": %d, \"skew\": %g, "
      "\"seed\": %u, \"element\": \"%s\",\n",
      s.ep, s.tokens, s.hidden, s.ffn, s.experts, s.topk, s.skew, s.seed,
      device.element() == Element::kBf16 ? "bf16" : "fp32");
  out += text("\"longest_step_us\": %.3f,\n\"longest_operations_us\": %.3f,\n\"checked\": [\n", step * 1e6,
              together * 1e6);
  for (std::size_t i = 0; i < facts.checked.size(); ++i)
    out += text(" {\"what\": \"%s\", \"values\": %zu, \"deviation\": %.3g, \"worst\": %.3g}%s\n",
                facts.checked[i].what.c_str(), facts.checked[i].values, facts.checked[i].deviation,
                facts.checked[i].worst, i + 1 < facts.checked.size() ? "," : "");
  out += "],\n\"ranks\": [\n";
  for (std::size_t r = 0; r < times.size(); ++r)
    out += rank_json(*world.ranks()[r], times[r]) + (r + 1 < times.size() ? ",\n" : "\n");
  return out + "]\n}\n";
}

// Returns seconds per byte of gradients for the division before a reduction, over all ranks. A replay takes
// all gradients as float.
double prescale(World& world, const std::vector<RankTimes>& times) {
  double seconds = 0, elements = 0;
  for (const auto& rank : world.ranks()) {
    const auto& operations = rank->operations();
    for (std::size_t o = 0; o < operations.size(); ++o)
      if (operations[o].step == "dp_allreduce" || operations[o].step == "exp_dp_allreduce")
        seconds += times[static_cast<std::size_t>(rank->rank())].operations[o];
    for (const Parameter* each : {&rank->gate, &rank->up, &rank->down})
      elements += static_cast<double>(each->elements);
  }
  return seconds / (elements * sizeof(float));
}

// Effects that a forecast adds to a recording (replay/recording/effects.cc) belong to a framework and its
// hosts. This run has none of them: its host launches ahead, and the recording contains the device's full
// time.
std::string constants(World& world, const std::vector<RankTimes>& times, const std::string& profile) {
  double forward = 0, backward = 0;
  for (const RankTimes& rank : times) {
    forward += rank.forward_jitter / static_cast<double>(times.size());
    backward += rank.backward_jitter / static_cast<double>(times.size());
  }
  std::string out = "{\n\"schema\": \"moesim.constants/1\",\n\"profiles\": {" + quoted(profile) + ": {\n";
  const auto put = [&](const char* name, double value, const char* unit, const char* why) {
    out += text(
        " \"%s\": {\"value\": %.6g, \"sigma\": %.6g, \"unit\": \"%s\", \"source\": \"moesim-layer: %s\"},\n",
        name, value, value / 2, unit, why);
  };
  put("forward_jitter", forward, "share", "mean of the steps over their median");
  put("backward_jitter", backward, "share", "mean of the steps over their median");
  // ms for 10^9 bytes.
  put("gradient_prescale", prescale(world, times) * 1e12, "ms/GB",
      "gradient lines, whose reduction was not executed");
  const std::pair<const char*, const char*> none[] = {{"gradient_clip", "ms/1e9 parameters"},
                                                      {"clip_rows", "rows"},
                                                      {"embedding_accumulation", "bytes/parameter"},
                                                      {"exposed_gather", "us"},
                                                      {"exposed_exchange", "us"},
                                                      {"fused_p2p", "us"},
                                                      {"sustained_forward", "share"},
                                                      {"sustained_backward", "share"},
                                                      {"expert_spread", "share"},
                                                      {"dense_spread", "share"},
                                                      {"first_forwards", "us"},
                                                      {"batch_loading", "us"},
                                                      {"gap_after_forward", "us"},
                                                      {"gap_before_backward", "us"},
                                                      {"gap_after_backward", "us"},
                                                      {"gap_other", "us"}};
  for (const auto& [name, unit] : none) put(name, 0, unit, "none in a step of one layer on one device");
  out.erase(out.size() - 2, 1);  // the last comma
  return out + "}}\n}\n";
}

}  // namespace

std::string recording_folder(const std::string& out, const LayerShape& s) {
  return text("%s/pp1_tp1_exp%d_expn%d_dp%d_nl1_hs%d_sl%d", out.c_str(), s.ep, s.experts, s.ep, s.hidden,
              s.tokens);
}

std::string rank_file(const RankLayer& rank, const LayerDevice& device, const RankTimes& times,
                      const RecordingFacts& facts) {
  std::string out;
  for (const std::string& line : header(rank, device, times, facts)) out += "# " + plain(line) + "\n";
  const auto& operations = rank.operations();
  double at = times.started;
  int number = 0;
  for (std::size_t o = 0; o < operations.size();) {
    Line line{operations[o].step, 0, {}};
    const double start = at;
    for (; o < operations.size() && operations[o].step == line.name; ++o) {
      if (operations[o].transfer)
        line.subs.push_back(sub_operation(rank, *operations[o].transfer, at, device.element()));
      at += times.operations[o];
    }
    line.seconds = at - start;
    out += format(line, rank, number++, at, device.element());
  }
  return out;
}

void write_recording(const std::string& folder, World& world, const std::vector<RankTimes>& times,
                     const RecordingFacts& facts) {
  const std::filesystem::path base(folder), ranks = base / "scaling";
  std::error_code failed;
  std::filesystem::create_directories(ranks, failed);
  if (failed)
    throw std::runtime_error(ranks.string() + ": found " + failed.message() +
                             ", expected a folder that can be made");
  const LayerShape& s = world.shape();
  const std::string stamp = utc("%Y%m%d%H%M%S");
  for (const auto& rank : world.ranks())
    write(ranks / text("wd%d_tp1_pp1_exp%d_expNum%d_l1_bs1_rank%d_%s.txt", s.ep, s.ep, s.experts,
                       rank->rank(), stamp.c_str()),
          rank_file(*rank, world.device(), times[static_cast<std::size_t>(rank->rank())], facts));
  write(base / "dispatching.json", routing(world));
  write(base / "layer.json", layer_json(world, times, facts));
  if (!facts.profile.empty()) write(base / "constants.json", constants(world, times, facts.profile));
}

}  // namespace moesim::bench

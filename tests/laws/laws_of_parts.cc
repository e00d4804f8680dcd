#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/hardware/hardware.h"
#include "tests/laws/law_parts.h"

namespace moesim::laws {

std::string relation(Is is, double value, double other, double tolerance) {
  const bool broken = is == Is::kNoMore   ? other > value * (1 + tolerance)
                      : is == Is::kNoLess ? other < value / (1 + tolerance)
                                          : std::abs(other - value) > tolerance * value;
  if (!broken) return "";
  return fmt::format("{:.6g} becomes {:.6g} ({:+.2f} %)", value, other, 100 * (other / value - 1));
}

namespace {

void add_doubt(std::vector<Law>& all) {
  all.push_back(
      {"a value among its draws", "the value lies between the ends of its interval, and on neither",
       "128 draws: of 32, one or two may lie below a value that a slower host only makes longer; one case in 16, for each "
       "takes as long as 128",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         if (draw.below(16) != 0) return std::nullopt;
         Case doubted = one;
         doubted.draws = 128;
         const auto seen = ask(doubted);
         if (!seen) return std::nullopt;
         if (seen->low < seen->us && seen->us < seen->high) return "";
         return fmt::format("{:.6g} [{:.6g} to {:.6g}]\n  {}", seen->us, seen->low, seen->high,
                            doubted.command());
       }});
  all.push_back(
      {"measuring the forecast",
       "a time that was forecast and is then measured moves no other arm by more than 1 %",
       "one case in eight, for each takes some hundred forecasts",
       [](const Case& one, const Seen& seen, Random& draw, const Ask& ask) -> std::optional<std::string> {
         if (draw.below(8) != 0 || one.flow) return std::nullopt;
         const std::string dispatcher = one.scenario.at("dispatcher");
         const std::string other =
             one_of<std::string>(draw, {"alltoall", "allgather", "flex-deepep", "flex-hybridep", "nccl-ep"});
         if (dispatcher.substr(0, dispatcher.find(':')) == other) return std::nullopt;
         const Case both = one.with("dispatcher", dispatcher + "," + other);
         const auto before = ask(both);
         if (!before || before->arms.size() != 2) return std::nullopt;
         Case measured = both;
         measured.measured = fmt::format("{}={:.17g}us", dispatcher, seen.us);
         const auto after = ask(measured);
         if (!after) return "it is refused:\n  " + measured.command();
         std::string wrong = relation(Is::kTheSame, before->arms.at(other), after->arms.at(other), 1e-2);
         if (!wrong.empty()) wrong += "\n  " + measured.command();
         return wrong;
       }});
}

void add_parts(std::vector<Law>& all) {
  all.push_back(
      {"a product line's better part", "takes no longer in the same machine",
       "GPUs of which every number is at least the other's by their maker's sheets, on the worse one's network; where "
       "both were measured alike: of H800 and H100 not fp8_block, DeepEP and messages of pairs (CP, PP), whose rows are of "
       "other kernels or of eight GPUs at once; of B200 and B300 not fp8, whose best product was measured 2 % slower on B300; "
       "of H100 and H200 no weights or gradients beyond 512 MiB a call, where H200's rows end and H100's get 7 % faster",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         static const std::vector<std::pair<const char*, const char*>> kLines{
             {"mi300x", "mi325x"},      {"mi350x", "mi355x"},     {"b200-sxm", "b300-sxm"},
             {"h100-sxm", "h200-sxm"},  {"h800-sxm", "h100-sxm"}, {"a800-sxm", "a100-sxm"},
             {"h800-pcie", "h100-pcie"}};
         const auto& [worse, better] = one_of(draw, kLines);
         const std::string line = worse, precision = one.get<std::string>("training.precision", "");
         if ((line == "h800-sxm" &&
              (one.get<std::string>("dispatcher", "").starts_with("flex") || precision == "fp8_block" ||
               one.has("parallel.cp") || one.has("parallel.pp"))) ||
             (line == "b200-sxm" && precision.find("fp8") != std::string::npos))
           return std::nullopt;
         Case first = one, other = one;
         const auto nodes = std::max<std::int64_t>(1, one.cluster().ranks() / 8);
         first.scenario["cluster"] = {{"profile", worse}, {"nodes", nodes}};
         const models::Cluster machine = first.cluster();
         other.scenario["cluster"] = {
             {"profile", better},
             {"nodes", nodes},
             {"network", machine.network},
             {"nic", {{"bandwidth", machine.nic.bandwidth}, {"ports_per_node", machine.nic.ports_per_node}}}};
         const auto before = ask(first), then = ask(other);
         if (!before || !then) return std::nullopt;
         if (line == "h100-sxm" && std::ranges::any_of(before->collectives, [](const Seen::Collective& each) {
               return each.what.buffer > 536870912.0 * static_cast<double>(each.what.calls);
             }))
           return std::nullopt;
         std::string wrong = relation(Is::kNoMore, before->us, then->us, kOrder);
         if (!wrong.empty()) wrong += "\n  " + first.command() + "\n  " + other.command();
         return wrong;
       },
       3});
  all.push_back(
      {"launches of batched products", "twice the experts are launched as often, within 5 %",
       "one eager layer whose experts' products are batched, or torch's grouped one, with links and GPUs "
       "near the fastest that are taken, and narrow experts, for tiles take a time of their own: what is left are launches; not "
       "force-balance, which leaves out permutations where its rows are a multiple of the experts",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         if (one.of_step() || !seen.batched || one.flow || one.has("training.launch") ||
             one.get<std::string>("dispatcher", "").find("force-balance") != std::string::npos ||
             one.get<std::string>("training.framework", "") == "none")
           return std::nullopt;
         Case few = one.with("routing", "balanced").with("model.expert_ffn", 128);
         const models::Cluster c = one.cluster();
         for (const models::HardwareNumber& number : models::hardware_numbers()) {
           const bool rate =
               number.unit == models::HardwareUnit::kBandwidth || number.unit == models::HardwareUnit::kFlops;
           if (rate && number.value(c) > 0)
             few = few.with("cluster." + std::string(number.path),
                            number.unit == models::HardwareUnit::kFlops ? 9e17 : 9e14);
         }
         const Case many = few.with("model.experts", 2 * model_of(few).experts);
         const auto before = ask(few), then = ask(many);
         if (!before || !then) return std::nullopt;
         std::string wrong = relation(Is::kNoMore, before->us, then->us, 5e-2);
         if (!wrong.empty()) wrong += "\n  " + few.command() + "\n  " + many.command();
         return wrong;
       },
       2});
}

}  // namespace

const std::vector<Law>& laws_of_parts() {
  static const std::vector<Law> kLaws = [] {
    std::vector<Law> all;
    add_doubt(all);
    add_parts(all);
    return all;
  }();
  return kLaws;
}

}  // namespace moesim::laws

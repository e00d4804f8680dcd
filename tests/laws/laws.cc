#include "tests/laws/laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <utility>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster_fabric.h"
#include "models/hardware/hardware.h"
#include "models/routing/routing.h"
#include "models/workload/scenario.h"
#include "tests/laws/law_parts.h"

namespace moesim::laws {

models::Architecture model_of(const Case& one) {
  return models::Scenario::parse(JsonNode::from_json({{"model", one.scenario.at("model")}}, "case")).model;
}

namespace {

using models::HardwareNumber;
using models::HardwareUnit;
using nlohmann::json;

double time_of(const Seen& s) { return s.us; }
double memory_of(const Seen& s) { return s.bytes; }

using Change = std::function<std::optional<Case>(const Case&, Random&)>;

// A law about one changed case.
// Stages with unlike numbers of layers are cut by the time of the layers alone. A change of these may move the cut,
// which costs up to 3 %.
double with_cuts(double tolerance, const Case& one, const Seen& before, const Seen& after) {
  constexpr double kMovedCut = 3e-2;
  return one.of_step() && !(before.cut_evenly && after.cut_evenly) ? std::max(tolerance, kMovedCut)
                                                                   : tolerance;
}

Law changed(std::string name, std::string says, std::string holds, double (*measure)(const Seen&), Is is,
            double tolerance, const Change& change, int often = 1) {
  return {std::move(name), std::move(says), std::move(holds),
          [=](const Case& one, const Seen& seen, Random& draw, const Ask& ask) -> std::optional<std::string> {
            const std::optional<Case> other = change(one, draw);
            if (!other) return std::nullopt;
            const std::optional<Seen> then = ask(*other);
            if (!then) return std::nullopt;
            const double within = measure == time_of ? with_cuts(tolerance, one, seen, *then) : tolerance;
            std::string wrong = relation(is, measure(seen), measure(*then), within);
            if (!wrong.empty()) wrong += "\n  " + other->command();
            return wrong;
          },
          often};
}

// A number of the machine, times `factor` (of a time or a factor on times: over it).
std::optional<Case> better(const Case& one, const HardwareNumber& number, double factor) {
  const double value = number.value(one.cluster());
  if (value <= 0) return std::nullopt;
  const bool rate = number.unit == HardwareUnit::kBandwidth || number.unit == HardwareUnit::kFlops;
  return one.with("cluster." + std::string(number.path), rate ? value * factor : value / factor);
}

const std::vector<double> kFactors{1.01, 1.1, 1.4, 1.5, 2, 4};

bool is_flex(const Case& one) { return one.get<std::string>("dispatcher", "").starts_with("flex"); }

// Whether passes run side by side. In in-order streams a launch that comes earlier may then take a link or
// the GPU from a pass that others wait for (Graham's anomalies of list scheduling).
bool side_by_side(const Case& one) {
  const std::string schedule = one.get<std::string>("training.schedule", ""),
                    overlap = one.get<std::string>("training.overlap", "");
  return schedule == "dualpipe" || schedule == "zero-bubble" || overlap.find("expert") != std::string::npos ||
         one.get<std::string>("dispatcher", "").find("batch_overlap") != std::string::npos;
}

// Launches are whole picoseconds, and which of two waits comes first may change.
constexpr double kWaits = 1e-4;
double order_of(const Case& one) { return side_by_side(one) || one.flow ? kOrder : kWaits; }

void add_hardware(std::vector<Law>& all) {
  for (const HardwareNumber& number : models::hardware_numbers()) {
    const std::string path(number.path);
    all.push_back(
        {"better " + path, "a faster part makes nothing slower",
         "where passes run side by side, and of flows, within 0.1 %; of launches within 0.5 % under flex, whose "
         "calls between nodes hold the host for a time that is counted in whole launches",
         [&number](const Case& one, const Seen& seen, Random& draw,
                   const Ask& ask) -> std::optional<std::string> {
           const auto next = better(one, number, one_of(draw, kFactors));
           const auto then = next ? ask(*next) : std::nullopt;
           if (!then) return std::nullopt;
           const bool counted = number.path == "gpu.kernel_launch" && is_flex(one);
           std::string wrong = relation(Is::kNoMore, seen.us, then->us,
                                        with_cuts(counted ? 5e-3 : order_of(one), one, seen, *then));
           if (!wrong.empty()) wrong += "\n  " + next->command();
           return wrong;
         },
         2});
    all.push_back(changed("one percent of " + path, "one percent saves at most one percent", "", time_of,
                          Is::kNoLess, 1e-2 + kRounding,
                          [&number](const Case& one, Random&) -> std::optional<Case> {
                            if (side_by_side(one)) return std::nullopt;
                            return better(one, number, 1.01);
                          }));
  }
}

double rows_of_an_expert(const Case& one) {
  const models::Architecture model = model_of(one);
  if (model.experts == 0) return 0;
  return one.get("parallel.seq", 4096.0) * one.get("parallel.micro_batch", 1.0) *
         one.get("parallel.ep", 1.0) / (one.get("parallel.tp", 1.0) * one.get("parallel.cp", 1.0)) *
         static_cast<double>(model.topk) / static_cast<double>(model.experts);
}

// Returns the rows of a layer's routing; `seed`: of its draw.
models::Routing routing_of(const Case& one, std::uint64_t seed) {
  const models::Architecture model = model_of(one);
  return models::make_routing(models::RoutingSpec::parse(one.get<std::string>("routing", "balanced")),
                              one.get("parallel.ep", 1), one.get<std::int64_t>("parallel.seq", 4096),
                              static_cast<int>(model.experts), static_cast<int>(model.topk), seed);
}

// Rows of the rank with the most, of one layer's routing.
std::int64_t busiest_rank(const Case& one) {
  const std::vector<std::int64_t> rows = routing_of(one, one.get("seed", std::uint64_t{1})).expert_totals();
  const auto ranks = one.get("parallel.ep", std::ptrdiff_t{1}), experts = std::ssize(rows);
  std::int64_t most = 0;
  for (std::ptrdiff_t r = 0; r < ranks; ++r)
    most = std::max(most, std::accumulate(rows.begin() + r * experts / ranks,
                                          rows.begin() + (r + 1) * experts / ranks, std::int64_t{0}));
  return most;
}

// Half of a size of the model, where it has one.
Change half_of_model(const char* key, std::int64_t models::Architecture::*size, std::int64_t least) {
  return [=](const Case& one, Random&) -> std::optional<Case> {
    const std::int64_t value = model_of(one).*size;
    if (value < 2 * least || value % 2 != 0) return std::nullopt;
    return one.with(std::string("model.") + key, value / 2);
  };
}

Change half_of_plan(const char* path, std::int64_t least) {
  return [=](const Case& one, Random&) -> std::optional<Case> {
    const auto value = one.get<std::int64_t>(path, 0);
    if (value < 2 * least || value % 2 != 0) return std::nullopt;
    return one.with(path, value / 2);
  };
}

// A law about the memory of a smaller case.
Law held(std::string name, std::string says, const Change& half) {
  return {
      std::move(name), std::move(says),
      "where stages have as many layers each: others are cut by time, and a smaller model or a shorter sequence "
      "moves the cut",
      [half](const Case& one, const Seen& seen, Random& draw, const Ask& ask) -> std::optional<std::string> {
        const auto other = half(one, draw);
        const auto then = other && seen.cut_evenly ? ask(*other) : std::nullopt;
        if (!then || !then->cut_evenly) return std::nullopt;
        std::string wrong = relation(Is::kNoMore, seen.bytes, then->bytes, kRounding);
        if (!wrong.empty()) wrong += "\n  " + other->command();
        return wrong;
      }};
}

bool forces_routing(const Case& one) {
  const std::string dispatcher = one.scenario.at("dispatcher");
  return dispatcher.find("balance") != std::string::npos ||
         dispatcher.find("capacity") != std::string::npos || dispatcher.find("mode=") != std::string::npos;
}

void add_sizes(std::vector<Law>& all) {
  const struct {
    const char* key;
    std::int64_t models::Architecture::*size;
    std::int64_t least;
  } kSizes[] = {{"expert_ffn", &models::Architecture::expert_ffn, 128},
                {"shared_ffn", &models::Architecture::shared_ffn, 128},
                {"dense_ffn", &models::Architecture::dense_ffn, 128},
                {"vocabulary", &models::Architecture::vocabulary, 1024},
                {"layers", &models::Architecture::layers, 1}};
  for (const auto& one : kSizes) {
    const Change half = half_of_model(one.key, one.size, one.least);
    all.push_back(changed(std::string("half the ") + one.key, "a smaller model takes no longer", "", time_of,
                          Is::kNoMore, kRounding, half));
    all.push_back(held(std::string("memory of half the ") + one.key, "a smaller model holds no more", half));
  }
  all.push_back(changed(
      "half the sequence", "half the tokens take no longer",
      "where rows follow from the routing: forced balance deals tokens out in strides, which not every "
      "length divides into",
      time_of, Is::kNoMore, kWaits,
      [](const Case& one, Random& draw) {
        return forces_routing(one) ? std::nullopt : half_of_plan("parallel.seq", 128)(one, draw);
      },
      2));
  all.push_back(
      held("memory of half the sequence", "half the tokens hold no more", half_of_plan("parallel.seq", 128)));
  all.push_back(changed("half the microbatches", "less work takes no longer", "", time_of, Is::kNoMore,
                        kRounding, half_of_plan("parallel.microbatches", 1)));
  all.push_back(changed("half the micro-batch", "fewer tokens take no longer",
                        "where rows follow from the routing, as with half the sequence", time_of, Is::kNoMore,
                        kWaits, [](const Case& one, Random& draw) {
                          return forces_routing(one) ? std::nullopt
                                                     : half_of_plan("parallel.micro_batch", 1)(one, draw);
                        }));
  all.push_back(
      {"one expert less a token", "fewer rows take no longer, of uniform routing within 1 % (rows are drawn)",
       "balanced and uniform routing that the dispatcher keeps: a skewed one is drawn or solved for its top-k, and its "
       "busiest rank may get more rows; in turn, whether a token's experts lie in one place hangs on their number",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         const std::int64_t topk = model_of(one).topk;
         const std::string routing = one.scenario.at("routing");
         if (topk < 2 || forces_routing(one) || (routing != "balanced" && routing != "uniform"))
           return std::nullopt;
         const Case other = one.with("topk", topk - 1);
         const auto then = ask(other);
         if (!then) return std::nullopt;
         std::string wrong =
             relation(Is::kNoMore, seen.us, then->us, routing == "balanced" ? kRounding : 1e-2);
         if (!wrong.empty()) wrong += "\n  " + other.command();
         return wrong;
       }});
}

void add_bytes(std::vector<Law>& all) {
  all.push_back(changed(
      "a router in bf16", "fewer bytes take no longer", "", time_of, Is::kNoMore, kRounding,
      [](const Case& one, Random&) -> std::optional<Case> { return one.with("router_dtype", "bf16"); }));
  all.push_back(changed("gradients of two bytes", "fewer bytes take no longer", "", time_of, Is::kNoMore,
                        kRounding, [](const Case& one, Random&) -> std::optional<Case> {
                          if (!one.of_step()) return std::nullopt;
                          return one.with("training.gradient_bytes", 2);
                        }));
  all.push_back(changed("memory of a smaller optimizer", "fewer bytes hold no more", "", memory_of,
                        Is::kNoMore, 1e-6, [](const Case& one, Random&) -> std::optional<Case> {
                          return one.with("training.optimizer_dtypes", "fp32,bf16,bf16");
                        }));
  all.push_back(
      changed("memory of Muon", "one moment holds no more than Adam's two",
              "but where zero1 deals out whole matrices, of which a rank may have more than its share",
              memory_of, Is::kNoMore, 1e-6, [](const Case& one, Random&) -> std::optional<Case> {
                const auto sharding = one.get<std::string>("training.sharding", "zero1");
                if (!one.of_step() || sharding == "zero1" || !one.get("train", true)) return std::nullopt;
                return one.with("training.muon", true);
              }));
  all.push_back(changed("memory of adapters", "frozen weights hold no more than trained ones",
                        "adapters of rank 1", memory_of, Is::kNoMore, 1e-6,
                        [](const Case& one, Random&) -> std::optional<Case> {
                          if (!one.of_step() || !one.get("train", true)) return std::nullopt;
                          return one.with("training.lora", 1);
                        }));
  all.push_back(changed(
      "memory of full recomputation",
      "what is computed again is not held, within 1 %: the layer's input is kept beside the layer "
      "that is computed again",
      "training of four layers or more that keeps everything: in its own backward a layer is held whole "
      "where all of it is computed again, and in parts where its activations alone are",
      memory_of, Is::kNoMore, 1e-2, [](const Case& one, Random&) -> std::optional<Case> {
        if (!one.get("train", true) || one.has("training.recompute") || model_of(one).layers < 4)
          return std::nullopt;
        return one.with("training.recompute", "full");
      }));
  all.push_back(changed("forward alone", "a forward pass takes no longer than it with its backward",
                        "without what only training has", time_of, Is::kNoMore, kRounding,
                        [](const Case& one, Random&) -> std::optional<Case> {
                          if (!one.get("train", true) || one.has("training")) return std::nullopt;
                          return one.with("train", false);
                        }));
}

void add_routing(std::vector<Law>& all) {
  all.push_back(changed(
      "less skew",
      "half the exponent takes no longer, within 3 % (rows are drawn; an expert's share may end just behind an edge of "
      "tiles)",
      "routings by Zipf, dropless (a capacity drops rows, and with them work), with 64 rows for each expert "
      "on average: few rows meet fewer experts the "
      "more skewed they are, and weights of the others are not read; not where the dispatcher pads below an "
      "overhead of rows (policy=adaptive), whatever the padding takes; not where the busiest rank receives more with less skew, "
      "as where the most popular experts are its neighbour's",
      time_of, Is::kNoMore, 3e-2,
      [](const Case& one, Random&) -> std::optional<Case> {
        const std::string routing = one.scenario.at("routing");
        if (!routing.starts_with("zipf:") || routing.ends_with("shared") || forces_routing(one) ||
            one.get<std::string>("dispatcher", "").find("adaptive") != std::string::npos ||
            rows_of_an_expert(one) < 64)
          return std::nullopt;
        const Case less = one.with("routing", fmt::format("zipf:{}", std::stod(routing.substr(5)) / 2));
        return busiest_rank(less) > busiest_rank(one) ? std::nullopt : std::optional(less);
      },
      2));
}

// Counts of a routing as a dispatching file, with ranks and experts in another order: `place[r]` is where the
// r-th rank goes with its experts, and within a rank experts are turned around.
json dispatching(const models::Routing& routing, const std::vector<int>& place, bool turned) {
  const int ranks = routing.ranks(), experts = routing.experts(), local = experts / ranks;
  const auto moved = [&](int e) {
    const int at = e % local;
    return place[static_cast<std::size_t>(e / local)] * local + (turned ? local - 1 - at : at);
  };
  json file{{"ep", ranks}, {"experts", experts}, {"per_rank_results", json::object()}};
  for (int r = 0; r < ranks; ++r) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
    for (int e = 0; e < experts; ++e) counts[static_cast<std::size_t>(moved(e))] = routing.count(r, e);
    file["per_rank_results"][std::to_string(place[static_cast<std::size_t>(r)])] = {
        {"num_local_tokens_per_expert", counts}};
  }
  return file;
}

// A file of a thread's own, which goes with it.
std::string written(const json& file, const char* name) {
  struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "moesim-laws-XXXXXX").string();
    Folder() {
      if (!mkdtemp(path.data())) std::abort();
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static thread_local const Folder folder;
  const std::filesystem::path path = std::filesystem::path(folder.path) / name;
  std::ofstream(path) << file.dump();
  return path.string();
}

void add_permutations(std::vector<Law>& all) {
  all.push_back(
      {"permuted ranks and experts",
       "other names of ranks inside a domain, and of experts inside a rank, change nothing, within 0.1 %",
       "one layer, ETP, TP and CP 1; dropless: what is above a budget is dropped by the experts' order; under timing "
       "flow a port for each GPU: who shares a port depends on the order of ranks; not allgather-torch, whose host takes experts in turn; "
       "kernels of flex and NCCL EP within 1 %: one that was not measured takes no longer than over halves of its domain, and "
       "who is in which half changes",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         const int ep = one.get("parallel.ep", 1);
         if (one.flow && one.cluster().nic.ports_per_node < one.cluster().gpus_per_node) return std::nullopt;
         if (one.of_step() || ep < 2 || forces_routing(one) || one.has("parallel.tp") ||
             one.has("parallel.etp") || one.has("parallel.cp") || one.has("parallel.micro_batch"))
           return std::nullopt;
         const models::Routing routing = routing_of(one, draw.next() % 1000);
         if (routing.experts() % ep != 0) return std::nullopt;
         const int domain = one.cluster().nvlink.domain;
         std::vector<int> same(static_cast<std::size_t>(ep)), place;
         std::iota(same.begin(), same.end(), 0);
         // Equal in every domain: kernels forward rows by the GPU with the same position in its domain.
         place = same;
         const int places = std::min(domain, ep);
         if (ep % places != 0) return std::nullopt;
         for (int i = places - 1; i > 0; --i)
           std::swap(place[static_cast<std::size_t>(i)],
                     place[draw.below(static_cast<std::uint64_t>(i) + 1)]);
         for (int r = places; r < ep; ++r)
           place[static_cast<std::size_t>(r)] =
               r / places * places + place[static_cast<std::size_t>(r % places)];
         const Case first = one.with("routing", written(dispatching(routing, same, false), "as_drawn.json"));
         const Case other = one.with("routing", written(dispatching(routing, place, true), "permuted.json"));
         const auto before = ask(first), after = ask(other);
         if (!before || !after) return std::nullopt;
         if (one.get<std::string>("dispatcher", "").starts_with("allgather-torch")) return std::nullopt;
         // Expected copies of a token are rounded to whole rows.
         const std::string dispatcher = one.get<std::string>("dispatcher", "");
         const bool kernel = dispatcher.starts_with("flex") || dispatcher.starts_with("nccl-ep");
         std::string wrong = relation(Is::kTheSame, before->us, after->us, kernel ? 1e-2 : kOrder);
         if (!wrong.empty()) wrong += "\n  " + first.command() + "\n  " + other.command();
         return wrong;
       },
       2});
}

void add_machines(std::vector<Law>& all) {
  all.push_back(changed("twice the ports", "more ports make nothing slower", "", time_of, Is::kNoMore,
                        kRounding, [](const Case& one, Random&) -> std::optional<Case> {
                          const int ports = one.cluster().nic.ports_per_node;
                          if (ports < 1) return std::nullopt;
                          return one.with("cluster.nic.ports_per_node", 2 * ports);
                        }));
  all.push_back(
      {"a larger NVLink domain",
       "more GPUs without the network between them make nothing slower, within 0.5 % (laws go on beyond the "
       "ranks that were measured)",
       "under one plan: HSDP shards over the ranks of a domain by default, and more of them gather "
       "more; where the links of a GPU lead to a switch (a mesh deals them out to all GPUs of the domain) "
       "and "
       "are three times as fast as its ports, ten times where a token goes once to a domain: they carry what the ports "
       "did beside their own and a row for each expert, and kernels reach less of them; 2 g - 1 times where g replicas of a "
       "domain sum whole gradients (ddp): between domains 2 (g - 1) / g of these pass the links and 1 / g the ports, in one "
       "domain (2 g - 1) / g the links; under timing flow where the GPUs of a node share ports alike (of seven for eight "
       "GPUs two share one, and none in half a node); HybridEP on GPUs on which its kernel was measured inside a domain: elsewhere it is an "
       "all-to-all there, and a kernel between domains",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         const models::Cluster c = one.cluster();
         const std::string dispatcher = one.get<std::string>("dispatcher", "");
         const auto* inside = c.profile.find("ep/hybridep_dispatch_kernel@bf16");
         const bool once = dispatcher.starts_with("flex") || dispatcher == "nccl-ep",
                    stand_in = (dispatcher.starts_with("flex-hybridep") || dispatcher == "nccl-ep") &&
                               (!inside || inside->derived),
                    whole = one.get<std::string>("training.sharding", "") == "ddp";
         const int faster = std::max(once ? 10 : 3, whole ? 2 * c.nvlink.domain - 1 : 0);
         const bool shares = one.flow && c.nic.ports_per_node > 0 &&
                             c.nic.ports_per_node % c.gpus_per_node != 0 &&
                             c.gpus_per_node % c.nic.ports_per_node != 0;
         if (stand_in || shares || c.nvlink.bandwidth < faster * c.gpu_network() ||
             2 * c.nvlink.domain > c.ranks() || models::links_are_mesh(c))
           return std::nullopt;
         Case other = one.with("cluster.nvlink.domain", 2 * c.nvlink.domain);
         if (one.get<std::string>("training.sharding", "") == "hsdp")
           other = other.with("training.shard_group", seen.shard_group);
         const auto then = ask(other);
         if (!then) return std::nullopt;
         std::string wrong = relation(Is::kNoMore, seen.us, then->us, 5e-3);
         if (!wrong.empty()) wrong += "\n  " + other.command();
         return wrong;
       },
       3});
  all.push_back(changed(
      "a tighter tree", "less bandwidth above the leaves makes nothing faster", "timing flow", time_of,
      Is::kNoLess, kRounding,
      [](const Case& one, Random& draw) -> std::optional<Case> {
        const models::Cluster c = one.cluster();
        if (!one.flow || c.nodes < 2) return std::nullopt;
        return one.with("cluster.fabric", {{"preset", "fat-tree"},
                                           {"nodes_per_leaf", 1},
                                           {"oversubscription", one_of<double>(draw, {2, 4, 8})}});
      },
      4));
  all.push_back(
      {"one machine said in six ways",
       "a name, its parts, its full object and its parts written by hand are one machine", "",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         const models::Cluster c = one.cluster();
         std::vector<json> ways{json::parse(c.to_json().dump())};
         const json& named = one.scenario.at("cluster");
         if (named.is_string()) {
           ways.push_back({{"base", named}});
           ways.push_back({{"base", named}, {"nic", {{"bandwidth", c.nic.bandwidth}}}});
           ways.push_back({{"base", named}, {"nodes", c.nodes}, {"nvlink", {{"domain", c.nvlink.domain}}}});
           json nic{{"bandwidth", c.nic.bandwidth}, {"ports_per_node", c.nic.ports_per_node}};
           if (!c.nic.gpu_bandwidth.empty()) nic["gpu_bandwidth"] = c.nic.gpu_bandwidth;
           ways.push_back({{"profile", c.profile.source()},
                           {"network", c.network},
                           {"nodes", c.nodes},
                           {"gpus_per_node", c.gpus_per_node},
                           {"nvlink", {{"bandwidth", c.nvlink.bandwidth}, {"domain", c.nvlink.domain}}},
                           {"nic", nic}});
         }
         for (const json& way : ways) {
           Case other = one;
           other.scenario["cluster"] = way;
           const auto then = ask(other);
           if (!then) return "it is refused:\n  " + other.command();
           if (std::string wrong = relation(Is::kTheSame, seen.us, then->us, 1e-9); !wrong.empty())
             return wrong + "\n  " + other.command();
         }
         return "";
       }});
  all.push_back(
      {"everything twice as fast", "takes half as long at the least, and no longer",
       "half only where stages have as many layers each (others are cut by time, and times that stay move the cut), "
       "and not of flows under flex, which contend as NCCL's exchange does and are priced as kernels; within 0.5 % "
       "in a ring of CP, whose messages below the measured ones take the shape of another law",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         Case other = one;
         for (const HardwareNumber& number : models::hardware_numbers())
           if (const auto next = better(other, number, 2)) other = *next;
         const auto then = ask(other);
         if (!then) return std::nullopt;
         std::string wrong = relation(Is::kNoMore, seen.us, then->us, order_of(one));
         if (wrong.empty() && seen.cut_evenly && !(one.flow && is_flex(one)))
           wrong = relation(Is::kNoLess, seen.us / 2, then->us,
                            std::max(order_of(one), one.has("parallel.cp") ? 5e-3 : kOrder));
         if (!wrong.empty()) wrong += "\n  " + other.command();
         return wrong;
       }});
}

void add_flow(std::vector<Law>& all) {
  all.push_back({"flow is no faster", "what is shared makes nothing faster than alone", "timing flow",
                 [](const Case& one, const Seen& seen, Random&, const Ask&) -> std::optional<std::string> {
                   if (!one.flow) return std::nullopt;
                   return relation(Is::kNoLess, seen.calibrated_us, seen.us, kRounding);
                 },
                 3});
  all.push_back(
      {"flow is calibrated",
       "where nothing is shared both timings agree within 0.5 %, on a mesh within 4 %, whose small messages took less than latency and wire in turn",
       "one layer of one dispatch group that is the whole machine, without TP, CP and ETP groups "
       "beside each other, a port for "
       "each GPU; equal rows on a mesh, where an uneven exchange waits for its fullest pair, which has a link of "
       "its own: calibrated timing deals bytes out to all links of a GPU",
       [](const Case& one, const Seen&, Random&, const Ask& ask) -> std::optional<std::string> {
         if (one.of_step() || one.has("parallel.tp") || one.has("parallel.etp") || one.has("parallel.cp"))
           return std::nullopt;
         const models::Cluster c = one.cluster();
         if (c.nic.ports_per_node < c.gpus_per_node || c.nvlink.domain % c.gpus_per_node != 0 ||
             c.nvlink.bandwidth < c.gpu_network())
           return std::nullopt;
         Case alone = one.with("parallel.ep", c.ranks());
         if (models::links_are_mesh(c)) alone = alone.with("routing", "balanced");
         alone.flow = true;
         const auto seen = ask(alone);
         if (!seen) return std::nullopt;
         std::string wrong =
             relation(Is::kTheSame, seen->calibrated_us, seen->us, models::links_are_mesh(c) ? 4e-2 : 5e-3);
         if (!wrong.empty()) wrong += "\n  " + alone.command();
         return wrong;
       },
       4});
}

// Bytes that a rank sends in a step by the ZeRO paper (arXiv 1910.02054, section 7; HSDP: arXiv 2304.11277,
// section 3.2): `weights` and `gradients` are the bytes of one copy of each, `n` ranks hold a copy, `shard`
// of them share one.
double sent(const std::string& scheme, double weights, double gradients, double n, double shard,
            double passes) {
  const auto ring = [](double ranks) { return (ranks - 1) / ranks; };
  if (scheme == "ddp") return 2 * ring(n) * gradients;
  if (scheme == "zero1") return ring(n) * (gradients + weights);
  return passes * ring(shard) * (2 * weights + gradients) + 2 * ring(n / shard) * gradients / shard;
}

// Bytes of one copy of what a kind of weights has, from the gradients that whole replicas sum.
double summed(const Seen& ddp, bool experts) {
  double bytes = 0;
  for (const Seen::Collective& one : ddp.collectives)
    if (one.what.experts == experts) bytes += static_cast<double>(one.what.bytes_per_step());
  return bytes;
}

void add_gradients(std::vector<Law>& all) {
  all.push_back(
      {"bytes of ZeRO", "a rank sends what the closed forms of DDP, ZeRO-1, ZeRO-3 and HSDP say",
       "training of one layer",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         if (one.of_step() || !one.get("train", true)) return std::nullopt;
         const Case ddp = one.with("training.sharding", "ddp");
         const auto whole = ask(ddp);
         if (!whole) return std::nullopt;
         const std::string scheme = one_of<std::string>(draw, {"zero1", "fsdp", "hsdp"});
         Case other = one.with("training.sharding", scheme);
         const auto dense = static_cast<double>(whole->dense_replicas),
                    experts = static_cast<double>(whole->expert_replicas);
         double replicas = 1;
         if (scheme == "hsdp") {
           if (whole->dense_replicas % 2 != 0 || whole->expert_replicas % 2 != 0) return std::nullopt;
           replicas = 2;
           other = other.with("training.shard_group", whole->dense_replicas / 2);
         }
         const auto shard = ask(other);
         if (!shard) return std::nullopt;
         const auto all_sent = [](const Seen& seen) {
           double bytes = 0;
           for (const Seen::Collective& each : seen.collectives)
             bytes += static_cast<double>(each.what.tx_per_step());
           return bytes;
         };
         const double of_gradient = one.get("training.gradient_bytes", 4.0),
                      passes = one.get("parallel.microbatches", 1.0);
         const auto said = [&](const std::string& by) {
           double bytes = 0;
           for (const bool of_experts : {false, true}) {
             const double n = of_experts ? experts : dense, gradients = summed(*whole, of_experts);
             bytes += sent(by, 2 / of_gradient * gradients, gradients, n, n / replicas, passes);
           }
           return bytes;
         };
         std::string wrong = relation(Is::kTheSame, said("ddp"), all_sent(*whole), kRounding);
         if (wrong.empty()) wrong = relation(Is::kTheSame, said(scheme), all_sent(*shard), kRounding);
         if (!wrong.empty()) wrong += "\n  " + ddp.command() + "\n  " + other.command();
         return wrong;
       },
       2});
  all.push_back(
      {"gradients on their links",
       "no collective of weights or gradients is faster than its bytes on the links of a GPU, or on the "
       "ports of a domain",
       "one layer; in a domain half of an all-reduce, for a switch may sum",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         if (one.of_step() || !one.get("train", true)) return std::nullopt;
         const Case sharded =
             one.with("training.sharding", one_of<std::string>(draw, {"ddp", "zero1", "zero2", "fsdp"}));
         const auto seen = ask(sharded);
         if (!seen) return std::nullopt;
         const models::Cluster c = sharded.cluster();
         for (const Seen::Collective& each : seen->collectives) {
           const auto domains = static_cast<double>(each.domains);
           const bool reduce = each.what.kind == models::CommKind::kAllReduce;
           const double least =
               each.domains == 1
                   ? static_cast<double>(each.what.tx_per_step()) / (reduce ? 2 : 1) / c.nvlink.bandwidth
                   : (reduce ? 2 : 1) * static_cast<double>(each.what.bytes_per_step()) * (domains - 1) /
                         domains / c.domain_network();
           if (std::string wrong = relation(Is::kNoLess, 1e6 * least, each.us, kRounding); !wrong.empty())
             return std::string(each.what.what) + " " + wrong + "\n  " + sharded.command();
         }
         return "";
       },
       2});
}

void add_steps(std::vector<Law>& all) {
  all.push_back(
      {"linear in microbatches",
       "as many microbatches more take as long more, or longer once: a step is the longest of its stages' passes and their "
       "hosts', and what takes a little longer for each may overtake the first",
       "1F1B of training with one routing for all, from eight times the stages on: the pipeline is full (forward alone waits "
       "for no later stage, so that a slower one at first goes on by itself); not partial graphs, "
       "whose host runs ahead by another part of a microbatch each time",
       [](const Case& one, const Seen&, Random&, const Ask& ask) -> std::optional<std::string> {
         if (!one.of_step() || !one.get("train", true) || one.has("training.schedule") ||
             one.has("training.overlap") || one.has("parallel.vpp") ||
             one.get<std::string>("training.launch", "") == "partial-graphs")
           return std::nullopt;
         const Case base = one.with("routing", "balanced");
         const int m = 2 * one.get("parallel.pp", 1);
         double us[4], more[3];
         for (int i = 0; i < 4; ++i) {
           const auto seen = ask(base.with("parallel.microbatches", (i + 4) * m));
           if (!seen) return std::nullopt;
           us[i] = seen->us;
           if (i > 0) more[i - 1] = us[i] - us[i - 1];
         }
         std::string wrong;
         for (int i = 0; i < 2 && wrong.empty(); ++i)
           wrong = relation(Is::kNoLess, more[i], more[i + 1], kRounding);
         if (wrong.empty() && !relation(Is::kNoMore, more[0], more[1], 1e-2).empty())
           wrong = relation(Is::kNoMore, more[1], more[2], 1e-2);
         if (!wrong.empty())
           wrong += fmt::format("\n  {}: {:.1f}, {:.1f}, {:.1f}, {:.1f} us of {} to {} microbatches",
                                base.command(), us[0], us[1], us[2], us[3], 4 * m, 7 * m);
         return wrong;
       },
       2});
  all.push_back({"the bubble of 1F1B", "(stages - 1) passes of a microbatch at the least",
                 "1F1B of training with one routing for all: m microbatches of equal stages take (m + stages "
                 "- 1) / m of their work",
                 [](const Case& one, const Seen&, Random&, const Ask& ask) -> std::optional<std::string> {
                   const int pp = one.get("parallel.pp", 1);
                   if (pp < 2 || !one.of_step() || !one.get("train", true) || one.has("training.schedule") ||
                       one.has("training.overlap") || one.has("parallel.vpp"))
                     return std::nullopt;
                   const Case base = one.with("routing", "balanced");
                   const auto few = ask(base.with("parallel.microbatches", 2 * pp)),
                              many = ask(base.with("parallel.microbatches", 4 * pp));
                   if (!few || !many) return std::nullopt;
                   // A pass of the slowest stage, and what all stages together take of one microbatch, which
                   // is no more than stages of the slowest and no less than it.
                   const double pass = (many->us - few->us) / (2 * pp);
                   std::string wrong = relation(Is::kNoLess, 2 * pp * pass, few->us, kRounding);
                   if (!wrong.empty()) wrong += "\n  " + base.command();
                   return wrong;
                 }});
  all.push_back(
      {"states of ZeRO", "sharded over n replicas, each keeps an n-th",
       "training; between the replicas of the dense part and those of the experts",
       [](const Case& one, const Seen&, Random&, const Ask& ask) -> std::optional<std::string> {
         if (!one.of_step() || !one.get("train", true)) return std::nullopt;
         const Case ddp = one.with("training.sharding", "ddp"), zero = one.with("training.sharding", "zero1");
         const auto whole = ask(ddp), shard = ask(zero);
         if (!whole || !shard || whole->optimizer <= 0) return std::nullopt;
         const auto least = static_cast<double>(std::min(whole->dense_replicas, whole->expert_replicas)),
                    most = static_cast<double>(std::max(whole->dense_replicas, whole->expert_replicas));
         std::string wrong = relation(Is::kNoMore, whole->optimizer / least, shard->optimizer, kRounding);
         if (wrong.empty())
           wrong = relation(Is::kNoLess, whole->optimizer / most, shard->optimizer, kRounding);
         if (!wrong.empty()) wrong += "\n  " + ddp.command() + "\n  " + zero.command();
         return wrong;
       },
       2});
  all.push_back(
      {"twice the replicas", "the same work on each GPU and more to sum takes no less",
       "a step with a DP of its own whose replicas are whole (ddp: with ZeRO, each of more "
       "replicas updates less) and leave their domain (inside, eight GPUs, for which a switch sums, "
       "were measured to reach more of their links than two, and four lie between): twice the "
       "nodes, twice the global batch; where no ring gets more ports: it has those of its members "
       "in the domain with the fewest",
       [](const Case& one, const Seen&, Random&, const Ask& ask) -> std::optional<std::string> {
         if (!one.of_step() || !one.has("parallel.microbatches")) return std::nullopt;
         const Case once = one.with("training.sharding", "ddp");
         const Case twice = once.with("cluster.nodes", 2 * one.cluster().nodes);
         const auto seen = ask(once), then = ask(twice);
         const auto leaves = [](std::int64_t replicas, int ports) {
           return replicas == 1 || ports < std::numeric_limits<int>::max();
         };
         if (!seen || !then || !leaves(seen->dense_replicas, seen->dense_ports) ||
             !leaves(seen->expert_replicas, seen->expert_ports) || then->dense_ports > seen->dense_ports ||
             then->expert_ports > seen->expert_ports)
           return std::nullopt;
         std::string wrong = relation(Is::kNoLess, seen->us, then->us, kRounding);
         if (wrong.empty()) wrong = relation(Is::kNoMore, seen->bytes, then->bytes, kRounding);
         if (!wrong.empty()) wrong += "\n  " + once.command() + "\n  " + twice.command();
         return wrong;
       },
       2});
}

void add_searches(std::vector<Law>& all) {
  all.push_back(
      {"the plan that is searched",
       "is what it says when its sizes are said, and no neighbour of it that fits is faster by more than 1 %",
       "a step of 576 sequences, eight for each of at most 72 GPUs (passes of a skewed routing are simulated one by one); "
       "one in sixteen, for a search makes hundreds of forecasts; neighbours that it tries: TP of up to 8 inside a "
       "domain, microbatches of up to 8 sequences or 32,768 tokens",
       [](const Case& one, const Seen&, Random& draw, const Ask& ask) -> std::optional<std::string> {
         if (draw.below(16) != 0 || !one.of_step()) return std::nullopt;
         Case open = one;
         open.flow = false;
         open.scenario.erase("training");
         open.scenario["parallel"] = {{"seq", one.get("parallel.seq", 4096)}, {"global_batch", 576}};
         const auto best = ask(open);
         if (!best || !best->fits) return std::nullopt;
         const models::Parallel& p = best->plan;
         const Case said = open.with("parallel", {{"seq", p.seq},
                                                  {"tp", p.tp},
                                                  {"cp", p.cp},
                                                  {"ep", p.ep},
                                                  {"etp", p.etp},
                                                  {"dp", p.dp},
                                                  {"pp", p.pp},
                                                  {"vpp", p.vpp},
                                                  {"micro_batch", p.micro_batch},
                                                  {"global_batch", best->sequences}})
                               .with("training.recompute", best->recompute);
         const auto same = ask(said);
         if (!same) return "its sizes are refused when they are said:\n  " + said.command();
         if (std::string wrong = relation(Is::kTheSame, best->us, same->us, kRounding); !wrong.empty())
           return wrong + "\n  " + said.command();
         const std::string path =
             one_of<std::string>(draw, {"parallel.tp", "parallel.ep", "parallel.pp", "parallel.micro_batch"});
         const auto value = said.get<std::int64_t>(path, 1);
         const bool up = value == 1 || draw.below(2) == 0;
         const auto most = path == "parallel.tp" ? std::min<std::int64_t>(8, one.cluster().nvlink.domain)
                           : path == "parallel.micro_batch" ? std::max<std::int64_t>(8, 32768 / p.seq)
                                                            : std::numeric_limits<std::int64_t>::max();
         if (up && 2 * value > most) return "";
         const Case next = said.with(path, up ? 2 * value : value / 2);
         const auto neighbour = ask(next);
         if (!neighbour || !neighbour->fits) return "";
         std::string wrong = relation(Is::kNoLess, best->us, neighbour->us, 1e-2);
         if (!wrong.empty()) wrong += "\n  " + said.command() + "\n  " + next.command();
         return wrong;
       }});
  all.push_back(
      {"alone or among others", "who else is compared changes nothing", "",
       [](const Case& one, const Seen& seen, Random&, const Ask& ask) -> std::optional<std::string> {
         const std::string dispatcher = one.scenario.at("dispatcher");
         const Case beside =
             one.with("dispatcher", dispatcher + (dispatcher == "alltoall" ? ",allgather" : ",alltoall"));
         const auto then = ask(beside);
         if (!then) return std::nullopt;
         std::string wrong = relation(Is::kTheSame, seen.us, then->us, 1e-9);
         if (!wrong.empty()) wrong += "\n  " + beside.command();
         return wrong;
       }});
}

}  // namespace

const std::vector<Law>& laws() {
  static const std::vector<Law> kLaws = [] {
    std::vector<Law> all;
    add_hardware(all);
    add_machines(all);
    add_flow(all);
    add_sizes(all);
    add_bytes(all);
    add_routing(all);
    add_permutations(all);
    add_gradients(all);
    add_steps(all);
    add_searches(all);
    return all;
  }();
  return kLaws;
}

}  // namespace moesim::laws

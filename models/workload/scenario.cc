#include "models/workload/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr int kMostGpusOfANode = 16;  // larger NVLink domains are racks

// Checks that the GPU's matrix units support the precision.
void check_precision(const Scenario& s) {
  const Profile& gpu = s.cluster->profile;
  if (gpu.device().has_precision(s.training.precision)) return;
  std::vector<std::string> has;
  for (const std::string_view name : kPrecisions)
    if (gpu.device().has_precision(name)) has.emplace_back(name);
  throw InputError(fmt::format("training.precision: found {} on {}, expected {}: what the GPU has",
                               s.training.precision, gpu.name(), join(has, ", ")));
}

// Throws InputError for settings that do not apply to a dense model, and sets the single answer's name.
void check_dense(Scenario& s) {
  const auto fail = [&](const char* what) {
    throw InputError(
        fmt::format("model {}: found no experts with {}, expected a mixture of experts", s.model.name, what));
  };
  if (!s.is_step())
    throw InputError(
        fmt::format("model {}: found no experts with scope layer, which is a MoE layer's, expected a "
                    "mixture of experts, or --scope step, which answers dense models",
                    s.model.name));
  for (const auto& [path, what] :
       {std::pair{"parallel.ep", "expert parallelism"}, {"parallel.etp", "expert parallelism"}})
    if ((std::string_view(path) == "parallel.ep" ? s.parallel.ep : s.parallel.etp) > 1) fail(what);
  if (s.gave("dispatcher") && !(s.dispatchers.size() == 1 && s.dispatchers.front().name == kNoDispatcher))
    fail("a dispatcher");
  if (s.gave("topk")) fail("topk");
  if (s.placement.given()) fail("a placement of experts");
  if (s.routing.kind != RoutingSpec::Kind::kBalanced) fail("a routing");
  s.dispatchers.assign(1, DispatcherSpec());
  s.dispatchers.front().name = kNoDispatcher;
  s.all_dispatchers = false;
}

// Uses the blocks of a machine of several racks.
void take_blocks(Scenario& s) {
  const Parallel& p = s.parallel;
  if (p.tp < 1 || p.cp < 1 || p.etp < 1 || p.ep < 1 || p.tp * p.cp > kMaxSize || p.etp * p.ep > kMaxSize)
    return;
  const std::int64_t group = std::lcm(p.tp * p.cp, p.etp * p.ep);
  std::shared_ptr<const Cluster> blocks = blocks_of(s, group);
  if (blocks == s.cluster) return;
  s.model.remarks.push_back(
      fmt::format("{}: {} of the {} GPUs of a rack are used, which groups of {} ranks divide",
                  s.cluster->name, blocks->gpus_per_node, s.cluster->gpus_per_node, group));
  s.cluster = std::move(blocks);
}

// Returns the columns of the widest row that any operation reads or writes, on one rank of a plan without
// tensor parallelism.
double widest_row(const Architecture& m) {
  const Attention& t = m.attention;
  const auto n = [](std::int64_t value) { return static_cast<double>(value); };
  double heads = 0, states = 0;
  for (const Attention* a : {&m.attention, &m.windowed})
    heads = std::max(heads, n(a->heads + 2 * a->kv_heads) *
                                n(a->score_dim() + a->output_dim() + a->nope_dim + a->gate_dim));
  for (const auto& [mixer, there] : {std::pair(LayerKind::Mixer::kMamba, m.mamba.heads > 0),
                                     std::pair(LayerKind::Mixer::kLinear, m.linear.value_heads > 0),
                                     std::pair(LayerKind::Mixer::kConvolution, m.convolution.taps > 0)})
    if (there) {
      const StateMixer s = state_mixer(m, mixer);
      states = std::max(states, n(s.input) + n(s.state) + n(s.between));
    }
  double dense = n(m.dense_ffn);
  for (const std::int64_t size : m.dense_sizes) dense = std::max(dense, n(size));
  const double streams = n(2 * (2 + m.residual.streams) * m.hidden);
  return std::max({3 * n(m.hidden), streams, 3 * dense, n(t.output_groups * t.output_rank),
                   n(4 * (t.head_dim + t.index_dim)), 3 * n(m.expert_ffn), 3 * n(m.shared_ffn),
                   n(m.vocabulary), n(m.experts + m.zero_experts), heads, n(t.index_heads * t.index_dim),
                   n(t.q_rank + t.kv_rank + t.rope_dim), states});
}

// Returns the most rows that a dispatcher's options may create, as a multiple of a balanced routing's.
double most_capacity(const DispatcherSpec& spec) {
  double most = 1;
  for (const auto& [key, value] : spec.options)
    if (key.find("capacity") != std::string::npos)
      if (const auto number = parse_number(value)) most = std::max(most, *number);
  return most;
}

// Throws InputError where a message, buffer or product of the scenario could exceed kMostSize, so that no sum
// of them leaves 64 bits, and for steps of more than kMostLayerPasses. The plan must be resolved.
void check_sizes(const Scenario& s) {
  // For the widest element; a collective gathers at most all rows of the group, a kernel moves twice as many.
  constexpr double kBytes = 8 * 2;
  const Parallel& p = s.parallel;
  double capacity = 1;
  for (const DispatcherSpec& spec : s.dispatchers) capacity = std::max(capacity, most_capacity(spec));
  const double tokens =
      static_cast<double>(p.micro_batch) * static_cast<double>(p.seq) / static_cast<double>(p.cp);
  const double group = static_cast<double>(p.dispatch_ranks());
  const double copies = std::max<double>(1, static_cast<double>(s.topk));
  const double rows = capacity * std::max(tokens * copies, static_cast<double>(s.model.experts)) * group;
  // An indexer's scores of a token are fp32, over half of the sequence.
  const double scores = s.model.attention.index_topk > 0 ? static_cast<double>(p.seq) : 0;
  const double bytes = rows * std::max(scores, widest_row(s.model)) * kBytes;
  if (!(bytes <= static_cast<double>(kMostSize)))
    throw InputError(
        fmt::format("scenario: found {:.0f} tokens a microbatch on a dispatch group of {:.0f} ranks and a "
                    "capacity of {:g}, "
                    "whose buffers could take {:.2g} bytes, expected at most 2^56",
                    tokens, group, capacity, bytes));
  if (!s.is_step()) return;
  const double layers =
      std::max(1.0, static_cast<double>(s.model.layers + s.model.mtp_layers) / static_cast<double>(p.pp));
  const double passes = layers * static_cast<double>(p.microbatches);
  if (passes > static_cast<double>(kMostLayerPasses))
    throw InputError(fmt::format(
        "parallel.microbatches: found {} of {:.0f} layers a stage, expected at most 2^18 layers and "
        "microbatches together",
        p.microbatches, layers));
}

}  // namespace

void take_expert_tp(Scenario& s) {
  const auto legacy = [](const DispatcherSpec& d) { return d.name == "allgather-legacy"; };
  if (s.parallel.tp > 1 && !s.gave("parallel.etp") &&
      std::any_of(s.dispatchers.begin(), s.dispatchers.end(), legacy))
    s.parallel.etp = s.parallel.tp;
}

std::shared_ptr<const Cluster> blocks_of(const Scenario& s, std::int64_t group) {
  const std::shared_ptr<const Cluster>& cluster = s.cluster;
  if (!cluster || cluster->nvlink.domain != cluster->gpus_per_node ||
      cluster->nvlink.domain <= kMostGpusOfANode)
    return cluster;
  const std::int64_t domain = cluster->nvlink.domain;
  const Parallel& p = s.parallel;
  const bool one_rack =
      cluster->node_count == Cluster::NodeCount::kGiven
          ? cluster->nodes == 1
          : (s.gpus > 0 ? s.gpus : p.tp * p.cp * p.pp * (s.gave("parallel.dp") ? p.dp : 1)) <= domain;
  if (one_rack || domain % group == 0) return cluster;
  std::int64_t block = domain / group * group;
  for (std::int64_t b = domain; group > domain && block == 0; --b)
    if (group % b == 0) block = b;
  auto blocks = std::make_shared<Cluster>(*cluster);
  blocks->gpus_per_node = blocks->nvlink.domain = static_cast<int>(block);
  blocks->nic.ports_per_node = std::max(1, static_cast<int>(cluster->nic.ports_per_node * block / domain));
  return blocks;
}

void Scenario::set_model(const std::string& name_or_path) { model = Architecture::load(name_or_path); }

void Scenario::set_cluster(const std::string& name_or_path) {
  cluster = std::make_shared<const Cluster>(Cluster::load(name_or_path));
  fewest_gpus = false;
}

void Scenario::set_dispatchers(const std::string& text) {
  dispatchers = DispatcherSpec::parse_list(text);
  all_dispatchers = trim(text) == "all";
}

bool Scenario::sharding_asked() const {
  return gave("training.sharding") || training.sharding != ShardingScheme::kZero1;
}

std::string beside(const std::string& file, const std::string& path) {
  const std::filesystem::path from_file = std::filesystem::path(file).parent_path() / path;
  return std::filesystem::path(path).is_relative() && path_exists(from_file) ? from_file.string() : path;
}

Scopes scope_of(const Scenario& scenario) { return scenario.is_step() ? Scopes::kStep : Scopes::kLayer; }

void Scenario::take_mesh() {
  const std::int64_t dp = mesh.replicate * mesh.shard * mesh.ep;
  struct Size {
    const char* path;
    std::int64_t Parallel::*member;
    std::int64_t value;
  };
  for (const auto& [path, member, value] :
       {Size{"parallel.tp", &Parallel::tp, mesh.tp}, Size{"parallel.cp", &Parallel::cp, mesh.cp},
        Size{"parallel.ep", &Parallel::ep, mesh.ep}, Size{"parallel.pp", &Parallel::pp, mesh.pp},
        Size{"parallel.dp", &Parallel::dp, dp}}) {
    if (gave(path) && parallel.*member != value)
      throw InputError(fmt::format("{}: found {} beside a mesh that makes it {}, expected one of them", path,
                                   parallel.*member, value));
    parallel.*member = value;
    give(path);
  }
  parallel.mesh_ep = mesh.ep;
  // FSDP over shard, an all-reduce over replicate; a shard of one rank is NO_SHARD: plain data parallelism.
  const ShardingScheme scheme = mesh.shard == 1       ? ShardingScheme::kDdp
                                : mesh.replicate == 1 ? ShardingScheme::kFsdp
                                                      : ShardingScheme::kHsdp;
  const std::int64_t group = scheme == ShardingScheme::kHsdp ? mesh.shard : 0;
  const bool falls_back = scheme == ShardingScheme::kDdp && training.sharding == ShardingScheme::kFsdp;
  if (gave("training.sharding") && !falls_back &&
      (training.sharding != scheme || training.shard_group != group))
    throw InputError(fmt::format(
        "training.sharding: found {} beside a mesh of replicate {} and shard {}, expected {}",
        name_of(training.sharding), mesh.replicate, mesh.shard,
        group > 0 ? fmt::format("{}:shard={}", name_of(scheme), group) : std::string(name_of(scheme))));
  training.sharding = scheme;
  training.shard_group = group;
  give("training.sharding");
  if (group > 0) give("training.shard_group");
}

std::int64_t Scenario::job_gpus() const { return gpus > 0 ? gpus : cluster->ranks(); }

bool Scenario::gpus_open() const {
  return gpus == 0 && (!cluster || cluster->node_count == Cluster::NodeCount::kOpen);
}

// Sets as many nodes as hold the job's GPUs; refuses a cluster with another number.
void Scenario::take_gpus() {
  if (gpus == 0) return;
  if (!cluster) set_cluster("dgx-h100");
  if (cluster->node_count != Cluster::NodeCount::kGiven) {
    cluster = std::make_shared<const Cluster>(cluster->holding(gpus));
  } else if (gpus > cluster->ranks() || gpus <= cluster->ranks() - cluster->gpus_per_node) {
    throw InputError(
        fmt::format("gpus: found {} with cluster {} of {} GPUs, expected {} to {}, or a cluster without its "
                    "number of nodes",
                    gpus, cluster->name, cluster->ranks(), cluster->ranks() - cluster->gpus_per_node + 1,
                    cluster->ranks()));
  }
}

// Sets the microbatches that make the batch.
void Scenario::take_batch() {
  if (!batch.given()) return;
  Parallel& p = parallel;
  const std::int64_t found = batch.microbatches(p.dp, p.micro_batch, p.seq);
  if (found == 0)
    throw InputError(
        fmt::format("parallel.global_batch: found {} with dp {} and {} sequences in a microbatch, expected a "
                    "multiple of {} "
                    "sequences of {} tokens",
                    batch.text(), p.dp, p.micro_batch, p.dp * p.micro_batch, p.seq));
  if (gave("parallel.microbatches") && p.microbatches != found)
    throw InputError(
        fmt::format("parallel.microbatches: found {} beside a global batch of {}, which makes it {}; "
                    "expected one of them",
                    p.microbatches, batch.text(), found));
  p.microbatches = found;
}

void Scenario::take_sizes() {
  if (mesh.given) take_mesh();
  if (const Field* unused = unused_field(*this))
    throw InputError(unused_message(*unused, unused->path, *this));
  if (model.hidden == 0) throw InputError("scenario: found no model, expected \"model\" or --model NAME");
  if (model.experts == 0) check_dense(*this);
  check_valid(*this);
  take_expert_tp(*this);
  if (topk == 0) topk = model.topk;
  if (model.experts > 0 && topk > model.experts)
    throw InputError(
        fmt::format("topk: found {}, expected at most the model's {} experts", topk, model.experts));
  take_blocks(*this);
  take_gpus();
  Parallel p = parallel;
  if (!gave("parallel.dp")) {
    p.dp = 1;
    // Enough data-parallel ranks that the expert grid fits a pipeline stage.
    const std::int64_t dense = p.tp * p.cp, group = p.etp * p.ep;
    if (p.tp < 1 || p.cp < 1 || p.ep < 1 || p.etp < 1 || p.pp < 1 || dense > kMaxSize || group > kMaxSize)
      throw InputError("parallel: found a size outside 1 to 2^31, expected a number of ranks");
    p.dp = group / std::gcd(dense, group);
    const std::int64_t smallest = std::max<std::int64_t>(1, dense * p.dp);
    if (!gpus_open() && !(fewest_gpus && gpus == 0)) {
      const std::int64_t stage = job_gpus() / p.pp;
      if (stage >= smallest) p.dp = stage / smallest * p.dp;
    }
  }
  // With copies of experts, EP divides their slots.
  const std::int64_t slots =
      std::max<std::int64_t>(placement.slots, static_cast<std::int64_t>(placement.expert_of.size()));
  if (slots > 0 && p.ep > 0 && slots % p.ep != 0)
    throw InputError(fmt::format("placement: found {} slots, expected a multiple of ep {}", slots, p.ep));
  p.validate(std::max<std::int64_t>(1, slots > 0 ? slots : model.experts));
  if (gpus_open()) {
    if (!cluster) set_cluster("dgx-h100");
    cluster = std::make_shared<const Cluster>(cluster->holding(p.world()));
    fewest_gpus = true;
  }
  if (p.world() > job_gpus())
    throw InputError(
        fmt::format("cluster {}: found {} GPUs, expected at least tp x cp x dp x pp = {} for this plan",
                    cluster->name, job_gpus(), p.world()));
  parallel = p;
}

void Scenario::resolve(std::vector<WithoutEffect>* dropped) {
  take_sizes();
  take_batch();
  if (dropped) *dropped = without_effect(*this);
  drop_without_effect(*this);
  const Parallel& p = parallel;
  faults.check_against(*cluster);
  ownership.check_beside(prices);
  const std::int64_t shard = training.shard_group;
  if (shard > 0 && p.data_ranks() % shard != 0)
    throw InputError(
        fmt::format("sharding: found shard={}, expected a divisor of dp x cp = {}", shard, p.data_ranks()));
  if (shard > 0 && p.edp() > 1 && p.edp() % std::min(p.edp(), shard) != 0)
    throw InputError(fmt::format(
        "sharding: found shard={}, expected one that divides the {} replicas of an expert", shard, p.edp()));
  if (shard > 0 && p.ep > 1 && !all_dispatchers && !mesh.given &&
      (shard * p.cp * p.tp) % (p.ep * p.etp) != 0 &&
      std::any_of(dispatchers.begin(), dispatchers.end(),
                  [](const DispatcherSpec& d) { return d.name.starts_with("torchtitan"); }))
    throw InputError(
        fmt::format("sharding: found shard={} with ep {}, expected shard x cp x tp to be a multiple of it: "
                    "torchtitan's sparse mesh shards experts over shard x cp x tp / ep ranks",
                    shard, p.ep));
  if (placement.given() && placement.slots > 0 && placement.slots < model.experts)
    throw InputError(fmt::format("placement: found {} slots, expected at least the model's {} experts",
                                 placement.slots, model.experts));
  if (model.experts > 0 && model.expert_ffn % p.etp != 0)
    throw InputError(fmt::format("parallel.etp: found {}, expected a divisor of the experts' inner size {}",
                                 p.etp, model.expert_ffn));
  if (training.stages_inside) {
    const std::string found = fmt::format("training.rank_order: found {}", kRankOrders[1]);
    if (training.unfolded || p.mesh_ep > 1 || p.edp() != p.dp)
      throw InputError(
          fmt::format("{} with {} replicas of the dense part and {} of an expert, expected equally many "
                      "(etp x ep = tp x cp): Megatron's pipeline groups would differ",
                      found, p.dp, p.edp()));
  }
  check_precision(*this);
  check_sizes(*this);
  resolved = true;
}

}  // namespace moesim::models

#include "models/step/step_layers.h"

#include <algorithm>

namespace moesim::models {

namespace {

using sim::Category;
using Device = TimedOp::Kind;

// Kernels that a framework launches where the model counts one operation: views, copies, autograd
// bookkeeping. From the DeepSeek-V3 chunk (dsv3_h800_train_trace_kernels.csv): 983 kernels for 4 layers
// forward and backward, 245 a layer, where these parts have about 75 operations.
constexpr int kKernelsPerOperation = 8;
// Bytes that the dispatcher's kernels move against the compulsory ones of its program: frameworks run casts,
// copies and reshapes as kernels of their own. Those of the dense part are counted one by one.
constexpr double kUnfused = 2.0, kFused = 1.2;
// Host time of a launch through an eager framework against the bare launch of the profile (4 us): 11 to 18 us
// of a small kernel in a PyTorch log (docs/dispatchers.md, flux).
constexpr double kFrameworkLaunch = 3.5;
// FLOPs of a chunked state-space scan per clock and SM: its Triton kernels spend their time on exponentials,
// masks and on-chip memory, which grow with SMs and clock, not with the matrix units or the bandwidth (arXiv
// 2405.21060, figure 10: Mamba-2's scan takes as long as FlashAttention-2 at a sequence of 2k on A100, 37
// TFLOP/s on 108 SMs at 1.41 GHz).
constexpr double kScanFlopsPerClock = 243;
constexpr std::int64_t kScanChunk = 256;
// Bytes of a logit that a fused cross entropy moves: bf16 read for the row sums, read and written back as
// gradient.
constexpr double kLossForward = 4, kLossBackward = 4;

// Boost clock that the data sheet's peak implies: matrix units do a power of two of FLOPs per clock and SM.
double clock_of(const DeviceLimits& device) {
  double clock = device.peak_flops[static_cast<std::size_t>(DType::kBf16)] / std::max(1, device.sms) / 1024;
  while (clock > 2.6e9) clock /= 2;
  return clock;
}

}  // namespace

std::vector<std::int32_t> dispatch_ranks(const Parallel& p, const TrainingPlan& plan) {
  std::vector<std::int32_t> ranks;
  const bool apart = plan.unfolded && p.etp == p.tp;
  for (std::int64_t e = 0; e < p.ep; ++e)
    for (std::int64_t t = 0; t < p.etp; ++t)
      ranks.push_back(static_cast<std::int32_t>(t + e * (apart ? p.tp * p.cp : p.etp)));
  return ranks;
}

namespace {

// Where prices are held against the measured domain, if anywhere.
struct Counted {
  DomainReport* report = nullptr;
  double times = 1;

  void add(double seconds) const {
    if (report) report->add(times * seconds, std::nullopt);
  }
  template <class Outside>
  void add(double seconds, const Outside& outside) const {
    if (report) report->add(times * seconds, outside());
  }
};

}  // namespace

// Writes the operations of the dense part.
class LayerPricer::Writer {
 public:
  Writer(const LayerPricer& pricer, const Counted& counted)
      : l_(pricer),
        counted_(counted),
        H_(pricer.a_.hidden),
        T_(pricer.p_.tokens_per_rank()),
        all_(T_ * pricer.p_.tp),
        graphs_(pricer.plan_.launch != LaunchMode::kEager) {}

  TimedPart take() { return std::move(part_); }

  void kernel(Category category, KernelClass kernel, double read, double written, int launches = 1) {
    device(category, l_.kernels_.seconds(kernel, read, written, launches), launches);
  }
  // Elementwise or normalising kernels over rows of this many columns.
  void rows(Category category, KernelClass kind, std::int64_t n, double read_columns, double written_columns,
            int launches = 1) {
    const double bytes = static_cast<double>(n) * kBf16Bytes;
    kernel(category, kind, bytes * read_columns, bytes * written_columns, launches);
  }
  void device(Category category, double seconds, int launches = 1) {
    count(part_.add(Device::kDevice, category, seconds, launches));
    counted_.add(seconds);
  }
  // The core of attention.
  void core(LayerKind kind, std::int64_t heads, std::int64_t kv_heads, GemmPass pass, int launches = 1) {
    const double seconds = l_.core_seconds(kind, heads, kv_heads, pass);
    count(part_.add(Device::kDevice, Category::attention, seconds, launches));
    part_.ops.back().work = Work::kAttentionCore;
    counted_.add(seconds, [&] {
      return l_.collectives_.outside(sim::CollectiveOp::send_recv, l_.cp_pair_,
                                     l_.ring_bytes(kv_heads, pass));
    });
  }
  void product(Category category, std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass,
               bool plain = false) {
    const double seconds = plain ? l_.products_.plain(m, n, k, pass) : l_.products_.dense(m, n, k, pass);
    TimedOp& op = part_.add(Device::kDevice, category, seconds,
                            1 + (plain || pass == GemmPass::kWgrad ? 0 : l_.products_.conversions()));
    op.work = Work::kProduct;
    op.weight_gradient = pass == GemmPass::kWgrad;
    count(op);
    counted_.add(seconds, [&] { return l_.products_.outside({m, n, k}, pass, plain); });
  }
  // The sums over the tensor-parallel ranks that the loss needs, of one number per token: the largest logit,
  // the target's logit, the sum of exponentials.
  void loss_sums() {
    if (l_.p_.tp == 1) return;
    const double bytes = static_cast<double>(all_) * 4;
    const double seconds = 3 * l_.collectives_.seconds(sim::CollectiveOp::all_reduce, l_.tp_, bytes);
    count(part_.add(Device::kDevice, Category::loss, seconds, 3));
    counted_.add(seconds,
                 [&] { return l_.collectives_.outside(sim::CollectiveOp::all_reduce, l_.tp_, bytes); });
  }
  int last() const { return static_cast<int>(part_.ops.size()) - 1; }
  void after(int one, int other = -1) { part_.ops.back().after = {one, other}; }

  // Collectives of the rows of this rank over the tensor-parallel ranks; nothing where there is one.
  bool gather(Category category, std::int64_t columns) {
    return tp(sim::CollectiveOp::all_gather, category, columns);
  }
  bool scatter(Category category, std::int64_t columns) {
    return tp(sim::CollectiveOp::reduce_scatter, category, columns);
  }

  // Backward of products that read the gathered rows: the gather for the weight gradients runs beside the
  // input gradients, the reduce-scatter of the input gradient beside the weight gradients.
  struct Product {
    std::int64_t n, k;
    bool plain = false;
  };
  void backward_of_gathered(Category category, std::span<const Product> products, std::int64_t columns) {
    const int before = last();
    int gathered = -1;
    if (gather(category, columns)) gathered = last(), after(before);
    int input_gradient = before;
    for (const Product& p : products) {
      product(category, all_, p.n, p.k, GemmPass::kDgrad, p.plain);
      after(input_gradient);
      input_gradient = last();
    }
    int scattered = -1;
    if (scatter(category, columns)) scattered = last(), after(input_gradient);
    for (const Product& p : products) {
      product(category, all_, p.n, p.k, GemmPass::kWgrad, p.plain);
      after(input_gradient, gathered);
    }
    join(scattered);
  }
  void backward_of(Category category, std::int64_t m, const Product& p) {
    product(category, m, p.n, p.k, GemmPass::kDgrad, p.plain);
    product(category, m, p.n, p.k, GemmPass::kWgrad, p.plain);
  }
  // The next operation also waits for `op`.
  void join(int op) {
    if (op < 0) return;
    part_.add(Device::kNothing, Category::other, 0, 0);
    part_.ops.back().after[1] = op;
  }

  std::int64_t H() const { return H_; }
  std::int64_t T() const { return T_; }
  std::int64_t all() const { return all_; }

 private:
  void count(TimedOp& op) { op.launches = graphs_ ? 0 : op.launches * kKernelsPerOperation; }

  bool tp(sim::CollectiveOp op, Category category, std::int64_t columns) {
    if (l_.p_.tp == 1) return false;
    const double bytes = static_cast<double>(T_ * columns) * kBf16Bytes;
    const double seconds = l_.collectives_.seconds(op, l_.tp_, bytes);
    part_.add(Device::kCollective, category, seconds);
    part_.ops.back().network = l_.tp_.across_domains();
    count(part_.ops.back());
    counted_.add(seconds, [&] { return l_.collectives_.outside(op, l_.tp_, bytes); });
    return true;
  }

  const LayerPricer& l_;
  const Counted& counted_;
  TimedPart part_;
  std::int64_t H_, T_, all_;
  bool graphs_;
};

namespace {

// Attention's products: [n, k] of this rank.
template <class Product>
struct Projections {
  std::vector<Product> gathered;  // read the layer's input
  std::vector<Product> latent;    // MLA: read the latent vectors
  Product out{};
  std::int64_t latent_columns = 0;  // normalised latent vectors
  std::int64_t heads = 1, kv_heads = 1;
};

template <class Product>
Projections<Product> projections(const Attention& t, std::int64_t hidden, std::int64_t tp) {
  Projections<Product> p;
  p.heads = rank_share(t.heads, tp);
  p.kv_heads = t.kind == Attention::Kind::kLatent ? p.heads : rank_share(t.kv_heads, tp);
  if (t.kind == Attention::Kind::kLatent) {
    if (t.q_rank > 0) {
      p.gathered.push_back({t.q_rank, hidden});
      p.latent.push_back({p.heads * t.score_dim(), t.q_rank});
    } else {
      p.gathered.push_back({p.heads * t.score_dim(), hidden});
    }
    p.gathered.push_back({t.kv_rank + t.rope_dim, hidden});
    p.latent.push_back({p.heads * (t.nope_dim + t.value_dim), t.kv_rank});
    p.latent_columns = t.q_rank + t.kv_rank;
  } else {
    p.gathered.push_back({(p.heads + 2 * p.kv_heads) * t.head_dim, hidden});
  }
  p.out = {hidden, p.heads * t.output_dim()};
  return p;
}

}  // namespace

LayerPricer::LayerPricer(const Architecture& model, const Parallel& parallel, const TrainingPlan& plan,
                         const Cluster& cluster, std::int64_t topk, DType router, double conversions)
    : a_(model),
      p_(parallel),
      plan_(plan),
      cluster_(cluster),
      topk_(topk),
      router_(router),
      recipe_{plan.gemm, plan.fused_kernels, 4, slowest_of(parallel.world()), conversions},
      products_(cluster.profile, recipe_),
      costs_(cluster, recipe_),
      kernels_(cluster.profile),
      collectives_(cluster),
      attention_(cluster.profile),
      tp_(GroupShape::strided(cluster, parallel.tp, 1)),
      cp_pair_(GroupShape::strided(cluster, parallel.cp > 1 ? 2 : 1, parallel.tp)) {
  launch_ps_ = static_cast<std::int64_t>(cluster.profile.launch().kernel * kFrameworkLaunch * 1e12);
  power_ = power_slowdown(cluster.profile) * recipe_.slowest;
  traffic_ = plan.fused_kernels ? kFused : kUnfused;
  const DeviceLimits& device = cluster.profile.device();
  scan_rate_ = device.sms * clock_of(device) * kScanFlopsPerClock / recipe_.slowest;
  // A ring of context-parallel ranks is as fast as its slowest step.
  if (parallel.cp > 1) {
    const std::int64_t far = (parallel.cp - 1) * parallel.tp;
    if (cluster.domain_of(far) != cluster.domain_of(0)) {
      const std::int64_t edge = cluster.nvlink.domain;
      const std::vector<std::int32_t> pair{
          static_cast<std::int32_t>(std::max<std::int64_t>(0, edge - parallel.tp)),
          static_cast<std::int32_t>(edge)};
      cp_pair_ = GroupShape::of(cluster, pair);
    }
  }
}

LayerPricer::~LayerPricer() = default;

double LayerPricer::compute_slowdown(const MoeProgram* moe) const {
  if (!moe) return 1;
  const double sms = cluster_.profile.device().sms;
  // SMs that communication kernels hold: DeepEP's default in Megatron is 20 (also in the DeepSeek-V3 chunk's
  // grids); HybridEP's 4 to 32; NCCL uses up to 32 channels of one SM each, 16 on NVLink.
  constexpr double kTaken = 20;
  return std::max(cluster_.profile.overlap().compute_under_communication, sms / (sms - kTaken));
}

LayerParts LayerPricer::layer(LayerKind kind, const MoeProgram* moe, DomainReport* report,
                              double times) const {
  using Product = Writer::Product;
  const Counted counted{report, times};
  LayerParts parts;
  const StepRecompute& again = plan_.recompute;
  const bool graphs_all = plan_.launch == LaunchMode::kGraphs;
  const auto up_columns = [&](std::int64_t inner) { return (a_.gated ? 2 : 1) * inner; };

  // --- mixer ---
  const auto mixer_forward = [&](Writer& w, bool norm, bool latent, bool core) {
    if (kind.mixer == LayerKind::Mixer::kMamba) {
      const Mamba& m = a_.mamba;
      const std::int64_t inner = rank_share(m.inner(), p_.tp), columns = rank_share(m.input_columns(), p_.tp);
      const std::int64_t convolved = rank_share(m.inner() + 2 * m.groups * m.state, p_.tp);
      w.rows(Category::attention, KernelClass::kReduce, w.T(), static_cast<double>(w.H()),
             static_cast<double>(w.H()));
      w.gather(Category::attention, w.H());
      w.product(Category::attention, w.all(), columns, w.H(), GemmPass::kForward);
      const auto c = static_cast<double>(convolved), i = static_cast<double>(inner);
      w.rows(Category::attention, KernelClass::kElementwise, w.all(), c, c);  // convolution and SiLU
      // Scan: values and state inputs in, values out; a state of fp32 per chunk written and read twice.
      const double states = 2 * i * static_cast<double>(m.state) * 2 / static_cast<double>(kScanChunk);
      w.rows(Category::attention, KernelClass::kReduce, w.all(), c + 2 * states, i + 2 * states, 5);
      w.device(Category::attention, scan_flops(m, inner, w.all()) / scan_rate_, 0);
      w.rows(Category::attention, KernelClass::kReduce, w.all(), 2 * i, i);  // gated norm
      w.product(Category::attention, w.all(), w.H(), inner, GemmPass::kForward);
      w.scatter(Category::attention, w.H());
      w.rows(Category::attention, KernelClass::kElementwise, w.T(), 2.0 * static_cast<double>(w.H()),
             static_cast<double>(w.H()));
      return;
    }
    const auto p = projections<Product>(a_.attention, w.H(), p_.tp);
    const auto h = static_cast<double>(w.H());
    if (norm) w.rows(Category::attention, KernelClass::kReduce, w.T(), h, h);
    if (norm && !latent) return;
    if (norm) {
      w.gather(Category::attention, w.H());
      for (const Product& q : p.gathered)
        w.product(Category::attention, w.all(), q.n, q.k, GemmPass::kForward);
    }
    if (latent) {
      const auto lat = static_cast<double>(p.latent_columns);
      if (lat > 0) w.rows(Category::attention, KernelClass::kReduce, w.all(), lat, lat, 2);
      for (const Product& q : p.latent) w.product(Category::attention, w.all(), q.n, q.k, GemmPass::kForward);
    }
    if (latent) {
      if (a_.attention.qk_norm)
        w.rows(Category::attention, KernelClass::kReduce, w.all(), qk_columns(p), qk_columns(p), 2);
      w.rows(Category::attention, KernelClass::kElementwise, w.all(), qk_columns(p), qk_columns(p), 2);
    }
    if (core) w.core(kind, p.heads, p.kv_heads, GemmPass::kForward);
  };
  if (kind.mixer != LayerKind::Mixer::kNone) {
    Writer f(*this, counted);
    const auto h = static_cast<double>(f.H());
    if (kind.mtp) {
      f.rows(Category::other, KernelClass::kReduce, f.T(), 2 * h, 2 * h, 3);
      f.product(Category::other, f.T(), f.H(), 2 * f.H(), GemmPass::kForward);
    }
    mixer_forward(f, true, true, true);
    const auto p = projections<Product>(a_.attention, f.H(), p_.tp);
    if (kind.mixer != LayerKind::Mixer::kMamba) {
      f.product(Category::attention, f.all(), p.out.n, p.out.k, GemmPass::kForward);
      f.scatter(Category::attention, f.H());
      f.rows(Category::attention, KernelClass::kElementwise, f.T(), 2 * h, h);
    }
    parts.forward.push_back(f.take());
  }

  // --- FFN ---
  const auto ffn_forward = [&](Writer& w, Category category, std::int64_t inner, bool output) {
    w.gather(category, w.H());
    const std::int64_t f = rank_share(inner, p_.tp);
    w.product(category, w.all(), up_columns(f), w.H(), GemmPass::kForward);
    w.rows(category, KernelClass::kElementwise, w.all(), static_cast<double>(up_columns(f)),
           static_cast<double>(f));
    if (!output) return;
    w.product(category, w.all(), w.H(), f, GemmPass::kForward);
    w.scatter(category, w.H());
  };
  const auto ffn_backward = [&](Writer& w, Category category, std::int64_t inner) {
    const std::int64_t f = rank_share(inner, p_.tp), up = up_columns(f);
    w.gather(category, w.H());
    w.backward_of(category, w.all(), {w.H(), f});
    w.rows(category, KernelClass::kElementwise, w.all(), static_cast<double>(up + f),
           static_cast<double>(up));
    const Product first{up, w.H()};
    w.backward_of_gathered(category, std::span(&first, 1), w.H());
  };
  const bool shared_here = a_.shared_ffn > 0 && !(moe && moe->program.runs_shared_expert);
  const std::int64_t E = a_.experts;
  const auto score_bytes = [&](const Writer& w) {
    return static_cast<double>(w.T() * E * bytes_of(router_));
  };
  std::vector<TimedPart> ffn_again;  // what backward computes again of the FFN, before its own parts
  // Grouped linear layers of Transformer Engine launch a product for every local expert, and convert its
  // rows.
  const int local_experts =
      static_cast<int>(std::max<std::int64_t>(1, E / p_.ep)) * (1 + products_.conversions());
  PricedPass moe_forward, moe_backward;
  if (kind.ffn == LayerKind::Ffn::kMoe) {
    moe_forward = costs_.price(moe->program, moe->program.forward(), moe->shapes, moe->loads);
    moe_backward = costs_.price(moe->program, moe->program.backward(), moe->shapes, moe->loads);
    if (report) {
      costs_.report(moe->program, moe->program.forward(), moe_forward, moe->shapes, *report, times);
      costs_.report(moe->program, moe->program.backward(), moe_backward, moe->shapes, *report, times);
    }
  }
  if (kind.ffn == LayerKind::Ffn::kDense) {
    Writer f(*this, counted);
    const auto h = static_cast<double>(f.H());
    f.rows(Category::other, KernelClass::kReduce, f.T(), h, h);
    ffn_forward(f, Category::other, a_.dense_ffn, true);
    f.rows(Category::other, KernelClass::kElementwise, f.T(), 2 * h, h);
    parts.forward.push_back(f.take());
  } else if (kind.ffn == LayerKind::Ffn::kMoe) {
    Writer f(*this, counted);
    const auto h = static_cast<double>(f.H());
    f.rows(Category::router, KernelClass::kReduce, f.T(), h, h);
    f.product(Category::router, f.T(), E, f.H(), GemmPass::kForward, true);
    // Scores, top-k, the map and its probabilities, counts and the balancing loss.
    f.kernel(Category::router, KernelClass::kReduce, 4 * score_bytes(f), 3 * score_bytes(f), 6);
    if (shared_here) ffn_forward(f, Category::expert, a_.shared_ffn, true);
    if (a_.latent > 0) f.product(Category::expert, f.T(), a_.latent, f.H(), GemmPass::kForward);
    parts.forward.push_back(f.take());
    parts.forward.push_back(timed_program(moe->program, moe->program.forward(), moe_forward, moe->shapes,
                                          graphs_all, kKernelsPerOperation, local_experts, traffic_));
    Writer g(*this, counted);
    const std::int64_t rows = g.T() * topk_;
    const auto biased = static_cast<double>(up_columns(a_.expert_ffn / p_.etp) + a_.expert_width());
    if (a_.expert_bias) g.rows(Category::expert, KernelClass::kElementwise, rows, biased, biased, 2);
    if (a_.latent > 0) g.product(Category::expert, g.T(), g.H(), a_.latent, GemmPass::kForward);
    g.rows(Category::unpermute, KernelClass::kElementwise, g.T(), (shared_here ? 3 : 2) * h, h);
    parts.forward.push_back(g.take());
  }
  // --- backward: FFN, then mixer ---
  if (again.full) {
    for (const TimedPart& part : parts.forward) parts.backward.push_back(part);
  }
  if (kind.ffn == LayerKind::Ffn::kDense) {
    Writer b(*this, counted);
    const auto h = static_cast<double>(b.H());
    if (again.norms) b.rows(Category::other, KernelClass::kReduce, b.T(), h, h);
    if (again.dense) ffn_forward(b, Category::other, a_.dense_ffn, false);
    ffn_backward(b, Category::other, a_.dense_ffn);
    b.rows(Category::other, KernelClass::kReduce, b.T(), 3 * h, h, 2);
    parts.backward.push_back(b.take());
  } else if (kind.ffn == LayerKind::Ffn::kMoe) {
    Writer b(*this, counted);
    const auto h = static_cast<double>(b.H());
    if (again.norms) b.rows(Category::router, KernelClass::kReduce, b.T(), h, h);
    if (again.moe && !again.full) {
      b.product(Category::router, b.T(), E, b.H(), GemmPass::kForward, true);
      b.kernel(Category::router, KernelClass::kReduce, 4 * score_bytes(b), 3 * score_bytes(b), 6);
    }
    if (shared_here) {
      if ((again.moe || again.shared) && !again.full) ffn_forward(b, Category::expert, a_.shared_ffn, false);
      ffn_backward(b, Category::expert, a_.shared_ffn);
    }
    if (a_.latent > 0) b.backward_of(Category::expert, b.T(), {b.H(), a_.latent});
    if (a_.expert_bias)
      b.rows(Category::expert, KernelClass::kReduce, b.T() * topk_,
             static_cast<double>(up_columns(a_.expert_ffn / p_.etp) + a_.expert_width()), 0, 2);
    parts.backward.push_back(b.take());
    parts.backward.push_back(timed_program(moe->program, moe->program.backward(), moe_backward, moe->shapes,
                                           graphs_all, kKernelsPerOperation, local_experts, traffic_));
    Writer r(*this, counted);
    if (a_.latent > 0) r.backward_of(Category::expert, r.T(), {a_.latent, r.H()});
    r.kernel(Category::router, KernelClass::kReduce, 4 * score_bytes(r), 2 * score_bytes(r), 4);
    r.backward_of(Category::router, r.T(), {E, r.H(), true});
    r.rows(Category::router, KernelClass::kReduce, r.T(), 4 * h, h, 2);
    parts.backward.push_back(r.take());
  }
  if (kind.mixer == LayerKind::Mixer::kNone) return parts;
  Writer b(*this, counted);
  const auto h = static_cast<double>(b.H());
  if (kind.mixer == LayerKind::Mixer::kMamba) {
    const Mamba& m = a_.mamba;
    const std::int64_t inner = rank_share(m.inner(), p_.tp), columns = rank_share(m.input_columns(), p_.tp);
    const auto c = static_cast<double>(rank_share(m.inner() + 2 * m.groups * m.state, p_.tp));
    const auto i = static_cast<double>(inner);
    if (again.norms) b.rows(Category::attention, KernelClass::kReduce, b.T(), h, h);
    b.gather(Category::attention, b.H());
    b.backward_of(Category::attention, b.all(), {b.H(), inner});
    b.rows(Category::attention, KernelClass::kReduce, b.all(), 3 * i, 2 * i);
    const double states = 2 * i * static_cast<double>(m.state) * 2 / static_cast<double>(kScanChunk);
    b.rows(Category::attention, KernelClass::kReduce, b.all(), 2 * c + 6 * states, c + 4 * states, 10);
    b.device(Category::attention, 3 * scan_flops(m, inner, b.all()) / scan_rate_, 0);
    b.rows(Category::attention, KernelClass::kElementwise, b.all(), 2 * c, c);
    const Product in{columns, b.H()};
    b.backward_of_gathered(Category::attention, std::span(&in, 1), b.H());
  } else {
    const auto p = projections<Product>(a_.attention, b.H(), p_.tp);
    if (!again.full) {
      const bool latent = again.latent && p.latent_columns > 0;
      if (again.norms) mixer_forward(b, true, false, false);
      if (latent || again.attention) mixer_forward(b, false, latent, again.attention);
    }
    b.gather(Category::attention, b.H());
    b.backward_of(Category::attention, b.all(), p.out);
    b.core(kind, p.heads, p.kv_heads, GemmPass::kDgrad, 3);
    b.rows(Category::attention, KernelClass::kElementwise, b.all(), qk_columns(p), qk_columns(p), 2);
    if (a_.attention.qk_norm)
      b.rows(Category::attention, KernelClass::kReduce, b.all(), 2 * qk_columns(p), qk_columns(p), 2);
    for (auto q = p.latent.rbegin(); q != p.latent.rend(); ++q)
      b.backward_of(Category::attention, b.all(), *q);
    if (p.latent_columns > 0) {
      const auto lat = static_cast<double>(p.latent_columns);
      b.rows(Category::attention, KernelClass::kReduce, b.all(), 2 * lat, lat, 2);
    }
    b.backward_of_gathered(Category::attention, p.gathered, b.H());
  }
  b.rows(Category::attention, KernelClass::kReduce, b.T(), 4 * h, h, 2);
  if (kind.mtp) {
    b.backward_of(Category::other, b.T(), {b.H(), 2 * b.H()});
    b.rows(Category::other, KernelClass::kReduce, b.T(), 4 * h, 2 * h, 3);
  }
  parts.backward.push_back(b.take());
  return parts;
}

double LayerPricer::scan_flops(const Mamba& m, std::int64_t inner, std::int64_t tokens) const {
  // Per token: half a chunk of scores per group and of values, and the state in and out.
  const double half = static_cast<double>(kScanChunk) / 2;
  const double groups = static_cast<double>(rank_share(m.groups, p_.tp) * m.state);
  const auto i = static_cast<double>(inner);
  return static_cast<double>(tokens) * (2 * half * (groups + i) + 4 * i * static_cast<double>(m.state));
}

double LayerPricer::ring_bytes(std::int64_t kv_heads, GemmPass pass) const {
  const auto tokens = static_cast<double>(p_.tokens_per_rank() * p_.tp);
  const auto columns = static_cast<double>(kv_heads * (a_.attention.score_dim() + a_.attention.output_dim()));
  return tokens * columns * kBf16Bytes * (pass == GemmPass::kForward ? 1 : 2);
}

double LayerPricer::core_seconds(LayerKind kind, std::int64_t heads, std::int64_t kv_heads,
                                 GemmPass pass) const {
  const Attention& t = a_.attention;
  AttentionCall call;
  call.queries = static_cast<double>(p_.tokens_per_rank() * p_.tp);
  call.seq = p_.seq;
  call.cp = p_.cp;
  call.heads = heads;
  call.score_dim = t.score_dim();
  call.value_dim = t.output_dim();
  call.window = kind.mixer == LayerKind::Mixer::kWindowed ? t.window : 0;
  call.fp8 = plan_.fp8_attention;
  const double computing = power_ * attention_.seconds(call, pass);
  if (p_.cp == 1) return computing;
  // A ring: while a rank works on one peer's keys and values, the next peer's travel (with their gradients in
  // backward).
  const double step =
      collectives_.seconds(sim::CollectiveOp::send_recv, cp_pair_, ring_bytes(kv_heads, pass));
  const auto cp = static_cast<double>(p_.cp);
  return computing / cp + (cp - 1) * std::max(computing / cp, step);
}

LayerParts LayerPricer::embedding(DomainReport* report) const {
  const Counted counted{report};
  LayerParts parts;
  Writer f(*this, counted);
  const auto h = static_cast<double>(f.H());
  f.rows(Category::embedding, KernelClass::kGatherRows, f.all(), h, h);
  f.scatter(Category::embedding, f.H());
  parts.forward.push_back(f.take());
  Writer b(*this, counted);
  b.gather(Category::embedding, b.H());
  // Rows of gradients added to fp32 rows.
  b.rows(Category::embedding, KernelClass::kScatterAdd, b.all(), 3 * h, 2 * h, 2);
  parts.backward.push_back(b.take());
  return parts;
}

LayerParts LayerPricer::head(DomainReport* report) const {
  using Product = Writer::Product;
  const Counted counted{report};
  LayerParts parts;
  const std::int64_t V = rank_share(a_.vocabulary, p_.tp);
  Writer f(*this, counted);
  const auto h = static_cast<double>(f.H());
  const double logits = static_cast<double>(f.all()) * static_cast<double>(V);
  f.rows(Category::loss, KernelClass::kReduce, f.T(), h, h);
  f.gather(Category::loss, f.H());
  f.product(Category::loss, f.all(), V, f.H(), GemmPass::kForward, true);
  f.kernel(Category::loss, KernelClass::kReduce, kLossForward / 2 * logits, kLossForward / 2 * logits, 3);
  f.loss_sums();
  parts.forward.push_back(f.take());
  Writer b(*this, counted);
  b.kernel(Category::loss, KernelClass::kElementwise, kLossBackward / 2 * logits, kLossBackward / 2 * logits);
  const Product head{V, b.H(), true};
  b.backward_of_gathered(Category::loss, std::span(&head, 1), b.H());
  b.rows(Category::loss, KernelClass::kReduce, b.T(), 3 * h, h, 2);
  parts.backward.push_back(b.take());
  return parts;
}

}  // namespace moesim::models

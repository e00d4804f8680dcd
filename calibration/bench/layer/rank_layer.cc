#include "layer/rank_layer.h"

#include <cmath>
#include <numeric>

namespace moesim::bench {
namespace {

constexpr const char* kForward = "forward_step";
constexpr const char* kBackward = "backward_step";

std::size_t size(int n) { return static_cast<std::size_t>(n); }

void* shifted(void* base, std::size_t elements, Element element) {
  return static_cast<char*>(base) + elements * size_of(element);
}

}  // namespace

unsigned stream(const LayerShape& shape, unsigned kind, int index) {
  // Streams are 24 bits: 7 of the seed, 4 of the kind, 13 of the index.
  return (shape.seed & 127u) << 17 | kind << 13 | (static_cast<unsigned>(index) & 8191u);
}

RowExchange plan_rows(const LayerShape& shape, int rank, const std::vector<std::vector<int>>& starts) {
  const int local = shape.local_experts();
  const auto rows_of = [&](int from, int expert) {
    return starts[size(from)][size(expert) + 1] - starts[size(from)][size(expert)];
  };
  RowExchange plan;
  for (int r = 0; r < shape.ep; ++r) {
    plan.sent.push_back(starts[size(rank)][size((r + 1) * local)] - starts[size(rank)][size(r * local)]);
    plan.received.push_back(starts[size(r)][size((rank + 1) * local)] - starts[size(r)][size(rank * local)]);
  }
  int at = 0;
  for (int e = 0; e < local; ++e) {
    plan.expert_starts.push_back(at);
    int arrives = 0;  // where the rows of the sender begin
    for (int r = 0; r < shape.ep; ++r) {
      plan.by_expert.push_back(at);
      plan.by_sender.push_back(arrives + starts[size(r)][size(rank * local + e)] -
                               starts[size(r)][size(rank * local)]);
      at += rows_of(r, rank * local + e);
      arrives += plan.received[size(r)];
    }
  }
  plan.expert_starts.push_back(at);
  plan.by_expert.push_back(at);
  return plan;
}

RankLayer::RankLayer(LayerDevice& device, const LayerShape& shape, int rank)
    : device_(device), shape_(shape), rank_(rank) {
  const std::size_t element = size_of(device.element()), tokens = size(shape.tokens),
                    hidden_size = size(shape.hidden);
  const std::size_t local = size(shape.local_experts()), experts = size(shape.experts),
                    choices = shape.choices();
  const auto room = [&](std::size_t bytes) { return Memory(device_, bytes); };
  for (Memory* each : {&x, &target, &y, &d_y, &dx}) *each = room(tokens * hidden_size * element);
  gate = parameter(hidden_size * experts, true);
  up = parameter(local * hidden_size * size(2 * shape.ffn), false);
  down = parameter(local * size(shape.ffn) * hidden_size, false);
  bias = room(experts * sizeof(float));
  logits = room(tokens * experts * sizeof(float));
  d_logits = room(tokens * experts * element);
  for (Memory* each : {&chosen, &sorted_, &order_, &places_}) *each = room(choices * sizeof(int));
  for (Memory* each : {&weights, &d_weights}) *each = room(choices * sizeof(float));
  starts = room((experts + 1) * sizeof(int));
  all_starts = room((experts + 1) * size(shape.ep) * sizeof(int));
  losses_ = room(tokens * sizeof(float));
  loss = room(sizeof(float));
  fill();
  list_forward();
  list_backward();
  list_optimizer();
}

Parameter RankLayer::parameter(std::size_t elements, bool float_gradient) {
  const std::size_t element = size_of(device_.element()), floats = elements * sizeof(float);
  return {elements,
          Memory(device_, elements * element),
          Memory(device_, float_gradient ? floats : elements * element),
          Memory(device_, floats),
          Memory(device_, floats),
          Memory(device_, floats),
          float_gradient};
}

void RankLayer::fill() {
  enum Kind : unsigned { kTokens = 1, kTargets, kGate, kUp, kDown };
  const std::size_t values = size(shape_.tokens) * size(shape_.hidden);
  const float of_hidden = 1 / std::sqrt(static_cast<float>(shape_.hidden));
  const float of_ffn = 1 / std::sqrt(static_cast<float>(shape_.ffn));
  device_.run(FillNormal{x.get(), values, stream(shape_, kTokens, rank_), 1});
  device_.run(FillNormal{target.get(), values, stream(shape_, kTargets, rank_), 1});
  device_.run(FillNormal{gate.weights.get(), gate.elements, stream(shape_, kGate, 0), of_hidden});
  const int local = shape_.local_experts();
  const std::size_t one_up = up.elements / size(local), one_down = down.elements / size(local);
  for (int e = 0; e < local; ++e) {
    const int expert = rank_ * local + e;
    device_.run(FillNormal{shifted(up.weights.get(), size(e) * one_up, device_.element()), one_up,
                           stream(shape_, kUp, expert), of_hidden});
    device_.run(FillNormal{shifted(down.weights.get(), size(e) * one_down, device_.element()), one_down,
                           stream(shape_, kDown, expert), of_ffn});
  }
  for (Parameter* each : {&gate, &up, &down})
    device_.run(StartAdamW{each->master.as<float>(), each->mean.as<float>(), each->square.as<float>(),
                           each->weights.get(), each->elements});
  std::vector<float> favours(size(shape_.experts));
  for (std::size_t e = 0; e < favours.size(); ++e)
    favours[e] = static_cast<float>(-shape_.skew * std::log1p(static_cast<double>(e)));
  device_.upload(bias.get(), favours.data(), favours.size() * sizeof(float));
}

void RankLayer::add(const char* step, const char* name, std::function<void()> run,
                    std::function<double()> flops) {
  operations_.push_back({step, name, std::move(run), std::nullopt, std::move(flops)});
}

void RankLayer::add_transfer(const char* step, Transfer transfer) {
  if (shape_.ep == 1) return;  // no other ranks
  const std::string name = transfer.function;
  operations_.push_back({step, name, {}, std::move(transfer), {}});
}

// The host reads the choices, which give the products their sizes.
void RankLayer::make_plan() {
  const std::size_t numbers = size(shape_.experts) + 1;
  std::vector<std::vector<int>> all(size(shape_.ep), std::vector<int>(numbers));
  std::vector<int> flat(numbers * size(shape_.ep));
  device_.download(flat.data(), shape_.ep > 1 ? all_starts.get() : starts.get(), flat.size() * sizeof(int));
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r].assign(flat.begin() + static_cast<std::ptrdiff_t>(r * numbers),
                  flat.begin() + static_cast<std::ptrdiff_t>((r + 1) * numbers));
  plan_ = plan_rows(shape_, rank_, all);
  if (rooms_.empty()) make_room();
  if (shape_.ep == 1) return;
  std::vector<int> both = plan_.by_expert;
  both.insert(both.end(), plan_.by_sender.begin(), plan_.by_sender.end());
  device_.upload(piece_starts_.get(), both.data(), both.size() * sizeof(int));
}

// Allocates memory for the rows, whose number is known from the first plan on: every step has the same tokens
// and weights.
void RankLayer::make_room() {
  const std::size_t element = size_of(device_.element()), received = size(plan_.rows());
  const auto room = [&](std::size_t count, int width) {
    rooms_.emplace_back(device_, count * size(width) * element);
    return rooms_.back().get();
  };
  const std::size_t choices = shape_.choices();
  const bool alone = shape_.ep == 1;
  sent = room(choices, shape_.hidden);
  arrived = alone ? sent : room(received, shape_.hidden);
  rows = alone ? sent : room(received, shape_.hidden);
  hidden = room(received, 2 * shape_.ffn);
  act = room(received, shape_.ffn);
  out = room(received, shape_.hidden);
  leaving = alone ? out : room(received, shape_.hidden);
  returned = alone ? out : room(choices, shape_.hidden);
  d_returned = room(choices, shape_.hidden);
  d_leaving = alone ? d_returned : room(received, shape_.hidden);
  d_out = alone ? d_returned : room(received, shape_.hidden);
  d_act = room(received, shape_.ffn);
  d_hidden = room(received, 2 * shape_.ffn);
  d_rows = room(received, shape_.hidden);
  d_arrived = alone ? d_rows : room(received, shape_.hidden);
  d_sent = alone ? d_rows : room(choices, shape_.hidden);
  piece_map_ = Memory(device_, received * sizeof(int));
  piece_starts_ = Memory(device_, (plan_.by_expert.size() + plan_.by_sender.size()) * sizeof(int));
}

// Adds the product of every local expert with rows; weight gradients of the others are zero.
void RankLayer::experts(Pass pass, void* inputs, void* matrices, void* outputs, int n, int k) {
  std::vector<Product> products;
  const Element element = device_.element();
  const std::size_t matrix = size(n) * size(k);
  for (int e = 0; e < shape_.local_experts(); ++e) {
    const int begin = plan_.expert_starts[size(e)], count = plan_.expert_starts[size(e) + 1] - begin;
    void* w = shifted(matrices, size(e) * matrix, element);
    if (count > 0)
      products.push_back(product_of(pass, count, n, k, shifted(inputs, size(begin) * size(k), element), w,
                                    shifted(outputs, size(begin) * size(n), element)));
    else if (pass == Pass::kWgrad)
      device_.zero(w, matrix * size_of(element));
  }
  if (!products.empty()) device_.grouped(products);
}

// Sorts from the order by sender to that by expert, or back.
void RankLayer::sort_pieces(const void* from, void* to, bool back) {
  device_.run(MoveRows{from, piece_map_.as<int>(), to, size(plan_.rows()), shape_.hidden, 1, back});
}

void RankLayer::list_forward() {
  const std::size_t tokens = size(shape_.tokens), choices = shape_.choices();
  const auto flops_of = [this](int n, int k) { return [this, n, k] { return 2.0 * plan_.rows() * n * k; }; };
  add(
      kForward, "gate product",
      [this] {
        device_.product(product_of(Pass::kForward, shape_.tokens, shape_.experts, shape_.hidden, x.get(),
                                   gate.weights.get(), logits.get()),
                        Into::kFloats);
      },
      [this] { return 2.0 * shape_.tokens * shape_.experts * shape_.hidden; });
  add(kForward, "softmax and top-k", [this, tokens] {
    device_.run(Route{logits.as<float>(), bias.as<float>(), chosen.as<int>(), weights.as<float>(), tokens,
                      shape_.topk, shape_.experts});
  });
  add(kForward, "sort by expert", [this, choices] {
    device_.sort(chosen.as<int>(), sorted_.as<int>(), order_.as<int>(), static_cast<int>(choices),
                 shape_.experts);
    device_.run(Invert{order_.as<int>(), places_.as<int>(), choices});
    device_.run(FindStarts{sorted_.as<int>(), starts.as<int>(), static_cast<int>(choices), shape_.experts});
  });
  add_transfer(kForward, {Transfer::Kind::kCounts, "_gather_along_first_dim_expert_parallel", "allgather",
                          "exp", "gather_counts"});
  add(kForward, "counts to the host", [this] { make_plan(); });
  add(kForward, "permute", [this, choices] {
    device_.run(MoveRows{x.get(), order_.as<int>(), sent, choices, shape_.hidden, shape_.topk, false});
  });
  add_transfer(kForward,
               {Transfer::Kind::kDispatch, "_profiled_all_to_all_single", "all_to_all", "exp", "dispatch"});
  if (shape_.ep > 1)
    add(kForward, "sort received rows", [this] {
      const int pieces = static_cast<int>(plan_.by_sender.size());
      device_.run(MapPieces{piece_starts_.as<int>(), piece_starts_.as<int>() + pieces + 1,
                            piece_map_.as<int>(), size(plan_.rows()), pieces});
      sort_pieces(arrived, rows, false);
    });
  add(
      kForward, "up product",
      [this] { experts(Pass::kForward, rows, up.weights.get(), hidden, 2 * shape_.ffn, shape_.hidden); },
      flops_of(2 * shape_.ffn, shape_.hidden));
  add(kForward, "activation", [this] { device_.run(SwiGlu{hidden, act, size(plan_.rows()), shape_.ffn}); });
  add(
      kForward, "down product",
      [this] { experts(Pass::kForward, act, down.weights.get(), out, shape_.hidden, shape_.ffn); },
      flops_of(shape_.hidden, shape_.ffn));
  if (shape_.ep > 1) add(kForward, "unsort rows", [this] { sort_pieces(out, leaving, true); });
  add_transfer(kForward,
               {Transfer::Kind::kCombine, "_profiled_all_to_all_single", "all_to_all", "exp", "combine"});
  add(kForward, "unpermute and combine", [this, tokens] {
    device_.run(Combine{returned, places_.as<int>(), weights.as<float>(), y.get(), tokens, shape_.topk,
                        shape_.hidden});
  });
  add("loss_func", "loss", [this, tokens] {
    device_.run(Loss{{}, y.get(), target.get(), d_y.get(), losses_.as<float>(), tokens, shape_.hidden});
    device_.run(Mean{{}, losses_.as<float>(), loss.as<float>(), tokens});
  });
  add_transfer("loss_func", {Transfer::Kind::kLoss, "allreduce", "allreduce", "dp", "loss_func"});
}

void RankLayer::list_experts_backward() {
  const auto flops_of = [this](int n, int k) { return [this, n, k] { return 2.0 * plan_.rows() * n * k; }; };
  const int twice = 2 * shape_.ffn;
  add(
      kBackward, "down product, gradient of rows",
      [this] { experts(Pass::kDgrad, d_act, down.weights.get(), d_out, shape_.hidden, shape_.ffn); },
      flops_of(shape_.hidden, shape_.ffn));
  add(
      kBackward, "down product, gradient of weights",
      [this] { experts(Pass::kWgrad, act, down.gradient.get(), d_out, shape_.hidden, shape_.ffn); },
      flops_of(shape_.hidden, shape_.ffn));
  add(kBackward, "activation backward", [this] {
    device_.run(SwiGluBackward{hidden, d_act, d_hidden, size(plan_.rows()), shape_.ffn});
  });
  add(
      kBackward, "up product, gradient of rows",
      [this, twice] { experts(Pass::kDgrad, d_rows, up.weights.get(), d_hidden, twice, shape_.hidden); },
      flops_of(twice, shape_.hidden));
  add(
      kBackward, "up product, gradient of weights",
      [this, twice] { experts(Pass::kWgrad, rows, up.gradient.get(), d_hidden, twice, shape_.hidden); },
      flops_of(twice, shape_.hidden));
}

void RankLayer::list_backward() {
  const std::size_t tokens = size(shape_.tokens), choices = shape_.choices();
  const auto gate_flops = [this] { return 2.0 * shape_.tokens * shape_.experts * shape_.hidden; };
  add(kBackward, "combine backward", [this, choices] {
    device_.run(CombineBackward{{},
                                returned,
                                d_y.get(),
                                places_.as<int>(),
                                weights.as<float>(),
                                d_returned,
                                d_weights.as<float>(),
                                choices,
                                shape_.topk,
                                shape_.hidden});
  });
  add_transfer(kBackward, {Transfer::Kind::kCombineBackward, "_profiled_all_to_all_single", "all_to_all",
                           "exp", "combine_backward"});
  if (shape_.ep > 1) add(kBackward, "unsort backward", [this] { sort_pieces(d_leaving, d_out, false); });
  list_experts_backward();
  if (shape_.ep > 1) add(kBackward, "sort backward", [this] { sort_pieces(d_rows, d_arrived, true); });
  add_transfer(kBackward, {Transfer::Kind::kDispatchBackward, "_profiled_all_to_all_single", "all_to_all",
                           "exp", "dispatch_backward"});
  add(kBackward, "permute backward", [this, tokens] {
    device_.run(Combine{d_sent, places_.as<int>(), nullptr, dx.get(), tokens, shape_.topk, shape_.hidden});
  });
  add(kBackward, "softmax and top-k backward", [this, tokens] {
    device_.run(RouteBackward{chosen.as<int>(), weights.as<float>(), d_weights.as<float>(), d_logits.get(),
                              tokens, shape_.topk, shape_.experts});
  });
  add(
      kBackward, "gate product, gradient of tokens",
      [this] {
        device_.product(product_of(Pass::kDgrad, shape_.tokens, shape_.experts, shape_.hidden, dx.get(),
                                   gate.weights.get(), d_logits.get()),
                        Into::kAddElements);
      },
      gate_flops);
  add(
      kBackward, "gate product, gradient of weights",
      [this] {
        device_.product(product_of(Pass::kWgrad, shape_.tokens, shape_.experts, shape_.hidden, x.get(),
                                   gate.gradient.get(), d_logits.get()),
                        Into::kFloats);
      },
      gate_flops);
}

void RankLayer::optimize(Parameter& p) {
  constexpr float kDecay = 0.1f, kMean = 0.9f, kSquare = 0.95f, kEpsilon = 1e-8f;
  // Uses the corrections of a first step in every step: they do not change the time.
  device_.run(AdamW{p.master.as<float>(), p.mean.as<float>(), p.square.as<float>(), p.weights.get(),
                    p.gradient.get(), p.elements, p.float_gradient, rate, kDecay, kMean, kSquare,
                    1 / (1 - kMean), 1 / (1 - kSquare), kEpsilon});
}

void RankLayer::list_optimizer() {
  // Gradients are the mean over the data-parallel ranks: divided before the reduction, as in Megatron.
  const float share = 1.0f / static_cast<float>(shape_.ep);
  add("dp_allreduce", "mean of the gate's gradient", [this, share] {
    device_.run(Scale{gate.gradient.get(), gate.elements, share, gate.float_gradient});
  });
  add("exp_dp_allreduce", "mean of the experts' gradients", [this, share] {
    for (Parameter* each : {&up, &down})
      device_.run(Scale{each->gradient.get(), each->elements, share, each->float_gradient});
  });
  add("optimizer_step", "AdamW", [this] {
    for (Parameter* each : {&gate, &up, &down}) optimize(*each);
  });
}

std::vector<int> RankLayer::shape_of(Transfer::Kind kind) const {
  const int choices = static_cast<int>(shape_.choices());
  switch (kind) {
    case Transfer::Kind::kCounts:
      return {shape_.experts};
    case Transfer::Kind::kDispatch:
    case Transfer::Kind::kCombineBackward:
      return {choices, shape_.hidden};
    case Transfer::Kind::kCombine:
    case Transfer::Kind::kDispatchBackward:
      return {plan_.rows(), shape_.hidden};
    case Transfer::Kind::kLoss:
      break;
  }
  return {1};
}

}  // namespace moesim::bench

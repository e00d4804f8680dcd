// The layer of calibration/bench: its reference by differences, the index arithmetic that the GPU's kernels
// share, and that whatever a device does wrong is found before a time is written.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "layer/check.h"
#include "layer/host_device.h"
#include "layer/measure.h"
#include "layer/program.h"
#include "layer/reference.h"

namespace moesim::bench {
namespace {

LayerShape small(int ep) {
  LayerShape shape;
  shape.ep = ep, shape.tokens = 21, shape.hidden = 24, shape.ffn = 16, shape.experts = 8, shape.topk = 3,
  shape.skew = 1;
  return shape;
}

double number(std::uint64_t i) { return static_cast<double>(normal_of(i)); }

std::vector<double> numbers(std::size_t count, std::uint64_t first, double scale) {
  std::vector<double> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = scale * number(first + i);
  return out;
}

// A token, its weights, and the loss as a function of all of them.
struct Toy {
  LayerShape shape = small(1);
  std::vector<int> chosen{1, 4, 6};
  std::vector<double> x = numbers(24, 0, 1), target = numbers(24, 100, 1), gate = numbers(24 * 8, 200, 0.3);
  std::vector<std::vector<double>> up, down;

  Toy() {
    for (std::size_t e = 0; e < 8; ++e) {
      up.push_back(numbers(24 * 32, 1000 * (e + 1), 0.2));
      down.push_back(numbers(16 * 24, 100000 * (e + 1), 0.25));
    }
  }
  ReferenceToken token(ReferenceGradients* gradients) const {
    const ReferenceWeights weights{
        gate, [&](int e) -> const std::vector<double>& { return up[static_cast<std::size_t>(e)]; },
        [&](int e) -> const std::vector<double>& { return down[static_cast<std::size_t>(e)]; }};
    return reference_token(shape, weights, x, target, chosen, 0.5, gradients);
  }
  // The derivative of loss / 2 by one number of the toy.
  double slope(double& number) {
    constexpr double kStep = 1e-5;
    const double was = number;
    number = was + kStep;
    const double above = token(nullptr).loss;
    number = was - kStep;
    const double below = token(nullptr).loss;
    number = was;
    return 0.5 * (above - below) / (2 * kStep);
  }
};

TEST(LayerReference, GradientsAreThoseOfDifferences) {
  Toy toy;
  ReferenceGradients gradients(toy.shape);
  const ReferenceToken token = toy.token(&gradients);
  for (std::size_t i = 0; i < toy.x.size(); ++i)
    EXPECT_NEAR(token.dx[i], toy.slope(toy.x[i]), 1e-7) << "x " << i;
  for (std::size_t i = 0; i < toy.gate.size(); ++i)
    EXPECT_NEAR(gradients.gate[i], toy.slope(toy.gate[i]), 1e-7) << "gate " << i;
  for (const std::size_t e : {0u, 1u, 6u})
    for (std::size_t i = 0; i < 16 * 24; i += 5) {
      EXPECT_NEAR(gradients.up[e][2 * i], toy.slope(toy.up[e][2 * i]), 1e-7) << "up " << e << " " << i;
      EXPECT_NEAR(gradients.down[e][i], toy.slope(toy.down[e][i]), 1e-7) << "down " << e << " " << i;
    }
  // Experts that the router did not choose have no gradient, and the chosen ones have some.
  EXPECT_EQ(gradients.up[0], std::vector<double>(24 * 32));
  EXPECT_NE(gradients.gate[4], 0);
}

TEST(LayerArithmetic, RoundsToTheNearestBf16) {
  EXPECT_EQ(from_float<Bf16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(from_float<Bf16>(1.00390625f).bits, 0x3f80);  // half a step: to the even one
  EXPECT_EQ(from_float<Bf16>(1.01171875f).bits, 0x3f82);
  EXPECT_EQ(from_float<Bf16>(-2.5f).bits, 0xc020);
  EXPECT_EQ(from_float<Bf16>(INFINITY).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(from_float<Bf16>(NAN))));
  EXPECT_TRUE(std::isinf(to_float(from_float<Bf16>(3.4e38f))));
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const float value = normal_of(i);
    EXPECT_LE(std::abs(to_float(from_float<Bf16>(value)) - value), std::abs(value) / 256);
  }
}

TEST(LayerArithmetic, NormalNumbersAreNormal) {
  double sum = 0, squares = 0, fourths = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double value = number((std::uint64_t{3} << 40) + static_cast<std::uint64_t>(i));
    sum += value, squares += value * value, fourths += value * value * value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourths / kCount, 3, 0.1);
}

RC_GTEST_PROP(LayerArithmetic, PieceOfARowIsTheOneThatHoldsIt, ()) {
  const auto sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5)));
  std::vector<int> starts{0};
  for (const int size : sizes) starts.push_back(starts.back() + size);
  for (int row = 0; row < starts.back(); ++row) {
    const int piece = piece_of(starts.data(), static_cast<int>(sizes.size()), row);
    RC_ASSERT(starts[static_cast<std::size_t>(piece)] <= row);
    RC_ASSERT(row < starts[static_cast<std::size_t>(piece) + 1]);
  }
}

RC_GTEST_PROP(LayerArithmetic, StartsCountSortedKeys, ()) {
  const int values = *rc::gen::inRange(1, 9);
  auto keys = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, values));
  std::sort(keys.begin(), keys.end());
  std::vector<int> starts(static_cast<std::size_t>(values) + 1, -1);
  const auto device = host_device(Element::kFloat);
  device->run(FindStarts{keys.data(), starts.data(), static_cast<int>(keys.size()), values});
  for (int v = 0; v <= values; ++v)
    RC_ASSERT(starts[static_cast<std::size_t>(v)] ==
              std::lower_bound(keys.begin(), keys.end(), v) - keys.begin());
}

// Every row that a rank sends arrives once, at its expert, behind those of lower senders.
RC_GTEST_PROP(LayerPlan, RowsAreSortedByExpertThenSender, ()) {
  LayerShape shape = small(*rc::gen::element(1, 2, 4));
  std::vector<std::vector<int>> starts;
  for (int r = 0; r < shape.ep; ++r) {
    starts.push_back({0});
    for (int e = 0; e < shape.experts; ++e)
      starts.back().push_back(starts.back().back() + *rc::gen::inRange(0, 6));
  }
  const auto device = host_device(Element::kFloat);
  for (int r = 0; r < shape.ep; ++r) {
    const RowExchange plan = plan_rows(shape, r, starts);
    // The rows as they arrive: by sender, each sender's by expert.
    std::vector<std::pair<int, int>> arrived, sorted;
    for (int s = 0; s < shape.ep; ++s)
      for (int e = r * shape.local_experts(); e < (r + 1) * shape.local_experts(); ++e) {
        const auto& from = starts[static_cast<std::size_t>(s)];
        arrived.insert(arrived.end(),
                       static_cast<std::size_t>(from[static_cast<std::size_t>(e) + 1] -
                                                from[static_cast<std::size_t>(e)]),
                       {e, s});
      }
    RC_ASSERT(static_cast<std::size_t>(plan.rows()) == arrived.size());
    RC_ASSERT(std::accumulate(plan.received.begin(), plan.received.end(), 0) == plan.rows());
    std::vector<int> map(arrived.size());
    device->run(MapPieces{plan.by_expert.data(), plan.by_sender.data(), map.data(), map.size(),
                          static_cast<int>(plan.by_sender.size())});
    for (const int from : map) sorted.push_back(arrived.at(static_cast<std::size_t>(from)));
    std::sort(arrived.begin(), arrived.end());
    RC_ASSERT(sorted == arrived);
    for (int e = 0; e < shape.local_experts(); ++e)
      for (int row = plan.expert_starts[static_cast<std::size_t>(e)];
           row < plan.expert_starts[static_cast<std::size_t>(e) + 1]; ++row)
        RC_ASSERT(sorted[static_cast<std::size_t>(row)].first == r * shape.local_experts() + e);
  }
}

// The arguments that cuBLAS gets, against plain loops over row-major matrices.
RC_GTEST_PROP(LayerProduct, PassesAreRowMajorProducts, ()) {
  const int m = *rc::gen::inRange(1, 9), n = *rc::gen::inRange(1, 9), k = *rc::gen::inRange(1, 9);
  const auto filled = [](int count, std::uint64_t first) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = normal_of(first + i);
    return out;
  };
  const auto x = filled(m * k, 0), w = filled(k * n, 100), y = filled(m * n, 200);
  const auto device = host_device(Element::kFloat);
  const auto at = [](const std::vector<float>& matrix, int row, int column, int columns) {
    return static_cast<double>(matrix[static_cast<std::size_t>(row * columns + column)]);
  };
  const auto compare = [&](Pass pass, const std::vector<float>& out, int rows, int columns, int depth,
                           auto term) {
    auto x_ = x, w_ = w, y_ = y;
    device->product(product_of(pass, m, n, k, x_.data(), w_.data(), y_.data()), Into::kElements);
    const std::vector<float>& is = pass == Pass::kForward ? y_ : pass == Pass::kDgrad ? x_ : w_;
    RC_ASSERT(is.size() == out.size());
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        double sum = 0;
        for (int d = 0; d < depth; ++d) sum += term(r, c, d);
        RC_ASSERT(std::abs(at(is, r, c, columns) - sum) < 1e-5);
      }
  };
  compare(Pass::kForward, y, m, n, k, [&](int r, int c, int d) { return at(x, r, d, k) * at(w, d, c, n); });
  compare(Pass::kDgrad, x, m, k, n, [&](int r, int c, int d) { return at(y, r, d, n) * at(w, c, d, n); });
  compare(Pass::kWgrad, w, k, n, m, [&](int r, int c, int d) { return at(x, d, r, k) * at(y, d, c, n); });
}

RC_GTEST_PROP(Layer, IsTheReferenceOnAnyShape, ()) {
  LayerShape shape;
  shape.ep = *rc::gen::element(1, 2, 3);
  shape.experts = shape.ep * *rc::gen::inRange(1, 4);
  shape.topk = *rc::gen::inRange(1, shape.experts + 1);
  shape.tokens = *rc::gen::inRange(1, 40);
  shape.hidden = 8 * *rc::gen::inRange(1, 6);
  shape.ffn = 8 * *rc::gen::inRange(1, 4);
  shape.skew = *rc::gen::element(0.0, 1.0, 6.0);
  shape.seed = *rc::gen::inRange(0u, 128u);
  RC_ASSERT(problem_of(shape) == "");
  const auto device = host_device(Element::kFloat);
  RC_ASSERT(wrong(check_all(*device, shape), Element::kFloat) == "");
  World world(*device, shape);
  world.step();
  RC_ASSERT(wrong(check_some(world), Element::kFloat) == "");
}

TEST(Layer, RoundingToBf16IsAllowed) {
  const auto device = host_device(Element::kBf16);
  for (const int ep : {1, 2, 4}) EXPECT_EQ(wrong(check_all(*device, small(ep)), Element::kBf16), "");
}

// The host, but for one operation that is wrong in some way.
enum class Fault {
  kNone,
  kProduct,
  kGrouped,
  kSort,
  kRoute,
  kMoveRows,
  kSwiGlu,
  kSwiGluBackward,
  kCombine,
  kSumCopies,
  kRouteBackward,
  kInvert,
  kFindStarts,
  kMapPieces,
  kScale,
  kAdamW,
  kCombineBackward,
  kLoss,
  kMean,
  kNotANumber
};
class FaultyDevice : public LayerDevice {
 public:
  explicit FaultyDevice(Fault fault, Element element = Element::kBf16)
      : host_(host_device(element)), fault_(fault) {}
  std::string kind() const override { return host_->kind(); }
  std::string name() const override { return host_->name(); }
  std::string clock() const override { return host_->clock(); }
  std::vector<std::string> about() const override { return host_->about(); }
  Readings readings() const override { return host_->readings(); }
  Element element() const override { return host_->element(); }
  void* allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  void release(void* memory) override { host_->release(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override { host_->upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { host_->download(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { host_->copy(to, from, bytes); }
  void zero(void* memory, std::size_t bytes) override { host_->zero(memory, bytes); }
  void wait() override { host_->wait(); }
  void mark(std::size_t number) override { host_->mark(number); }
  double seconds(std::size_t from, std::size_t to) override { return host_->seconds(from, to); }

  void product(const Product& product, Into into) override {
    Product mine = product;
    if (fault_ == Fault::kProduct) mine.depth -= 1;
    host_->product(mine, into);
  }
  void grouped(const std::vector<Product>& products) override {
    auto mine = products;
    if (fault_ == Fault::kGrouped) mine.pop_back();
    host_->grouped(mine);
  }
  void sort(const int* keys, int* sorted, int* order, int count, int values) override {
    host_->sort(keys, sorted, order, count, values);
    if (fault_ == Fault::kSort) std::swap(order[0], order[count - 1]);
  }
  void run(const Work& work) override {
    Work mine = work;
    std::visit([this](auto& one) { spoil(one); }, mine);
    host_->run(mine);
    if (const auto* route = std::get_if<Route>(&work); route && fault_ == Fault::kRoute)
      route->chosen[0] = (route->chosen[route->copies - 1] + 1) % route->experts;
    if (const auto* combine = std::get_if<Combine>(&work); combine && fault_ == Fault::kNotANumber)
      static_cast<Bf16*>(combine->y)[0] = from_float<Bf16>(NAN);
  }

 private:
  bool is(Fault fault) const { return fault_ == fault; }
  template <class W>
  void spoil(W&) {}
  void spoil(MoveRows& w) { w.rows -= is(Fault::kMoveRows); }
  void spoil(SwiGlu& w) { w.rows -= is(Fault::kSwiGlu); }
  void spoil(SwiGluBackward& w) { w.rows -= is(Fault::kSwiGluBackward); }
  void spoil(Combine& w) {
    if (is(Fault::kCombine)) w.weights = nullptr;
    if (is(Fault::kSumCopies) && !w.weights) w.tokens -= 1;
  }
  void spoil(RouteBackward& w) {
    if (is(Fault::kRouteBackward)) std::swap(w.weights, w.d_weights);
  }
  void spoil(Invert& w) { w.elements -= is(Fault::kInvert); }
  void spoil(FindStarts& w) { w.elements -= is(Fault::kFindStarts); }
  void spoil(MapPieces& w) { w.rows -= is(Fault::kMapPieces); }
  void spoil(Scale& w) { w.factor *= is(Fault::kScale) ? 1.1f : 1.0f; }
  void spoil(AdamW& w) { w.keep_square = is(Fault::kAdamW) ? w.keep_mean : w.keep_square; }
  void spoil(CombineBackward& w) { w.width -= is(Fault::kCombineBackward) ? 8 : 0; }
  void spoil(Loss& w) { w.tokens -= is(Fault::kLoss); }
  void spoil(Mean& w) { w.elements -= is(Fault::kMean); }

  std::unique_ptr<LayerDevice> host_;
  Fault fault_;
};

TEST(LayerCheck, FindsWhateverIsWrong) {
  FaultyDevice sound(Fault::kNone);
  EXPECT_EQ(wrong(check_all(sound, small(4)), Element::kBf16), "");
  for (int fault = static_cast<int>(Fault::kProduct); fault <= static_cast<int>(Fault::kNotANumber);
       ++fault) {
    FaultyDevice device(static_cast<Fault>(fault));
    EXPECT_NE(wrong(check_all(device, small(4)), Element::kBf16), "") << "fault " << fault;
  }
}

TEST(LayerCheck, FindsInSamplesWhatIsWrongEverywhere) {
  for (const Fault fault :
       {Fault::kProduct, Fault::kGrouped, Fault::kRoute, Fault::kCombine, Fault::kRouteBackward,
        Fault::kScale, Fault::kCombineBackward, Fault::kNotANumber}) {
    FaultyDevice device(fault);
    World world(device, small(4));
    world.step();
    EXPECT_NE(wrong(check_some(world), Element::kBf16), "") << "fault " << static_cast<int>(fault);
  }
}

TEST(LayerMeasure, EveryOperationHasATimeAndResultsStay) {
  const auto device = host_device(Element::kBf16);
  World world(*device, small(2));
  world.step();
  const auto before = check_some(world);
  const auto times = measure(world, {1, 3});
  ASSERT_EQ(times.size(), 2u);
  for (std::size_t r = 0; r < times.size(); ++r) {
    const auto& operations = world.ranks()[r]->operations();
    ASSERT_EQ(times[r].operations.size(), operations.size());
    for (std::size_t o = 0; o < operations.size(); ++o)
      EXPECT_EQ(times[r].operations[o] > 0, !operations[o].transfer) << operations[o].name;
    EXPECT_LE(times[r].step_low, times[r].step);
    EXPECT_LE(times[r].step, times[r].step_high);
  }
  const auto after = check_some(world);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(before[i].worst, after[i].worst) << before[i].what;
}

int run_with(Fault fault, const std::string& out) {
  const std::string words[] = {"layer", "--out",     out, "--tokens", "16", "--hidden", "16", "--ffn",
                               "8",     "--experts", "4", "--topk",   "2",  "--ep",     "2",  "--iterations",
                               "1",     "--warmup",  "0"};
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  return run_program(
      {"layer", false, [fault](const DeviceChoice&) { return std::make_unique<FaultyDevice>(fault); }},
      static_cast<int>(arguments.size()), arguments.data());
}

TEST(LayerProgram, WritesNothingOfAWrongResult) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "layer_program";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(run_with(Fault::kGrouped, folder.string()), 1);
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(run_with(Fault::kNone, folder.string()), 0);
  EXPECT_TRUE(std::filesystem::exists(folder));
  EXPECT_EQ(run_with(Fault::kNone, folder.string()), 2);  // there is a recording
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace moesim::bench

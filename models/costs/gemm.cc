#include "models/costs/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {
namespace {

constexpr double kUnmeasuredSigma = 0.25;

// Output tiles of the libraries (CUTLASS, cuBLAS on SM80 to SM100), rows x columns: powers of two.
struct Tile {
  int rows;
  int columns;
  constexpr double area() const { return static_cast<double>(rows) * columns; }
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {64, 256},
                           {64, 128},  {64, 64},   {32, 128},  {16, 128}};
constexpr int kLeastRows = 16;  // rows of the smallest tile
constexpr std::size_t kLeastShift = 4;
constexpr std::size_t kRowSizes = 5;    // 16 to 256
constexpr std::size_t kDenseTiles = 6;  // the last two serve experts with few rows
constexpr int kSplits[] = {1, 2, 4, 8};
// Granularity of rows; other products end in a partly filled row of tiles.
constexpr std::int64_t kRowGranule = 64;
constexpr std::int64_t kFewRows = 256;  // up to here a cluster of two tiles holds all rows and shares B
constexpr double kRounding = 1e-12;
constexpr double kDepth = 64;  // K is processed in steps of this many elements

std::int64_t tiles_of(std::int64_t extent, int tile) {
  return (extent + tile - 1) >> std::countr_zero(static_cast<unsigned>(tile));
}

// max(a, b), rounded where both matter: memory traffic and arithmetic overlap, but not perfectly.
double smooth_max(double a, double b, double power) {
  const double high = std::max(a, b);
  if (high <= 0) return 0;
  const double low = std::min(a, b) / high;
  return high * std::pow(1 + std::pow(low, power), 1 / power);
}

// Parameters of one element type, resolved.
struct Rates {
  bool known = false;
  bool own = false;      // the element type has its own law
  bool derived = false;  // that law comes from another GPU
  std::string source;
  std::vector<DomainRange> domain;
  double peak = 0;                                            // FLOP/s of the data sheet
  double rate = 0;                                            // FLOP/s of one SM on the largest tile
  std::array<double, std::size(kTiles)> seconds_per_depth{};  // by tile, per element of K
  double small_tile = 0;                                      // relative speed of a tile of half the area
  double prologue = 0;                                        // seconds of a tile besides its arithmetic
  double tail = 1;        // lost share of a last, partly filled wave (stream-K kernels lose less)
  double reduction = 0;   // seconds to add up a split K
  double input_pass = 0;  // bytes moved per element of A before the product (quantisation on the fly)
  double ragged = 0;  // passes over B that a partly filled last row of tiles costs (no multicast, no overlap)
  double host = 0;    // host seconds per call: a lower bound for eager kernels
  double floor = 0;   // seconds of the smallest kernel
  double memory = 0;  // seconds per byte
  double power = 4;
  double bytes_in = 2;
  double bytes_out = 2;
  double factor = 1;
  double beyond = 0;  // ParameterSet::beyond
  double sigma = kUnmeasuredSigma;
};

// `set` may be null: the defaults below are a typical library's.
Rates rates_of(const Profile& profile, DType dtype, const ParameterSet* set, double clock) {
  static const ParameterSet kNone;
  const ParameterSet& p = set ? *set : kNone;
  const DeviceLimits& device = profile.device();
  Rates r;
  r.known = true;
  r.peak = device.peak_flops[static_cast<std::size_t>(dtype)];
  // With the scales, a byte for every 16 elements.
  r.bytes_in = dtype == DType::kFp4 ? 0.5 + 1.0 / 16 : bytes_of(dtype);
  r.bytes_out = std::max(2.0, r.bytes_in);
  r.rate = r.peak * p.get("peak_share", 0.85) * clock / device.sms;
  r.small_tile = p.get("small_tile", 0.9);
  for (std::size_t i = 0; i < std::size(kTiles); ++i) {
    const double speed = r.rate * std::pow(r.small_tile, std::log2(32768.0 / kTiles[i].area()));
    r.seconds_per_depth[i] = 2 * kTiles[i].area() / speed;
  }
  r.prologue = p.get("prologue", 1e-6);
  r.tail = std::min(p.get("tail", 1), 1.0);
  r.reduction = p.get("reduction", 1e-6);
  r.floor = p.get("floor", profile.launch().kernel_floor);
  r.memory = 1 / (device.hbm_bandwidth * std::min(p.get("memory_share", 0.85), 1.0));
  r.power = p.get("overlap_power", 4);
  r.input_pass = p.get("input_pass", 0);
  r.ragged = p.get("ragged_pass", 0);
  r.host = p.get("host", 0);
  r.factor = p.factor;
  if (set) {
    r.sigma = std::hypot(set->residual, set->systematic);
    r.beyond = set->beyond;
    r.derived = set->derived;
    r.source = set->source;
    r.domain = set->domain;
  }
  return r;
}

// Share of the dense products' rate below which grouped kernels are slow by themselves, in every element type.
constexpr double kSlowGrouped = 0.65;

// Speed of MegaBlocks' block-sparse products, blocks of 128, over dense products of the same sizes: the mean
// over problems on A100 (arXiv 2211.15841, 6.3: 98.6 %, from 91 to 104 %), the only published GPU.
constexpr double kBlockSparseRate = 0.986;

// The element type whose law stands in where one has none of its own: the same units at their own peak rate.
std::string_view stand_in(DType dtype) { return dtype == DType::kFp4 ? "fp8" : "bf16"; }

// Widens the error of a law of another element type or library.
void widen(Rates& r) {
  r.sigma = std::max(r.sigma, kUnmeasuredSigma);
  r.factor *= std::exp(r.beyond * kUnmeasuredSigma);
}

}  // namespace

struct GemmModel::Resolved {
  std::array<Rates, kDTypes> rates;
  std::array<Rates, kDTypes> grouped_rates;
  double sms = 1;
  double launch = 0;
  double spec_memory = 0;  // seconds per byte at the data sheet's bandwidth
  std::string profile;

  const Rates& of(DType dtype, bool grouped = false) const {
    const Rates& found = (grouped ? grouped_rates : rates)[static_cast<std::size_t>(dtype)];
    if (!found.known)
      throw InputError("profile " + profile + " has no " + std::string(name_of(dtype)) + " matrix units");
    return found;
  }

  std::optional<OutsideDomain> outside(const Rates& r, const std::string& what, GemmShape s) const {
    const auto price = [&] { return profile + ": " + what; };
    if (!r.own) return OutsideDomain{price(), "was not measured", {}, 0};
    if (r.derived) return OutsideDomain::derived(price(), r.source);
    FarthestOutside farthest;
    for (const DomainRange& range : r.domain)
      for (const auto& [quantity, value] : {std::pair{"m", s.m}, {"n", s.n}, {"k", s.k}})
        if (range.quantity == quantity) farthest.try_range(&range, static_cast<double>(value));
    return farthest.of(price());
  }

  // Returns the time of the best tile shape for `blocks(tile)` output tiles that each reduce over `k`.
  template <class Blocks>
  double compute(const Rates& r, std::size_t tiles, double k, const Blocks& blocks) const {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < tiles; ++t) {
      const double filled = blocks(kTiles[t]) / sms, whole = filled * k * r.seconds_per_depth[t];
      for (const int splits : kSplits) {
        const double split = filled * splits, extra = splits > 1 ? r.reduction : 0;
        // No split is faster than full waves of whole tiles, and further splits only add prologues.
        if (whole + split * r.prologue + extra > best * (1 + kRounding)) break;
        const double waves = std::max(1.0, split + r.tail * (std::ceil(split) - split));
        const double depth = std::ceil(k / splits / kDepth) * kDepth;
        best = std::min(best, waves * (depth * r.seconds_per_depth[t] + r.prologue) + extra);
      }
    }
    return best;
  }
};

GemmModel::GemmModel(const Profile& profile, Clocks clocks, std::string_view grouped_key) {
  auto resolved = std::make_unique<Resolved>();
  const DeviceLimits& device = profile.device();
  resolved->sms = device.sms;
  resolved->launch = profile.launch().kernel;
  resolved->profile = profile.name();
  if (device.hbm_bandwidth <= 0) throw InputError("profile " + profile.name() + " has no hbm_bandwidth");
  resolved->spec_memory = 1 / device.hbm_bandwidth;
  const double clock = clocks == Clocks::kSustained ? device.sustained_clock : 1;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (device.peak_flops[i] <= 0) continue;
    const std::string name(name_of(dtype));
    const ParameterSet* dense = profile.find("gemm/" + name);
    const ParameterSet* grouped =
        profile.find(grouped_key.empty() ? "grouped_gemm/" + name : std::string(grouped_key));
    const std::string other(stand_in(dtype));
    const ParameterSet* law = dense ? dense : profile.find("gemm/" + other);
    resolved->rates[i] = rates_of(profile, dtype, law, clock);
    resolved->rates[i].own = dense != nullptr;
    if (!dense) widen(resolved->rates[i]);
    const bool own = grouped != nullptr;
    // Grouped kernels that are slow in the measured type, as Primus-Turbo's are, stay slow in this one.
    const auto share = [](const ParameterSet& set) { return set.get("peak_share", 1); };
    if (const ParameterSet* theirs = profile.find("grouped_gemm/" + other); !grouped && theirs)
      grouped = dense && share(*theirs) > kSlowGrouped * share(*dense) ? dense : theirs;
    if (!grouped) grouped = law;
    resolved->grouped_rates[i] = rates_of(profile, dtype, grouped, clock);
    resolved->grouped_rates[i].own = own;
    if (!own) widen(resolved->grouped_rates[i]);
  }
  resolved_ = std::move(resolved);
}

GemmModel::~GemmModel() = default;
GemmModel::GemmModel(GemmModel&&) noexcept = default;
GemmModel& GemmModel::operator=(GemmModel&&) noexcept = default;

double GemmModel::roofline_seconds(GemmShape s, DType dtype) const {
  const Rates& r = resolved_->of(dtype);
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  const double bytes = (m * k + k * n) * r.bytes_in + m * n * r.bytes_out;
  return std::max(2 * m * n * k / r.peak, bytes * resolved_->spec_memory);
}

double GemmModel::seconds(GemmShape s, DType dtype) const {
  check(s.m >= 0 && s.n >= 0 && s.k >= 0, "GEMM dimensions are not negative");
  if (s.m == 0 || s.n == 0 || s.k == 0) return 0;
  const Rates& r = resolved_->of(dtype);
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  const double compute = resolved_->compute(r, kDenseTiles, k, [&](const Tile& tile) {
    return static_cast<double>(tiles_of(s.m, tile.rows)) * static_cast<double>(tiles_of(s.n, tile.columns));
  });
  const double memory = ((m * k + k * n) * r.bytes_in + m * n * r.bytes_out) * r.memory;
  const double partly = s.m > kFewRows && s.m % kRowGranule != 0 ? r.ragged * n * k * r.bytes_in : 0;
  const double device =
      r.floor + (m * k * r.input_pass + partly) * r.memory + smooth_max(compute, memory, r.power);
  return std::max(r.factor * std::max(device, r.host), roofline_seconds(s, dtype));
}

Estimate GemmModel::estimate(GemmShape shape, DType dtype) const {
  return Estimate::log_normal(seconds(shape, dtype), resolved_->of(dtype).sigma);
}

double GemmModel::grouped_seconds(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k,
                                  DType dtype, GemmPass pass, GemmBackend backend) const {
  // A strided batch runs the library's dense kernel.
  const bool batched = backend == GemmBackend::kBatched;
  const Rates& r = resolved_->of(dtype, !batched);
  std::int64_t total = 0, largest = 0, active = 0;
  for (const std::int64_t m : rows) {
    check(m >= 0, "row counts are not negative");
    total += m;
    largest = std::max(largest, m);
    active += m > 0;
  }
  if (total == 0 || n == 0 || k == 0) return 0;
  if (backend == GemmBackend::kBlockSparse)
    return grouped_seconds(rows, n, k, dtype, pass, GemmBackend::kGrouped) / kBlockSparseRate;
  if (backend == GemmBackend::kLoop) {
    double sum = 0;
    for (const std::int64_t m : rows)
      if (m > 0) sum += std::max(seconds(turned({m, n, k}, pass), dtype), resolved_->launch);
    return sum;
  }
  // One kernel: tiles of all experts share the waves; the bytes are those of experts with rows (in a batch of
  // all experts, padded to the largest).
  const auto experts = static_cast<double>(batched ? static_cast<std::int64_t>(rows.size()) : active);
  const double computed = batched ? static_cast<double>(largest) * experts : static_cast<double>(total);
  const double dn = static_cast<double>(n), dk = static_cast<double>(k);
  const double flops = 2 * computed * dn * dk;
  double bytes = 0, compute = 0;
  if (pass == GemmPass::kWgrad) {
    bytes = computed * (dn + dk) * r.bytes_in + experts * dn * dk * r.bytes_out;
    // Every expert has the same output tiles but its own depth: all tiles use the mean depth. This ignores
    // that a single much deeper expert would bound the last wave.
    const double tiles = experts;
    const double depth = computed / experts;
    compute = resolved_->compute(r, std::size(kTiles), depth, [&](const Tile& tile) {
      return tiles * static_cast<double>(tiles_of(k, tile.rows)) *
             static_cast<double>(tiles_of(n, tile.columns));
    });
  } else {
    const std::int64_t columns = pass == GemmPass::kForward ? n : k;
    const double depth = pass == GemmPass::kForward ? dk : dn;
    bytes = computed * depth * r.bytes_in + computed * static_cast<double>(columns) * r.bytes_out +
            experts * dn * dk * r.bytes_in;
    // Tiles of all experts, by rows of a tile: powers of two from kLeastRows.
    std::array<std::int64_t, kRowSizes> count{};
    for (const std::int64_t each : rows) {
      const std::int64_t m = batched ? largest : each;
      for (std::size_t s = 0; s < kRowSizes; ++s)
        count[s] += (m + (std::int64_t{kLeastRows} << s) - 1) >> (kLeastShift + s);
    }
    compute = resolved_->compute(r, std::size(kTiles), depth, [&](const Tile& tile) {
      const auto size =
          static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(tile.rows))) - kLeastShift;
      return static_cast<double>(count[size]) * static_cast<double>(tiles_of(columns, tile.columns));
    });
  }
  const double bound = std::max(flops / r.peak, bytes * resolved_->spec_memory);
  return std::max(r.factor * (r.floor + smooth_max(compute, bytes * r.memory, r.power)), bound);
}

Estimate GemmModel::grouped_estimate(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k,
                                     DType dtype, GemmPass pass, GemmBackend backend) const {
  return Estimate::log_normal(grouped_seconds(rows, n, k, dtype, pass, backend),
                              resolved_->of(dtype, backend != GemmBackend::kBatched).sigma);
}

std::optional<OutsideDomain> GemmModel::outside(GemmShape shape, DType dtype) const {
  return resolved_->outside(resolved_->of(dtype), std::string(name_of(dtype)) + " GEMM", shape);
}

std::optional<OutsideDomain> GemmModel::grouped_outside(std::span<const std::int64_t> rows, std::int64_t n,
                                                        std::int64_t k, DType dtype, GemmPass pass,
                                                        GemmBackend backend) const {
  std::int64_t total = 0, active = 0;
  for (const std::int64_t m : rows) total += m, active += m > 0;
  if (active == 0) return std::nullopt;
  const GemmShape mean = turned({total / active, n, k}, pass);
  if (backend == GemmBackend::kBlockSparse)
    return OutsideDomain{fmt::format("{}: block-sparse {} product", resolved_->profile, name_of(dtype)),
                         fmt::format("was not measured, priced as a grouped one at {:.1f} % of its speed",
                                     100 * kBlockSparseRate),
                         {},
                         0};
  if (backend == GemmBackend::kLoop || backend == GemmBackend::kBatched) return outside(mean, dtype);
  return resolved_->outside(resolved_->of(dtype, true), "grouped " + std::string(name_of(dtype)) + " GEMM",
                            mean);
}

}  // namespace moesim::models

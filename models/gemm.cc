#include "models/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {
namespace {

constexpr double kUnmeasuredSigma = 0.25;

// Output tiles that the libraries choose from (CUTLASS, cuBLAS on SM80 to SM100), rows x columns.
struct Tile {
  int rows;
  int columns;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {64, 256}, {64, 128}, {64, 64}};
constexpr int kSplits[] = {1, 2, 4, 8};
constexpr double kDepth = 64;  // K is processed in steps of this many elements

std::int64_t tiles_of(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

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
  bool derived = false;
  double peak = 0;        // FLOP/s of the data sheet
  double rate = 0;        // FLOP/s of one SM on a full tile
  double small_tile = 0;  // relative speed of a tile of half the area
  double prologue = 0;    // seconds a tile takes besides its arithmetic
  double floor = 0;       // seconds of the smallest kernel
  double memory = 0;      // seconds per byte
  double power = 4;
  double bytes_in = 2;
  double bytes_out = 2;
  double factor = 1;
  double sigma = kUnmeasuredSigma;
};

}  // namespace

struct GemmModel::Resolved {
  std::array<Rates, kDTypes> rates;
  double sms = 1;
  double launch = 0;
  double spec_memory = 0;  // seconds per byte at the data sheet's bandwidth
  std::string profile;

  const Rates& of(DType dtype) const {
    const Rates& found = rates[static_cast<std::size_t>(dtype)];
    if (!found.known)
      throw InputError("profile " + profile + " has no " + std::string(name_of(dtype)) + " matrix units");
    return found;
  }

  // Best of the tile shapes for `blocks(tile)` output tiles that each reduce over `k`.
  template <class Blocks>
  double compute(const Rates& r, double k, const Blocks& blocks) const {
    double best = std::numeric_limits<double>::infinity();
    for (const Tile& tile : kTiles) {
      const double area = static_cast<double>(tile.rows) * tile.columns;
      const double speed = r.rate * std::pow(r.small_tile, std::log2(32768.0 / area));
      const double count = blocks(tile);
      for (const int split : kSplits) {
        const double depth = std::ceil(k / split / kDepth) * kDepth;
        const double waves = std::ceil(count * split / sms);
        const double time = waves * (2 * area * depth / speed + r.prologue) + (split > 1 ? r.prologue : 0);
        best = std::min(best, time);
      }
    }
    return best;
  }
};

GemmModel::GemmModel(const Profile& profile, Clocks clocks) {
  auto resolved = std::make_unique<Resolved>();
  const DeviceLimits& device = profile.device();
  resolved->sms = device.sms;
  resolved->launch = profile.launch().kernel;
  resolved->profile = profile.name();
  if (device.hbm_bandwidth <= 0) throw InputError("profile " + profile.name() + " has no hbm_bandwidth");
  resolved->spec_memory = 1 / device.hbm_bandwidth;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    Rates& r = resolved->rates[i];
    r.peak = device.peak_flops[i];
    if (r.peak <= 0) continue;
    r.known = true;
    r.bytes_in = bytes_of(dtype);
    r.bytes_out = std::max(2.0, dtype == DType::kFp32 || dtype == DType::kTf32 ? 4.0 : 2.0);
    if (dtype == DType::kFp64) r.bytes_out = 8;
    const ParameterSet* set = profile.find("gemm/" + std::string(name_of(dtype)));
    r.derived = set == nullptr;
    if (!set) set = profile.find("gemm/bf16");
    static const ParameterSet kNone;
    const ParameterSet& p = set ? *set : kNone;
    const double clock = clocks == Clocks::kSustained ? device.sustained_clock : 1;
    r.rate = r.peak * p.get("peak_share", 0.85) * clock / device.sms;
    r.small_tile = p.get("small_tile", 0.9);
    r.prologue = p.get("prologue", 1e-6);
    r.floor = p.get("floor", profile.launch().kernel_floor);
    r.memory = 1 / (device.hbm_bandwidth * p.get("memory_share", 0.85));
    r.power = p.get("overlap_power", 4);
    r.factor = p.factor;
    if (set) r.sigma = std::hypot(set->residual, set->systematic);
    if (r.derived) r.sigma = std::max(r.sigma, kUnmeasuredSigma);
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
  const double compute = resolved_->compute(r, k, [&](const Tile& tile) {
    return static_cast<double>(tiles_of(s.m, tile.rows)) * static_cast<double>(tiles_of(s.n, tile.columns));
  });
  const double memory = ((m * k + k * n) * r.bytes_in + m * n * r.bytes_out) * r.memory;
  return std::max(r.factor * (r.floor + smooth_max(compute, memory, r.power)), roofline_seconds(s, dtype));
}

Estimate GemmModel::estimate(GemmShape shape, DType dtype) const {
  return Estimate::log_normal(seconds(shape, dtype), resolved_->of(dtype).sigma);
}

double GemmModel::grouped_seconds(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k,
                                  DType dtype, GemmPass pass, GemmBackend backend) const {
  const Rates& r = resolved_->of(dtype);
  const auto shape_of = [&](std::int64_t m) {
    switch (pass) {
      case GemmPass::kForward:
        return GemmShape{m, n, k};
      case GemmPass::kDgrad:
        return GemmShape{m, k, n};
      case GemmPass::kWgrad:
        break;
    }
    return GemmShape{k, n, m};
  };
  std::int64_t total = 0, largest = 0, active = 0;
  for (const std::int64_t m : rows) {
    check(m >= 0, "row counts are not negative");
    total += m;
    largest = std::max(largest, m);
    active += m > 0;
  }
  if (total == 0 || n == 0 || k == 0) return 0;
  if (backend == GemmBackend::kLoop) {
    double sum = 0;
    for (const std::int64_t m : rows)
      if (m > 0) sum += std::max(seconds(shape_of(m), dtype), resolved_->launch);
    return sum;
  }
  // One kernel: tiles of all experts share the waves; bytes of the experts that have rows (all of them,
  // padded to the largest, in a batch).
  const bool batched = backend == GemmBackend::kBatched;
  const auto experts = static_cast<double>(batched ? static_cast<std::int64_t>(rows.size()) : active);
  const double computed = batched ? static_cast<double>(largest) * experts : static_cast<double>(total);
  const double dn = static_cast<double>(n), dk = static_cast<double>(k);
  const double flops = 2 * computed * dn * dk;
  double bytes = 0, compute = 0;
  if (pass == GemmPass::kWgrad) {
    bytes = computed * (dn + dk) * r.bytes_in + experts * dn * dk * r.bytes_out;
    // Every expert has the same output tiles but its own depth: the waves are weighted with the mean depth,
    // and the deepest expert bounds them.
    const double tiles = experts;
    const double depth = computed / experts;
    compute = resolved_->compute(r, depth, [&](const Tile& tile) {
      return tiles * static_cast<double>(tiles_of(k, tile.rows)) *
             static_cast<double>(tiles_of(n, tile.columns));
    });
  } else {
    const std::int64_t columns = pass == GemmPass::kForward ? n : k;
    const double depth = pass == GemmPass::kForward ? dk : dn;
    bytes = computed * depth * r.bytes_in + computed * static_cast<double>(columns) * r.bytes_out +
            experts * dn * dk * r.bytes_in;
    compute = resolved_->compute(r, depth, [&](const Tile& tile) {
      std::int64_t count = 0;
      if (batched)
        count = static_cast<std::int64_t>(rows.size()) * tiles_of(largest, tile.rows);
      else
        for (const std::int64_t m : rows) count += tiles_of(m, tile.rows);
      return static_cast<double>(count) * static_cast<double>(tiles_of(columns, tile.columns));
    });
  }
  const double bound = std::max(flops / r.peak, bytes * resolved_->spec_memory);
  return std::max(r.factor * (r.floor + smooth_max(compute, bytes * r.memory, r.power)), bound);
}

Estimate GemmModel::grouped_estimate(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k,
                                     DType dtype, GemmPass pass, GemmBackend backend) const {
  return Estimate::log_normal(grouped_seconds(rows, n, k, dtype, pass, backend), resolved_->of(dtype).sigma);
}

std::string GemmModel::warning(GemmShape, DType dtype) const {
  const Rates& r = resolved_->of(dtype);
  if (r.derived) return resolved_->profile + ": " + std::string(name_of(dtype)) + " GEMMs were not measured";
  return "";
}

}  // namespace moesim::models

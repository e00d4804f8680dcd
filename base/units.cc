#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 17> kBandwidthUnits{{{"B/s", 1},
                                                {"Bps", 1},
                                                {"kB/s", 1e3},
                                                {"kBps", 1e3},
                                                {"MB/s", 1e6},
                                                {"MBps", 1e6},
                                                {"GB/s", 1e9},
                                                {"GBps", 1e9},
                                                {"TB/s", 1e12},
                                                {"TBps", 1e12},
                                                {"Mbps", 1e6 / 8},
                                                {"Gbps", 1e9 / 8},
                                                {"Tbps", 1e12 / 8},
                                                {"Mb/s", 1e6 / 8},
                                                {"Gb/s", 1e9 / 8},
                                                {"Tb/s", 1e12 / 8},
                                                {"GiB/s", kKi* kKi* kKi}}};
constexpr std::array<Unit, 8> kFlopsUnits{{{"GFLOPS", 1e9},
                                           {"GFLOP/s", 1e9},
                                           {"TFLOPS", 1e12},
                                           {"TFLOP/s", 1e12},
                                           {"PFLOPS", 1e15},
                                           {"PFLOP/s", 1e15},
                                           {"FLOPS", 1},
                                           {"FLOP/s", 1}}};
constexpr std::array<Unit, 5> kTimeUnits{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"ps", 1e-12}}};
constexpr std::array<Unit, 9> kByteUnits{{{"B", 1},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"KiB", kKi},
                                          {"MiB", kKi* kKi},
                                          {"GiB", kKi* kKi* kKi},
                                          {"TiB", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 1> kFractionUnits{{{"%", 0.01}}};

template <std::size_t N>
double parse_with(std::string_view text, const std::array<Unit, N>& units, const char* expected) {
  const std::string_view trimmed = trim(text);
  if (const auto plain = parse_number(trimmed)) return *plain;
  for (const Unit& unit : units) {
    if (!trimmed.ends_with(unit.name)) continue;
    const auto number = parse_number(trim(trimmed.substr(0, trimmed.size() - unit.name.size())));
    if (number) return *number * unit.factor;
  }
  throw InputError(SourcePlace{}, in_quotes(text), expected);
}

}  // namespace

double parse_bandwidth(std::string_view text) {
  return parse_with(text, kBandwidthUnits, "a bandwidth such as 100GBps or 400Gbps");
}
double parse_seconds(std::string_view text) {
  return parse_with(text, kTimeUnits, "a time such as 2us or 1.5ms");
}
double parse_flops(std::string_view text) {
  return parse_with(text, kFlopsUnits, "a rate such as 989TFLOPS");
}
double parse_bytes(std::string_view text) {
  return parse_with(text, kByteUnits, "a size such as 64MiB or 1.5GB");
}
double parse_fraction(std::string_view text) {
  return parse_with(text, kFractionUnits, "a fraction such as 5% or 0.05");
}

TimeUnit TimeUnit::of(double largest_us) {
  const double size = std::abs(largest_us);
  if (size >= 1e6) return {"s", 1e-6, 3};
  if (size >= 1e3) return {"ms", 1e-3, 2};
  return us();
}
TimeUnit TimeUnit::us() { return {"us", 1, 1}; }
std::string TimeUnit::number(double us) const { return fmt::format("{:.{}f}", us * per_us, digits); }
std::string TimeUnit::difference(double us) const { return fmt::format("{:+.{}f}", us * per_us, digits); }
std::string TimeUnit::head(std::string_view what) const { return fmt::format("{} [{}]", what, name); }

std::string format_us(double microseconds) {
  const TimeUnit unit = TimeUnit::of(microseconds);
  return fmt::format("{} {}", unit.number(microseconds), unit.name);
}

std::string format_bytes(double bytes) {
  static constexpr std::array<std::string_view, 6> kNames{"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t at = 0;
  while (std::abs(bytes) >= 1e3 && at + 1 < kNames.size()) {
    bytes /= 1e3;
    ++at;
  }
  return at == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kNames[at]);
}

std::string format_bandwidth(double bytes_per_second) {
  return fmt::format("{:.1f} GB/s", bytes_per_second / 1e9);
}

}  // namespace moesim

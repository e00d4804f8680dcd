#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kBandwidthUnits[] = {
    {"B/s", 1},      {"Bps", 1},      {"kB/s", 1e3},   {"kBps", 1e3},   {"MB/s", 1e6},    {"MBps", 1e6},
    {"GB/s", 1e9},   {"GBps", 1e9},   {"TB/s", 1e12},  {"TBps", 1e12},  {"Mbps", 125e3},  {"Gbps", 125e6},
    {"Tbps", 125e9}, {"Mb/s", 125e3}, {"Gb/s", 125e6}, {"Tb/s", 125e9}, {"GiB/s", 0x1p30}};
constexpr Unit kFlopsUnits[] = {{"GFLOPS", 1e9},  {"GFLOP/s", 1e9},  {"TFLOPS", 1e12}, {"TFLOP/s", 1e12},
                                {"PFLOPS", 1e15}, {"PFLOP/s", 1e15}, {"FLOPS", 1},     {"FLOP/s", 1}};
constexpr Unit kTimeUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"ps", 1e-12}};
constexpr Unit kByteUnits[] = {{"B", 1},        {"kB", 1e3},     {"MB", 1e6},
                               {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
                               {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr Unit kFractionUnits[] = {{"%", 0.01}};

double parse_with(std::string_view text, std::span<const Unit> units, const char* expected) {
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
  return {"us", 1, 1};
}
std::string TimeUnit::number(double us) const { return fmt::format("{:.{}f}", us * per_us, digits); }
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

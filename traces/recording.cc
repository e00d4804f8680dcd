#include "traces/recording.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "traces/interned.h"

namespace moesim::traces {
namespace {

constexpr std::array<std::uint64_t, Decimal::kMaxDigits + 1> kPowersOfTen = [] {
  std::array<std::uint64_t, Decimal::kMaxDigits + 1> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = 10 * powers[i - 1];
  return powers;
}();

}  // namespace

Decimal::Decimal(std::uint64_t mantissa, int digits)
    : mantissa_(mantissa & kMaxMantissa), digits_(digits & 15) {
  check(mantissa <= kMaxMantissa && digits >= 0 && digits <= kMaxDigits, "a decimal number in range");
}

Decimal Decimal::from_ms(double value) {
  if (!(value >= 0.0) || value > 1e15)
    throw InputError("found the time " + std::to_string(value) + " ms, expected 0 to 1e15 ms");
  const auto hundredths = static_cast<std::uint64_t>(std::llround(value * 100.0));
  return hundredths % 10 == 0 ? Decimal(hundredths / 10, 1) : Decimal(hundredths, 2);
}

Decimal Decimal::from_ns(std::int64_t ns) {
  return {static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns)), 6};
}

std::optional<Decimal> Decimal::parse(std::string_view text) {
  std::uint64_t mantissa = 0;
  int digits = -1;  // of the fraction; -1 before the point
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && digits < 0 && i > 0) {
      digits = 0;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    if (digits < 0 && i == 1 && text[0] == '0') return std::nullopt;
    mantissa = 10 * mantissa + static_cast<std::uint64_t>(c - '0');
    if (mantissa > kMaxMantissa) return std::nullopt;
    if (digits >= 0 && ++digits > kMaxDigits) return std::nullopt;
  }
  if (text.empty() || digits == 0) return std::nullopt;
  return Decimal(mantissa, std::max(digits, 0));
}

double Decimal::value() const {
  // Exact integers divided once: the nearest double to the written number (up to 2^53).
  return static_cast<double>(mantissa_) / static_cast<double>(kPowersOfTen[digits_]);
}

std::string Decimal::str() const {
  std::string text = std::to_string(mantissa());
  const auto fraction = static_cast<std::size_t>(digits());
  if (fraction == 0) return text;
  if (text.size() <= fraction) text.insert(0, fraction + 1 - text.size(), '0');
  text.insert(text.size() - fraction, 1, '.');
  return text;
}

std::string_view Name::view() const { return text_ == nullptr ? std::string_view() : text_->text; }

bool Shape::is_none() const { return shape_ != nullptr && shape_->none; }

std::span<const std::int64_t> Shape::dims() const {
  return shape_ == nullptr ? std::span<const std::int64_t>() : shape_->dims;
}

std::int64_t Shape::elements() const { return shape_ == nullptr ? 0 : shape_->elements; }

std::string Shape::str() const { return shape_ == nullptr ? std::string() : std::string(shape_->text); }

bool operator==(Shape a, Shape b) {
  if (a.shape_ == b.shape_) return true;
  return a.present() && b.present() && a.shape_->text == b.shape_->text;
}

void RankRecording::add(Operation operation, std::span<const SubOperation> subs) {
  operation.first_sub = static_cast<std::uint32_t>(sub_operations.size());
  operation.sub_count = static_cast<std::uint32_t>(subs.size());
  sub_operations.insert(sub_operations.end(), subs.begin(), subs.end());
  operations.push_back(operation);
}

bool is_fused_pair(std::span<const Operation> operations, std::size_t index) {
  if (index + 1 >= operations.size()) return false;
  const Operation& send = operations[index];
  const Operation& receive = operations[index + 1];
  const bool opposite = (send.name == "send_forward" && receive.name == "recv_backward") ||
                        (send.name == "send_backward" && receive.name == "recv_forward");
  // Stamps are late, durations exact. Two separate calls are stamped at least the second's duration apart;
  // closer stamps belong to one fused call.
  constexpr double kRoundedMs = 0.011, kLateMs = 5.0;
  const double apart = std::abs(send.timestamp.value() - receive.timestamp.value());
  return opposite && !send.timestamp.is_placeholder() &&
         std::abs(send.duration.value() - receive.duration.value()) <= kRoundedMs &&
         (apart == 0 || (apart <= kLateMs && apart < 0.9 * receive.duration.value()));
}

const RankRecording* Recording::find(std::int32_t rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                      [](const RankRecording& a, std::int32_t b) { return a.rank < b; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::size_t Recording::operation_count() const {
  std::size_t count = 0;
  for (const RankRecording& rank : ranks) count += rank.operations.size();
  return count;
}

std::optional<int> dtype_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBytes[] = {
      {"torch.bfloat16", 2}, {"torch.float16", 2}, {"torch.float32", 4},       {"torch.float64", 8},
      {"torch.bool", 1},     {"torch.uint8", 1},   {"torch.int8", 1},          {"torch.int16", 2},
      {"torch.int32", 4},    {"torch.int64", 8},   {"torch.float8_e4m3fn", 1}, {"torch.float8_e5m2", 1},
  };
  for (const auto& [name, bytes] : kBytes)
    if (name == dtype) return bytes;
  return std::nullopt;
}

}  // namespace moesim::traces

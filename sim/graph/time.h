// Simulated time: a signed 64-bit count of picoseconds, never floating point (range: 106 days).
#pragma once

#include <compare>
#include <cstdint>

namespace moesim::sim {

// The range of simulated clocks.

// Largest value of a clock (26 days), so that sums of clocks and durations never leave 64 bits.
inline constexpr std::int64_t kLastPs = std::int64_t{1} << 61;
// Throws InputError for a clock beyond kLastPs.
void check_clock(std::int64_t ps);

class Time {
 public:
  constexpr Time() = default;

  static constexpr Time from_ps(std::int64_t ps) { return Time(ps); }
  // Rounded to the nearest picosecond, halves away from zero. Aborts on NaN or outside the range: check user
  // input before.
  static Time from_us(double us);
  static Time from_seconds(double seconds);

  constexpr std::int64_t ps() const { return ps_; }
  constexpr double us() const { return static_cast<double>(ps_) * 1e-6; }
  constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }

  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator-() const { return Time(-ps_); }
  constexpr Time& operator+=(Time other) { return ps_ += other.ps_, *this; }
  constexpr Time& operator-=(Time other) { return ps_ -= other.ps_, *this; }
  friend constexpr Time operator+(Time a, Time b) { return Time(a.ps_ + b.ps_); }
  friend constexpr Time operator-(Time a, Time b) { return Time(a.ps_ - b.ps_); }
  friend constexpr Time operator*(Time a, std::int64_t n) { return Time(a.ps_ * n); }
  friend constexpr Time operator*(std::int64_t n, Time a) { return a * n; }

  static const Time kZero;
  static const Time kMax;

 private:
  constexpr explicit Time(std::int64_t ps) : ps_(ps) {}

  std::int64_t ps_ = 0;
};

inline constexpr Time Time::kZero = Time::from_ps(0);
inline constexpr Time Time::kMax = Time::from_ps(INT64_MAX);

}  // namespace moesim::sim

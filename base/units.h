// Parses and formats numbers with units: "100GBps", "400Gbps", "2us", "64MiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesim {

inline constexpr double kUsPerSecond = 1e6, kUsPerMs = 1e3;

// Parse a plain number, or a number with a unit of the requested kind. Throw InputError naming the text
// found. Decimal prefixes are powers of 1000, binary ones (KiB, MiB, ...) of 1024.
double parse_bandwidth(std::string_view text);  // bytes per second; GBps and GB/s are bytes, Gbps is bits
double parse_seconds(std::string_view text);    // s, ms, us, ns, ps
double parse_flops(std::string_view text);      // FLOP/s; TFLOPS and TFLOP/s are the same
double parse_bytes(std::string_view text);      // B, kB, MB, GB, KiB, MiB, GiB
double parse_fraction(std::string_view text);   // "5%" or "0.05"

// The most readable unit for a number of microseconds; a table uses that of its largest time.
struct TimeUnit {
  const char* name;
  double per_us;
  int digits;  // decimals

  static TimeUnit of(double largest_us);
  std::string number(double us) const;
  std::string head(std::string_view what) const;  // "step [ms]"
};

// Format for people: "1.50 ms", "12.3 us"; "1.25 GB" (10^9 bytes); "46.1 GB/s".
std::string format_us(double microseconds);
std::string format_bytes(double bytes);
std::string format_bandwidth(double bytes_per_second);

}  // namespace moesim

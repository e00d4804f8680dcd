// The time of one collective inside a scale-up domain over its size and rank count (law "size-curve").
//
//   T(n, S) = latency + latency_per_rank (n-1) + E(n, S)
//
// S is the nccl-tests "size". E, the excess over the latency, grows with S and is linear in it between knots
// (regimes in which NCCL keeps one algorithm and protocol). Below the first knot it is constant; beyond the
// last it continues with the bandwidth of the last regime. E was fitted at a few rank counts. A ring takes
// n-1 steps, each with a piece of S/n, and an exchange sends n-1 such pieces; protocols change at sizes of
// the piece. So between and beyond the counts E is linear in n *at the same piece*: E(4, S) lies a third of
// the way from E(2, S/2) to E(8, 2 S). (Four GPUs of a GB200 from two and eight of a B200: 2 to 4 % off; at
// the same S 14 %.)
#pragma once

#include <array>
#include <cstddef>

#include "models/hardware/profile.h"

namespace moesim::models {

struct SizeCurve {
  static constexpr std::size_t kMostKnots = 32;
  static constexpr std::size_t kMostCounts = 8;

  double latency = 0;
  double latency_per_rank = 0;
  double factor = 1;           // drawn error of the law at rank counts that were not measured
  double measured_factor = 1;  // at measured rank counts: a quarter of it
  std::size_t knots = 0;
  std::size_t counts = 0;
  std::array<double, kMostKnots> size{};
  std::array<double, kMostCounts> rank_count{};  // ascending
  std::array<std::array<double, kMostKnots>, kMostCounts> excess{};

  // Reads "latency", "latency_per_rank" and "excess/<ranks>/<bytes>" of a set. Throws InputError naming `key`
  // where a rank count lacks a knot.
  static SizeCurve from(const ParameterSet& set, const std::string& key);

  bool measured(double ranks) const;
  double factor_at(double ranks) const {
    return factor == 1 ? 1 : measured(ranks) ? measured_factor : factor;
  }
  double floor(double ranks) const { return factor_at(ranks) * (latency + latency_per_rank * (ranks - 1)); }
  // `slower`: the measured links' bandwidth over that of these links. Messages behave like ones of `slower` times
  // their size; where the excess rises faster than the size, links that are r times as fast save no more than r.
  double excess_at(double ranks, double bytes, double slower = 1) const;
  double seconds(double ranks, double bytes, double slower = 1) const {
    return floor(ranks) + excess_at(ranks, bytes, slower);
  }

 private:
  double excess_as_measured(double ranks, double bytes) const;
  double excess_of(std::size_t count, double bytes) const;
};

}  // namespace moesim::models

// Flows over shared links with max-min fair rates: the solver under timing `flow`.
//
// A flow has one rate x and loads each link it uses with factor * x; no link is loaded beyond its capacity,
// and the rates are max-min fair: none can grow without a smaller or equal one shrinking. A factor above one
// stands for several equal flows that are simulated as one, or for the parts of a collective that advance in
// step.
//
// Rates are solved lazily, and only for the flows that are connected to a change through shared links. A link
// that a single flow uses connects nothing: it is a limit of that flow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/time.h"

namespace moesim::sim {

struct LinkShare {
  std::uint32_t link = 0;
  double factor = 1.0;
};

class FlowNetwork {
 public:
  using Slot = std::uint32_t;  // of a flow, until it has ended

  // `capacities` in bytes per second, positive. A flow ends when less than a byte is left of it.
  //
  // With `window` zero rates are exact at every instant. With a positive window (a fraction, 0.02 is a good
  // one) all starts and ends of flows within `window` x (mean remaining time of the running flows) share one
  // solution: flows that start in between get the fair share of their links as of the last solution, and what
  // ended flows no longer need is shared out at the next one. Meant for very many flows of unequal sizes,
  // where every instant would otherwise change every rate.
  explicit FlowNetwork(std::span<const double> capacities, double window = 0.0);

  // Starts a flow of `bytes` (at least 0) at `now`, which must not lie before earlier calls' times. `shares`
  // names each link once. `cap` limits the rate (bytes per second; 0: no limit). A flow needs a link or a
  // cap.
  Slot start(Time now, std::span<const LinkShare> shares, double bytes, double cap, std::uint32_t tag);

  void set_cap(Time now, Slot flow, double cap);

  // When the next flow ends if nothing starts before; Time::kMax while there is none.
  Time next_end();

  // Ends the flows that are due at `now` and appends their tags, in the order of their slots.
  void end_due(Time now, std::vector<std::uint32_t>& tags);

  std::size_t running() const { return running_; }
  double rate(Slot flow) const { return rate_[flow] * 1e12; }  // bytes per second, as of the last next_end()
  // Bytes that each link has carried for flows that have ended.
  std::span<const double> carried() const { return carried_; }
  std::uint64_t solved_flows() const { return solved_flows_; }  // a measure of the work done so far

 private:
  struct LinkEntry {
    Slot flow;
    std::uint32_t use;  // index into the use_ arrays
  };

  Slot take_slot(std::size_t uses);
  void attach(Slot flow);
  void detach(Slot flow);
  void solve();
  void collect();
  void fill();
  void fix(Slot flow, double rate);
  void set_rate(Slot flow, double rate);
  void settle(Slot flow, Time now);
  void schedule(Slot flow);
  void refresh_tree();
  double own_limit(Slot flow) const;

  // Links.
  std::vector<double> capacity_;  // bytes per ps
  std::vector<std::vector<LinkEntry>> users_;
  std::vector<double> carried_;
  std::vector<std::uint32_t> link_mark_;
  std::vector<double> left_;         // capacity not given away yet, while solving
  std::vector<double> weight_;       // sum of the factors of flows without a rate yet, while solving
  std::vector<std::uint32_t> open_;  // how many such flows
  std::vector<double> level_;        // windowed: fair share of a flow as of the last solution

  // Flows by slot.
  std::vector<double> rate_;       // bytes per ps
  std::vector<double> remaining_;  // bytes at updated_
  std::vector<double> bytes_;
  std::vector<double> cap_;
  std::vector<Time> updated_;
  std::vector<std::uint32_t> tag_;
  std::vector<std::uint32_t> flow_mark_;
  std::vector<std::uint32_t> use_begin_;
  std::vector<std::uint32_t> use_count_;
  std::vector<std::uint8_t> alive_;

  // Links used, a range per slot.
  std::vector<std::uint32_t> use_link_;
  std::vector<double> use_factor_;
  std::vector<std::uint32_t> use_place_;  // in users_ of the link

  std::vector<std::vector<Slot>> free_;  // slots by number of links

  // A tournament over the ends of all slots; leaf i at leaves_ + i.
  std::size_t leaves_ = 0;
  std::vector<std::int64_t> tree_;
  std::vector<Slot> rescheduled_;

  std::vector<std::uint32_t> dirty_;  // links
  std::vector<Slot> dirty_flows_;     // flows whose own limit changed
  std::vector<std::uint32_t> links_;  // of the component being solved
  std::vector<Slot> flows_;
  std::vector<std::pair<double, std::uint32_t>> heap_;
  std::vector<std::pair<double, Slot>> limits_;
  std::vector<Slot> fixing_;
  std::uint32_t mark_ = 0;
  Time now_;
  std::size_t running_ = 0;
  std::uint64_t solved_flows_ = 0;

  double window_ = 0;
  Time window_end_;
  std::vector<Slot> active_;                 // windowed: running flows
  std::vector<std::uint32_t> active_place_;  // windowed: place of a slot in active_
};

}  // namespace moesim::sim

// Flows over shared links with max-min fair rates: the solver of timing `flow`.
//
// A flow has one rate x and loads each link on its path with factor * x; no link is loaded beyond its
// capacity, and the rates are max-min fair: none can grow without a smaller or equal one shrinking. A factor
// above one stands for several equal flows simulated as one, or for the parts of a collective that advance in
// step.
//
// Rates are solved lazily, and only for flows connected to a change through shared links. A link with a
// single flow connects nothing: it is a limit of that flow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/graph/time.h"

namespace moesim::sim {

struct LinkShare {
  std::uint32_t link = 0;
  double factor = 1.0;
};

class FlowNetwork {
 public:
  using Slot = std::uint32_t;  // of a flow, until it ends

  // `capacities` in bytes per second, positive.
  explicit FlowNetwork(std::span<const double> capacities);

  // Starts a flow of `bytes` (at least 0) at `now`, which must not lie before earlier calls' times. `shares`
  // names each link once. `cap` limits the rate (bytes per second; 0: no limit). A flow needs a link or a
  // cap.
  Slot start(Time now, std::span<const LinkShare> shares, double bytes, double cap, std::uint32_t tag);

  void set_cap(Time now, Slot flow, double cap);

  // Returns when the next flow ends if nothing starts before; Time::kMax without one. A flow ends when less
  // than a byte remains.
  Time next_end();

  // Ends the flows due at `now` and appends their tags, in slot order.
  void end_due(Time now, std::vector<std::uint32_t>& tags);

  std::size_t running() const { return running_; }
  double rate(Slot flow) const {
    return flows_[flow].rate * 1e12;
  }  // bytes per second, as of the last next_end()
  double carried(std::uint32_t link) const {
    return links_[link].carried;
  }  // bytes, by flows that have ended

 private:
  struct User {
    Slot flow;
    std::uint32_t use;  // index into uses_
  };

  struct Link {
    double capacity;  // bytes per ps
    double load = 0;  // of its users
    std::vector<User> users;
    std::uint32_t mark = 0;
    bool dirty = false;
    // While solving:
    bool whole = false;        // all users are solved, not only those reached otherwise
    std::uint32_t solved = 0;  // users that are solved
    std::uint32_t open = 0;    // solved users without a rate yet
    double weight = 0;         // sum of the factors of solved users
    double offer = 0;          // capacity that the other users leave to solved users
    double open_weight = 0;    // the same for open users
    double left = 0;
    double carried = 0;
  };

  struct Use {
    std::uint32_t link;
    std::uint32_t place;  // in Link::users
    double factor;
    double limit;  // rate limit of the flow by this link alone
    bool alone;    // the link has no other user; its load is then not kept
  };

  struct Flow {
    double rate = 0;       // bytes per ps
    double remaining = 0;  // bytes at `updated`
    double bytes = 0;
    double cap = 0;
    Time updated;
    double next_rate = 0;     // while solving
    std::uint32_t mark = 0;   // of the solution that it belongs to
    std::uint32_t fixed = 0;  // of the filling that set its rate
    std::uint32_t tag = 0;
    std::uint32_t use_begin = 0;
    std::uint32_t use_end = 0;
  };

  Slot take_slot(std::size_t uses);
  void touch(std::uint32_t link);
  void detach(Slot flow);
  void solve();
  void reach_link(std::uint32_t link, bool whole);
  void reach_flow(Slot flow);
  void expand();
  void fill();
  bool drag_others();
  bool fix_limited(double level);
  void fix_users(std::uint32_t link, double level);
  void fill_by_rounds(std::size_t rounds);
  void fill_by_heap();
  void fix(Slot flow, double rate);
  void set_rate(Flow& flow, Slot slot, double rate);
  void refresh_tree();

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<Use> uses_;                // a range per slot
  std::vector<std::vector<Slot>> free_;  // slots by number of links

  // A tournament tree over the ends of all slots; leaf i at leaves_ + i.
  std::size_t leaves_ = 0;
  std::vector<std::int64_t> tree_;
  std::vector<Slot> rescheduled_;

  std::vector<std::uint32_t> dirty_links_;  // saturated links that a flow has left or joined
  std::vector<Slot> dirty_flows_;           // new, or with another limit
  // State of the solver.
  std::vector<std::uint32_t> reached_links_;
  std::vector<Slot> reached_flows_;
  std::vector<std::uint32_t> whole_links_;                // links whose users are still to be reached
  std::vector<std::pair<double, std::uint32_t>> shares_;  // links by fair share; a heap when there are many
  std::vector<std::pair<double, std::uint32_t>>
      tight_;                                    // links that bound some of their users, with their share
  std::vector<std::pair<double, Slot>> limits_;  // of the flows; sorted on first use
  std::size_t next_limit_ = 0;
  double lowest_limit_ = 0;
  std::vector<std::uint32_t> stack_;
  std::uint32_t mark_ = 0;
  std::uint32_t filling_ = 0;
  Time now_;
  std::size_t running_ = 0;
};

}  // namespace moesim::sim

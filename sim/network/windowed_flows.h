// Max-min fair flows for very many flows of unequal sizes, where every start and end would change every rate:
// rates are updated in windows of time instead of at every instant.
//
// A window is a fraction of the mean remaining time of the running flows. Within it a new flow takes the fair
// share of its links at the window's start, and the capacity of ended flows stays unused. Each link accounts
// for the difference between its flows' use and its capacity, and the next window returns it, so that a
// saturated link carries its capacity on average. The fair shares follow by relaxation: each link divides the
// capacity left by flows bound elsewhere among the others, from the shares of the previous window. Ends of
// flows are exact for their rates; the error against FlowNetwork falls with the window (docs/reliability.md
// has measurements).
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/graph/time.h"
#include "sim/network/flows.h"

namespace moesim::sim {

class WindowedFlowNetwork {
 public:
  // `window` in (0, 1).
  WindowedFlowNetwork(std::span<const double> capacities, double window);

  // As in FlowNetwork.
  std::uint32_t start(Time now, std::span<const LinkShare> shares, double bytes, double cap,
                      std::uint32_t tag);
  void set_cap(Time now, std::uint32_t flow, double cap);
  // Returns when a flow ends or a window closes.
  Time next_end();
  void end_due(Time now, std::vector<std::uint32_t>& tags);
  double carried(std::uint32_t link) const { return links_[link].carried; }

 private:
  struct Use {
    std::uint32_t link;
    float factor;
  };

  struct Due {
    Time when;
    std::uint32_t flow;
    auto operator<=>(const Due&) const = default;
  };

  struct Flow {
    double rate = 0;
    double remaining = 0;  // bytes at the start of the window, or at the flow's own start
    double bytes = 0;
    double cap = 0;
    Time since;
    std::uint32_t tag = 0;
    std::uint32_t use_begin = 0;
    std::uint16_t use_count = 0;
    bool running = false;
  };

  struct Link {
    double capacity = 0;   // bytes per ps
    double share = 0;      // fair share of a flow
    double offered = 0;    // capacity in this window
    double load = 0;       // of the running flows
    double bound = 0;      // sum of the factors of running flows that this link bounds
    double elsewhere = 0;  // sum of the rates of running flows bound elsewhere
    double largest = 0;    // largest rate among them
    std::uint32_t users = 0;
    double moment = 0;   // changes of the load in this window, times their time after its start
    double account = 0;  // bytes that the link owes (positive) or has carried too much
    double carried = 0;
  };

  void open_window();
  double relax();
  void settle();
  void change_load(const Flow& flow, double rate);
  std::span<const Use> uses_of(const Flow& flow) const {
    return {uses_.data() + flow.use_begin, flow.use_count};
  }

  std::vector<Link> links_;

  std::vector<Flow> flows_;
  std::vector<Use> uses_;
  std::vector<std::vector<std::uint32_t>> free_;  // by number of links

  std::vector<std::uint32_t> active_;  // flows of this window in start order, ended ones included
  std::vector<Due> due_;               // a heap: flows that end within this window
  std::size_t live_ = 0;
  std::size_t started_ = 0;  // in this window
  bool stale_ = false;       // a new window must be opened before time advances
  Time window_start_;
  Time window_end_;
  Time now_;
  double window_;
};

}  // namespace moesim::sim

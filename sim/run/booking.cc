#include "sim/run/booking.h"

#include <algorithm>
#include <array>

namespace moesim::sim {

namespace {

struct Edge {
  Time when;
  bool opens;
  Activity activity;
  Category category;
  std::uint32_t order;
};

// The activities in progress at an instant.
class Open {
 public:
  void change(const Edge& edge) {
    auto& same = of_[static_cast<std::size_t>(edge.activity)];
    if (edge.opens) {
      same.emplace_back(edge.order, edge.category);
      return;
    }
    same.erase(std::find_if(same.begin(), same.end(), [&](const auto& a) { return a.first == edge.order; }));
  }
  bool any(Activity activity) const { return !of_[static_cast<std::size_t>(activity)].empty(); }
  Category first(Activity activity) const { return of_[static_cast<std::size_t>(activity)].front().second; }

 private:
  std::array<std::vector<std::pair<std::uint32_t, Category>>, kActivities> of_;  // in start order
};

void add(Time span, const Open& open, RankSummary& summary) {
  const auto booked = [&](Category category, Time& sum) {
    summary.breakdown[static_cast<std::size_t>(category)] += span;
    sum += span;
  };
  if (open.any(Activity::computing)) return booked(open.first(Activity::computing), summary.busy);
  if (open.any(Activity::transferring))
    return booked(open.first(Activity::transferring), summary.exposed_comm);
  if (open.any(Activity::straggling)) return booked(Category::straggler_wait, summary.straggler_wait);
  if (open.any(Activity::host) && !open.any(Activity::peer))
    return booked(open.first(Activity::host), summary.host);
  booked(Category::bubble, summary.bubble);
}

}  // namespace

void book(std::vector<BusySpan>& spans, Time total, RankSummary& summary) {
  std::vector<Edge> edges;
  edges.reserve(2 * spans.size());
  for (const BusySpan& s : spans) {
    if (s.to <= s.from) continue;
    edges.push_back({s.from, true, s.activity, s.category, s.order});
    edges.push_back({s.to, false, s.activity, s.category, s.order});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    if (a.when != b.when) return a.when < b.when;
    if (a.opens != b.opens) return b.opens;
    return a.order < b.order;
  });
  Open open;
  Time now;
  for (const Edge& edge : edges) {
    if (edge.when > now) {
      add(std::min(edge.when, total) - now, open, summary);
      now = std::min(edge.when, total);
    }
    open.change(edge);
  }
  if (total > now) add(total - now, open, summary);
}

}  // namespace moesim::sim

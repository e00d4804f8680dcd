#include "sim/run/booking.h"

#include <algorithm>
#include <array>

namespace moesim::sim {

namespace {

// Parts of a rank's time, apart from each other and in order.
class Covered {
 public:
  struct Part {
    Time from, to;
  };

  // Adds a part that begins no earlier than those before it.
  void add(Part part) {
    if (!parts_.empty() && parts_.back().to >= part.from)
      parts_.back().to = std::max(parts_.back().to, part.to);
    else
      parts_.push_back(part);
  }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
};

void add(Time span, Activity activity, Category category, RankSummary& summary) {
  const auto booked = [&](Category as, Time& sum) {
    summary.breakdown[static_cast<std::size_t>(as)] += span;
    sum += span;
  };
  switch (activity) {
    case Activity::computing:
      return booked(category, summary.busy);
    case Activity::transferring:
      return booked(category, summary.exposed_comm);
    case Activity::straggling:
      return booked(Category::straggler_wait, summary.straggler_wait);
    case Activity::peer:
      return booked(Category::bubble, summary.bubble);
    case Activity::host:
      return booked(category, summary.host);
  }
}

}  // namespace

void book(std::span<const BusySpan> spans, Time total, RankSummary& summary) {
  std::array<std::vector<BusySpan>, kActivities> all;
  for (const BusySpan& span : spans)
    if (span.to > span.from) all[static_cast<std::size_t>(span.activity)].push_back(span);
  Covered covered;  // by activities of higher priority
  for (std::vector<BusySpan>& same : all) {
    if (same.empty()) continue;
    const auto earlier = [](const BusySpan& a, const BusySpan& b) {
      return a.from != b.from ? a.from < b.from : a.order < b.order;
    };
    // As a rule they are in order already.
    if (!std::is_sorted(same.begin(), same.end(), earlier)) std::sort(same.begin(), same.end(), earlier);
    Covered with;
    std::size_t next = 0;  // part that was covered
    Time now;
    for (const BusySpan& span : same) {
      now = std::max(now, span.from);
      const Time end = std::min(span.to, total);
      while (now < end) {
        for (; next < covered.parts().size() && covered.parts()[next].from <= now; ++next) {
          with.add(covered.parts()[next]);
          now = std::max(now, covered.parts()[next].to);
        }
        const Time to = next < covered.parts().size() ? std::min(end, covered.parts()[next].from) : end;
        if (to <= now) continue;
        add(to - now, span.activity, span.category, summary);
        with.add({now, to});
        now = to;
      }
    }
    for (; next < covered.parts().size(); ++next) with.add(covered.parts()[next]);
    covered = std::move(with);
  }
  Time idle = total;
  for (const Covered::Part& part : covered.parts()) idle -= part.to - part.from;
  add(idle, Activity::peer, Category::bubble, summary);
}

}  // namespace moesim::sim

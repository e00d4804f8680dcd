// Strong 32-bit indices: a rank cannot be passed where a task is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace moesim::sim {

template <class Tag>
class Id {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  constexpr Id() = default;  // refers to nothing
  constexpr explicit Id(std::uint32_t value) : value_(value) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr bool valid() const { return value_ != kNone; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::uint32_t value_ = kNone;
};

template <class Tag>
constexpr std::size_t index(Id<Tag> id) {
  return id.value();
}

using RankId = Id<struct RankTag>;      // a GPU and the process that drives it
using StreamId = Id<struct StreamTag>;  // an in-order queue of a rank
using TaskId = Id<struct TaskTag>;
using GroupId = Id<struct GroupTag>;            // an ordered list of ranks, a communicator
using WorkId = Id<struct WorkTag>;              // something that takes time, priced once per run
using MatrixId = Id<struct MatrixTag>;          // row counts per (sender, receiver) of a group
using PiecesId = Id<struct PiecesTag>;          // bytes per member of a group
using CollectiveId = Id<struct CollectiveTag>;  // one instance of a collective
using LabelId = Id<struct LabelTag>;            // a name with a category
using LinkId = Id<struct LinkTag>;              // a directed link of a fabric

}  // namespace moesim::sim

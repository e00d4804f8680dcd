#include "layer/world.h"

namespace moesim::bench {

World::World(LayerDevice& device, const LayerShape& shape) : device_(device), shape_(shape) {
  for (int r = 0; r < shape.ep; ++r) ranks_.push_back(std::make_unique<RankLayer>(device, shape, r));
}

void World::step() {
  const std::size_t count = ranks_.front()->operations().size();
  for (std::size_t i = 0; i < count; ++i) {
    const Operation& first = ranks_.front()->operations()[i];
    if (first.transfer)
      exchange(first.transfer->kind);
    else
      for (auto& rank : ranks_) rank->operations()[i].run();
  }
  device_.wait();
}

void World::exchange(Transfer::Kind kind) {
  using Kind = Transfer::Kind;
  if (kind == Kind::kLoss) return;  // every rank keeps its own: nothing is computed from the mean
  const std::size_t row = static_cast<std::size_t>(shape_.hidden) * size_of(device_.element());
  const std::size_t starts = (static_cast<std::size_t>(shape_.experts) + 1) * sizeof(int);
  for (std::size_t s = 0; s < ranks_.size(); ++s) {
    RankLayer& sender = *ranks_[s];
    std::size_t at = 0;  // in the sender's rows, ordered by the rank of their expert
    for (std::size_t d = 0; d < ranks_.size(); ++d) {
      RankLayer& owner = *ranks_[d];
      if (kind == Kind::kCounts) {
        device_.copy(owner.all_starts.as<char>() + s * starts, sender.starts.get(), starts);
        continue;
      }
      std::size_t there = 0;  // in the receiver's rows, ordered by sender
      for (std::size_t before = 0; before < s; ++before)
        there += static_cast<std::size_t>(owner.plan().received[before]);
      const std::size_t rows = static_cast<std::size_t>(sender.plan().sent[d]);
      const auto copy = [&](void* to, std::size_t to_row, const void* from, std::size_t from_row) {
        device_.copy(static_cast<char*>(to) + to_row * row, static_cast<const char*>(from) + from_row * row,
                     rows * row);
      };
      if (kind == Kind::kDispatch) copy(owner.arrived, there, sender.sent, at);
      if (kind == Kind::kCombine) copy(sender.returned, at, owner.leaving, there);
      if (kind == Kind::kCombineBackward) copy(owner.d_leaving, there, sender.d_returned, at);
      if (kind == Kind::kDispatchBackward) copy(sender.d_sent, at, owner.d_arrived, there);
      at += rows;
    }
  }
}

}  // namespace moesim::bench

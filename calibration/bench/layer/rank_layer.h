// One rank's share of a mixture-of-experts layer: its tokens, its experts, and every operation of a training
// step (forward, loss, backward, gradients, optimizer) between the transfers to other ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layer/layer_device.h"
#include "layer/shape.h"

namespace moesim::bench {

// Rows that a rank sends and receives, from the choices of every rank's router.
struct RowExchange {
  std::vector<int> sent;      // rows to each rank
  std::vector<int> received;  // rows from each rank
  std::vector<int>
      // first row of each local expert in the received rows ordered by expert; the last is their number
      expert_starts;
  // Pieces of one expert and sender: start of each by expert (ascending), and start of arrival by sender.
  std::vector<int> by_expert, by_sender;
  int rows() const { return expert_starts.back(); }
};

// starts[r]: first row of each expert in the rows that rank r sends, experts + 1 numbers.
RowExchange plan_rows(const LayerShape& shape, int rank, const std::vector<std::vector<int>>& starts);

// A collective as named in a recording.
struct Transfer {
  enum class Kind { kCounts, kDispatch, kCombine, kCombineBackward, kDispatchBackward, kLoss };
  Kind kind;
  std::string source, comm, group, function;
};

struct Operation {
  std::string step;  // "forward_step", ...: its line in the recording
  std::string name;
  std::function<void()> run;  // empty for a transfer, which the world performs
  std::optional<Transfer> transfer;
  std::function<double()> flops = {};  // for matrix products
};

// Weights with their gradient and the optimizer's state.
struct Parameter {
  std::size_t elements;
  Memory weights, gradient, master, mean, square;
  bool float_gradient;
};

class RankLayer {
 public:
  RankLayer(LayerDevice& device, const LayerShape& shape, int rank);

  const LayerShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  // In order and equal on every rank.
  const std::vector<Operation>& operations() const { return operations_; }
  // Returns rows and columns of a transfer's data from this rank, and the bytes of one number.
  std::vector<int> shape_of(Transfer::Kind kind) const;

  // The optimizer's learning rate: 0 keeps the weights, so that every step computes the same.
  float rate = 0;

  // Buffers that the world exchanges and the check reads. With one rank nothing is exchanged or sorted by
  // expert, and `arrived` and `rows` are `sent`; likewise on the return.
  Memory x, target, bias;
  Parameter gate, up,
      down;  // [hidden, experts], local experts x [hidden, 2 ffn], local experts x [ffn, hidden]
  Memory logits, chosen, weights, starts, all_starts, y, d_y, loss, d_weights, d_logits, dx;
  void *sent = nullptr, *arrived = nullptr, *rows = nullptr, *hidden = nullptr, *act = nullptr,
       *out = nullptr, *leaving = nullptr, *returned = nullptr;
  void *d_returned = nullptr, *d_leaving = nullptr, *d_out = nullptr, *d_act = nullptr, *d_hidden = nullptr,
       *d_rows = nullptr, *d_arrived = nullptr, *d_sent = nullptr;
  const RowExchange& plan() const { return plan_; }

 private:
  Parameter parameter(std::size_t elements, bool float_gradient);
  void fill();
  void make_plan();
  void make_room();
  void list_forward();
  void list_backward();
  void list_experts_backward();
  void list_optimizer();
  void add(const char* step, const char* name, std::function<void()> run, std::function<double()> flops = {});
  void add_transfer(const char* step, Transfer transfer);
  void experts(Pass pass, void* x, void* w, void* y, int n, int k);
  void sort_pieces(const void* from, void* to, bool back);
  void optimize(Parameter& parameter);

  LayerDevice& device_;
  const LayerShape shape_;
  const int rank_;
  std::vector<Operation> operations_;
  RowExchange plan_;
  Memory sorted_, order_, places_, piece_starts_, piece_map_, losses_;
  std::vector<Memory> rooms_;  // of sent, arrived, ...
};

// Returns a number for each random stream, from its kind and its rank or expert.
unsigned stream(const LayerShape& shape, unsigned kind, int index);

}  // namespace moesim::bench

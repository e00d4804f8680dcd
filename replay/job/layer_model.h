// One MoE layer of a job from its dispatcher's program, cut at the collectives like a recording: the modelled
// time of every segment between calls, and of every call.
#pragma once

#include <memory>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "replay/job/job_model.h"
#include "replay/recording/steps.h"

namespace moesim::replay {

enum class Pass : std::uint8_t { forward, backward };

class LayerModel {
 public:
  // Throws InputError when the dispatcher is illegal for the job. `job` must outlive the model.
  LayerModel(const JobModel& job, const models::DispatcherSpec& dispatcher, const models::Cluster& cluster);
  ~LayerModel();
  LayerModel(LayerModel&&) noexcept;

  const JobModel& job() const;
  std::size_t calls(Pass pass) const;  // there is one more segment

  // The operations of a segment: those of the experts, or the dispatcher's own.
  enum class Part : std::uint8_t { experts, dispatcher };
  bool has_experts(Pass pass, std::size_t segment) const;
  int launches(Pass pass, std::size_t segment, Part part) const;

  // Returns microseconds on the expert rank when every launch takes the host `launch_us`: operations start
  // after their launch and the previous operation; a synchronisation blocks the host.
  double segment_us(Pass pass, std::size_t segment, Part part, int expert_rank, double launch_us) const;
  // Likewise for the part that is equal for all dispatchers, without its calls: norms, attention and router
  // of a layer; the embedding at the model's start; norm, output head and loss at its end.
  enum class Dense : std::uint8_t { layer, embedding, head };
  double dense_us(Dense part, Pass pass, double launch_us) const;
  // Returns its matrix products and attention alone, microseconds of the GPU.
  double products_us(Dense part, Pass pass) const;

  // Returns the position of the dispatcher's first call of each layer in a step that its program made. Other
  // calls, which are over TP, belong to attention and router. Throws InputError where layers cannot be told
  // apart.
  std::vector<std::size_t> layer_starts(Pass pass, const Step& step) const;

  // Returns the `index`-th call of the dispatch group of `rank`, priced, with its category.
  Call call(Pass pass, std::size_t index, int rank) const;
  // Returns whether another model's call moves the same bytes in the same way, so that its recorded time
  // holds.
  bool same_call(Pass pass, std::size_t index, const LayerModel& other, std::size_t other_index) const;
  // Returns the input rows of a call, as recorders write them.
  std::int64_t call_rows(Pass pass, std::size_t index, int expert_rank, std::uint64_t row_bytes) const;

  // Returns the prices of both passes that lie outside of what was measured.
  models::DomainReport report() const;
  std::vector<std::string> warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the dispatcher whose program makes the calls of this recorded forward step. Throws InputError where
// none of the recorders' dispatchers does.
models::DispatcherSpec recorded_dispatcher(const JobModel& job, const models::Cluster& cluster,
                                           const Step& forward);

// Returns the host time of one modelled launch with which the dispatcher's own segments of the forward pass
// (those between calls, without experts) take the recorded time, `recorded_us` by segment and expert rank;
// the profile's where the program has no such segment.
double recorded_launch_us(const LayerModel& model, const models::Cluster& cluster,
                          const std::vector<std::vector<double>>& recorded_us);

}  // namespace moesim::replay

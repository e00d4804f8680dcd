#include "layer/measure.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

namespace moesim::bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double plain_step(LayerDevice& device, const RankLayer& rank) {
  device.mark(0);
  for (const Operation& operation : rank.operations())
    if (!operation.transfer) operation.run();
  device.mark(1);
  return device.seconds(0, 1);
}

// The time between marks belongs to the operation between them, including the wait for its launch.
std::vector<double> marked_step(LayerDevice& device, const RankLayer& rank) {
  std::size_t marks = 0;
  device.mark(marks++);
  for (const Operation& operation : rank.operations())
    if (!operation.transfer) operation.run(), device.mark(marks++);
  std::vector<double> seconds;
  marks = 0;
  for (const Operation& operation : rank.operations()) {
    seconds.push_back(operation.transfer ? 0 : device.seconds(marks, marks + 1));
    marks += operation.transfer ? 0 : 1;
  }
  return seconds;
}

RankTimes measure_rank(LayerDevice& device, const RankLayer& rank, const Repeats& plan) {
  const std::vector<Operation>& operations = rank.operations();
  for (int i = 0; i < plan.warmup; ++i) plain_step(device, rank);
  RankTimes times;
  times.started = now();
  std::vector<double> steps;
  std::vector<std::vector<double>> samples(operations.size());
  for (int i = 0; i < plan.iterations; ++i) {
    steps.push_back(plain_step(device, rank));
    const std::vector<double> marked = marked_step(device, rank);
    for (std::size_t o = 0; o < marked.size(); ++o) samples[o].push_back(marked[o]);
  }
  times.readings = device.readings();
  times.step = median(steps);
  times.step_low = *std::min_element(steps.begin(), steps.end());
  times.step_high = *std::max_element(steps.begin(), steps.end());
  std::map<std::string, double> means, medians;
  for (std::size_t o = 0; o < samples.size(); ++o) {
    times.operations.push_back(median(samples[o]));
    means[operations[o].step] += sum(samples[o]) / plan.iterations;
    medians[operations[o].step] += times.operations.back();
  }
  const auto jitter = [&](const char* step) { return std::max(0.0, means[step] / medians[step] - 1); };
  times.forward_jitter = jitter("forward_step");
  times.backward_jitter = jitter("backward_step");
  return times;
}

}  // namespace

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

std::vector<RankTimes> measure(World& world, const Repeats& plan) {
  std::vector<RankTimes> times;
  for (const auto& rank : world.ranks()) times.push_back(measure_rank(world.device(), *rank, plan));
  return times;
}

}  // namespace moesim::bench

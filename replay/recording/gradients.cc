#include "replay/recording/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/step/step_memory.h"

namespace moesim::replay {

namespace {

struct Lines {
  std::int64_t dense = 0;
  std::optional<std::int64_t> expert;
  int element_bytes = 0;
};

Lines lines_of(const CleanPlace& place) {
  Lines lines;
  for (const Step& step : place.steps) {
    if (step.kind == StepKind::dp_all_reduce)
      lines.dense = step.elements, lines.element_bytes = step.element_bytes;
    if (step.kind == StepKind::expert_all_reduce) lines.expert = step.elements;
  }
  return lines;
}

// Returns the elements of the embedding (or output head with its norm) in `dense` besides the layers; nullopt
// when they are not a whole table.
std::optional<std::int64_t> embedding_elements(std::int64_t dense, const ModelFacts& facts,
                                               const Topology& topology, int stage) {
  if (!facts.model || topology.tp != 1) return std::nullopt;
  std::int64_t rest = dense - stage_elements(*facts.model, topology).dense;
  if (stage == topology.pp - 1) rest -= facts.hidden;  // final norm
  if (stage == topology.pp - 1 && topology.pp == 1) rest /= 2;
  const std::int64_t rows = rest / facts.hidden;
  if (rest <= 0 || rest % facts.hidden != 0 || rows % 64 != 0) return std::nullopt;
  return rest;
}

bool agrees(const CleanJob& job, const ModelFacts& facts) {
  const PlaceKey first{0, 0, 0};
  const auto place = job.places.find(first);
  if (place == job.places.end()) return false;
  const Lines lines = lines_of(place->second);
  const std::int64_t experts = stage_elements(*facts.model, job.topology).expert;
  if (lines.expert && *lines.expert != experts) return false;
  const std::int64_t dense = lines.expert ? lines.dense : lines.dense - experts;
  return embedding_elements(dense, facts, job.topology, 0).has_value();
}

}  // namespace

GradientSizes stage_elements(const models::Architecture& model, const Topology& topology, bool embedding,
                             bool head) {
  models::Chunk chunk;
  chunk.layers.assign(static_cast<std::size_t>(model.layers / topology.pp),
                      {.ffn = models::LayerKind::Ffn::kMoe});
  chunk.embedding = embedding;
  chunk.head = head;
  const models::StageParameters n = models::chunk_parameters(model, topology.parallel(), chunk);
  return {.dense = std::llround(n.dense), .expert = std::llround(n.experts)};
}

ModelFacts model_facts(const traces::NamedTopology& named, const CleanJob& job,
                       const models::Architecture* architecture) {
  ModelFacts facts;
  facts.layers = static_cast<int>(named.layers.value_or(architecture ? architecture->layers : 0));
  facts.experts = static_cast<int>(named.experts.value_or(architecture ? architecture->experts : 0));
  facts.hidden = named.hidden.value_or(0);
  if (facts.layers <= 0 || facts.layers % job.topology.pp != 0) return facts;
  if (facts.experts <= 0 || facts.experts % job.topology.expert != 0) return facts;
  const auto with = [&](const models::Architecture& shapes) {
    ModelFacts filled = facts;
    if (filled.hidden == 0) filled.hidden = shapes.hidden;
    filled.model = shapes;
    filled.model->layers = facts.layers;
    filled.model->experts = facts.experts;
    return filled;
  };
  if (architecture != nullptr) return with(*architecture);
  for (const std::string& name : models::Architecture::names()) {
    const models::Architecture candidate = models::Architecture::load(name);
    if (candidate.hidden != facts.hidden || !candidate.gated) continue;
    ModelFacts filled = with(candidate);
    if (agrees(job, filled)) return filled;
  }
  return facts;
}

GradientSizes gradient_sizes(const CleanJob& job, const PlaceKey& key, const ModelFacts& facts,
                             std::vector<std::string>& warnings) {
  const Lines lines = lines_of(job.places.at(key));
  GradientSizes sizes;
  sizes.dense = lines.dense;
  sizes.expert = lines.expert.value_or(0);
  if (job.topology.expert == 1 && !lines.expert && lines.element_bytes > 0)
    sizes.element_bytes = lines.element_bytes;
  if (!lines.expert && job.topology.expert > 1) {
    const std::int64_t experts = facts.model ? stage_elements(*facts.model, job.topology).expert : 0;
    if (experts > 0 && experts < lines.dense) {
      sizes.dense = lines.dense - experts;
      sizes.expert = experts;
    } else {
      const std::string warning =
          "the recording has one gradient size for dense and expert parameters and no built-in model fits "
          "it: all of "
          "it is reduced over dp; name the model with --model";
      if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(warning);
    }
  }
  if (key.pp == 0) sizes.embedding = embedding_elements(sizes.dense, facts, job.topology, 0).value_or(0);
  return sizes;
}

}  // namespace moesim::replay

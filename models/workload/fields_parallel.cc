// Fields of the parallel plan: mesh, sizes, batch.
#include <string>

#include "models/workload/field_makers.h"

namespace moesim::models::fields {

namespace {

// A size of the plan, at least 1.
template <std::int64_t Parallel::*Size>
Field size(Field f) {
  f.low = 1, f.high = kMaxSize;
  f.group = kPlan;
  return integer<&Scenario::parallel, Size>(f);
}

// Fills the cluster by default, and is not written until it has.
Field data_parallel(Field f) {
  f = size<&Parallel::dp>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return s.resolved || s.gave("parallel.dp") ? ordered_json(s.parallel.dp) : ordered_json();
  };
  return f;
}

// Follows from a batch, and is not written until it has.
Field microbatches(Field f) {
  f = size<&Parallel::microbatches>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    const bool open = !s.resolved && !s.gave("parallel.microbatches") && s.batch.given();
    return open ? ordered_json() : ordered_json(s.parallel.microbatches);
  };
  return f;
}

}  // namespace

std::vector<Field> parallel_fields() {
  using P = Parallel;
  return {
      {.path = "mesh",
       .flag = "--mesh",
       .type = FieldType::kObject,
       .fallback = "none",
       .group = kPlan,
       .help = "torch DeviceMesh instead of the sizes: replicate=2,shard=2,tp=2; also pp, cp, ep",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.mesh = DeviceMesh::parse(v); },
       .write = [](const Scenario& s) { return s.mesh.to_json(); },
       .take = take_member<&Scenario::mesh>},
      size<&P::tp>({.path = "parallel.tp",
                    .flag = "--tp",
                    .fallback = "1",
                    .help = "Tensor-parallel size of the dense part"}),
      size<&P::cp>({.path = "parallel.cp", .flag = "--cp", .fallback = "1", .help = "Context-parallel size"}),
      size<&P::ep>({.path = "parallel.ep", .flag = "--ep", .fallback = "1", .help = "Expert-parallel size"}),
      size<&P::etp>({.path = "parallel.etp",
                     .flag = "--etp",
                     .fallback = "1",
                     .help = "Tensor-parallel size of the experts"}),
      data_parallel({.path = "parallel.dp",
                     .flag = "--dp",
                     .fallback = "fills the cluster",
                     .help = "Data-parallel size"}),
      size<&P::pp>({.path = "parallel.pp", .flag = "--pp", .fallback = "1", .help = "Pipeline stages"}),
      size<&P::vpp>({.path = "parallel.vpp",
                     .flag = "--vpp",
                     .fallback = "1",
                     .help = "Virtual pipeline stages per rank"}),
      microbatches({.path = "parallel.microbatches",
                    .flag = "--microbatches",
                    .fallback = "1",
                    .help = "Microbatches per step"}),
      {.path = "parallel.global_batch",
       .flag = "--global-batch",
       .type = FieldType::kText,
       .fallback = "dp x microbatches x micro-batch",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "Sequences of a step (1024) or tokens (4Mtokens, rounded to whole microbatches, 5 % off "
               "at most); the microbatches follow from it",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.batch = GlobalBatch::parse(v.is_integer() ? std::to_string(v.integer()) : v.string());
           },
       .write =
           [](const Scenario& s) { return s.batch.given() ? ordered_json(s.batch.text()) : ordered_json(); },
       .take = take_member<&Scenario::batch>},
      size<&P::micro_batch>({.path = "parallel.micro_batch",
                             .flag = "--micro-batch",
                             .unit = "sequences",
                             .fallback = "1",
                             .help = "Sequences per microbatch"}),
      size<&P::seq>({.path = "parallel.seq",
                     .flag = "--seq",
                     .unit = "tokens",
                     .fallback = "4096",
                     .help = "Tokens per sequence"}),
  };
}

}  // namespace moesim::models::fields

// Fields of where parameters and their state live, and of the optimizer.
#include <array>

#include "models/workload/field_makers.h"

namespace moesim::models::fields {

namespace {

constexpr std::array<std::string_view, 4> kSchemes{"ddp", "zero1", "fsdp", "hsdp"};

// Sharding of a module that is wrapped separately; by default as the rest.
template <std::optional<ShardingScheme> TrainingSettings::*Module>
Field module_sharding(Field f) {
  f.type = FieldType::kChoice;
  f.choices = kSchemes;
  f.fallback = "as training.sharding";
  f.group = kPlan;
  f.read = [](const Field&, Scenario& s, const JsonNode& v) {
    s.training.*Module = ShardingSpec::parse(v.string()).scheme;
  };
  f.write = [](const Scenario& s) {
    return s.training.*Module ? ordered_json(name_of(*(s.training.*Module))) : ordered_json();
  };
  f.take = take_member<&Scenario::training, Module>;
  return f;
}

// The text also gives the other fields of sharding that it contains.
void read_sharding(const Field&, Scenario& s, const JsonNode& value) {
  s.training.set_sharding(value.string());
  if (s.training.shard_group > 0) s.give("training.shard_group");
  if (!s.training.reshard_after_forward) s.give("training.reshard_after_forward");
  if (s.training.shampoo) s.give("training.shampoo");
  if (s.training.muon) s.give("training.muon");
}

// Without a given sharding, scope layer lists no collectives of a step.
ordered_json write_sharding(const Scenario& s) {
  const bool said = s.sharding_asked() || s.is_step();
  return said ? ordered_json(name_of(s.training.sharding)) : ordered_json();
}

}  // namespace

std::vector<Field> sharding_fields() {
  using T = TrainingSettings;
  return {
      {.path = "training.sharding",
       .also = "sharding",
       .flag = "--sharding",
       .type = FieldType::kText,
       .fallback = "zero1",
       .group = kPlan,
       .help = "Sharding of parameters, gradients and optimizer state: ddp, zero1, fsdp or "
               "hsdp:shard=N[:reshard=false][:shampoo][:muon]",
       .read = read_sharding,
       .write = write_sharding,
       .take = take_member<&Scenario::training, &T::sharding>},
      optional_integer<&Scenario::training, &T::shard_group>(
          {.path = "training.shard_group",
           .low = 0,
           .high = kMaxSize,
           .unit = "ranks",
           .fallback = "0",
           .group = kPlan,
           .help = "HSDP: size of a shard group; 0: one node"}),
      {.path = "training.reshard_after_forward",
       .type = FieldType::kBoolean,
       .fallback = "true",
       .group = kPlan,
       .help = "FSDP and HSDP gather parameters again in backward; the stages of a pipeline never do",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.reshard_after_forward = v.boolean(); },
       .write =
           [](const Scenario& s) {
             // A recipe may set false, beside which the given value stays.
             const bool usual = s.training.reshard_after_forward && !s.gave("training.reshard_after_forward");
             return usual ? ordered_json() : ordered_json(s.training.reshard_after_forward);
           },
       .take = take_member<&Scenario::training, &T::reshard_after_forward>},
      {.path = "training.fsdp_unit",
       .flag = "--fsdp-unit",
       .type = FieldType::kChoice,
       .choices = fsdp_unit_names(),
       .fallback = "auto",
       .group = kPlan,
       .help = "Unit that fsdp and hsdp gather at once: attention and FFN separately (module), a layer "
               "with all that is in it (block), the experts first and then the rest of a layer "
               "(experts), or the whole model (root); auto: a layer, its experts separately where they "
               "have data-parallel ranks of their own",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_fsdp_unit(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.fsdp_unit)); },
       .take = take_member<&Scenario::training, &T::fsdp_unit>},
      module_sharding<&T::router_sharding>(
          {.path = "training.router_sharding",
           .help = "Sharding of the router, where it is wrapped separately"}),
      module_sharding<&T::expert_sharding>(
          {.path = "training.expert_sharding",
           .help = "Sharding of the experts, where they are wrapped separately"}),
  };
}

std::vector<Field> optimizer_fields() {
  using T = TrainingSettings;
  return {
      boolean<&Scenario::training, &T::foreach>(
          {.path = "training.foreach",
           .fallback = "true",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "The optimizer updates the tensors of a mesh in one kernel; false: each in its own"}),
      boolean<&Scenario::training, &T::loss_parallel>(
          {.path = "training.loss_parallel",
           .fallback = "true",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help =
               "Logits stay divided over TP; false: they are gathered, and every rank computes the loss"}),
      integer<&Scenario::training, &T::preconditioning, &Shampoo::frequency>(
          {.path = "training.precondition_frequency",
           .low = 1,
           .high = kMaxSize,
           .unit = "steps",
           .fallback = "1",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Shampoo: interval between two computations of the preconditioners' roots"}),
      optional_integer<&Scenario::training, &T::preconditioning, &Shampoo::start>(
          {.path = "training.start_preconditioning_step",
           .low = 0,
           .high = kMaxSize,
           .unit = "steps",
           .fallback = "precondition_frequency",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Shampoo with shampoo_step: first step with preconditioners; grafted Adam before it"}),
      optional_integer<&Scenario::training, &T::preconditioning, &Shampoo::step>(
          {.path = "training.shampoo_step",
           .low = 0,
           .high = kMaxSize,
           .fallback = "the mean of a period",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Shampoo: the step to forecast"}),
      {.path = "training.shampoo",
       .type = FieldType::kBoolean,
       .fallback = "false",
       .group = kPlan,
       .help = "Distributed Shampoo instead of Adam",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.shampoo = v.boolean(); },
       .write = [](const Scenario& s) { return s.training.shampoo ? ordered_json(true) : ordered_json(); },
       .take = take_member<&Scenario::training, &T::shampoo>},
      {.path = "training.muon",
       .type = FieldType::kBoolean,
       .fallback = "false",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "Muon for the layers' matrices instead of Adam",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.muon = v.boolean(); },
       .write = [](const Scenario& s) { return s.training.muon ? ordered_json(true) : ordered_json(); },
       .take = take_member<&Scenario::training, &T::muon>},
      {.path = "training.newton_schulz_steps",
       .type = FieldType::kInteger,
       .low = 1,
       .high = kMaxSize,
       .fallback = "5",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "Muon: steps that orthogonalise a matrix's momentum",
       .read = integer<&Scenario::training, &T::newton_schulz_steps>({}).read,
       .write =
           [](const Scenario& s) {
             return s.training.muon ? ordered_json(s.training.newton_schulz_steps) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::newton_schulz_steps>},
      optional_integer<&Scenario::training, &T::lora, &Lora::rank>(
          {.path = "training.lora",
           .flag = "--lora",
           .low = 0,
           .high = kMaxSize,
           .fallback = "all weights are trained",
           .scopes = Scopes::kStep,
           .group = kPlan,
           .help = "Rank of low-rank adapters, which alone are trained; all other weights are frozen"}),
      {.path = "training.lora_modules",
       .type = FieldType::kChoice,
       .choices = lora_module_names(),
       .fallback = "attention",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "LoRA: weights that have adapters; ffn: those of dense layers and shared experts; "
               "experts: the routed ones",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_lora_modules(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.training.lora.rank > 0 ? ordered_json(name_of(s.training.lora.modules))
                                             : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::lora, &Lora::modules>},
  };
}

}  // namespace moesim::models::fields

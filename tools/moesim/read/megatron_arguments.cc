// Megatron-LM's arguments (megatron/training/arguments.py), the keys of its YAML files, and the fields of
// Megatron-Bridge's recipes, which have the same names.
#include <vector>

#include "tools/moesim/read/arguments.h"
#include "tools/moesim/read/megatron_known.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools {

const ArgumentTable& megatron_table() {
  static const ArgumentTable table = [] {
    ArgumentTable t;
    for (const std::vector<ArgumentRule>& rules :
         {megatron::shape_rules(), megatron::expert_rules(), megatron::hybrid_rules(),
          megatron::parallel_rules(), megatron::precision_rules(), megatron::training_rules(),
          megatron::dispatcher_rules(), megatron::order_rules()})
      t.rules.insert(t.rules.end(), rules.begin(), rules.end());
    t.aliases = {{"num_moe_experts", "num_experts"},
                 {"pad_vocab_size", "should_pad_vocab"},
                 {"hybrid_override_pattern", "hybrid_layer_pattern"},
                 {"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"},
                 {"sequence_length", "seq_length"},
                 {"encoder_seq_length", "seq_length"},
                 {"qk_nope_head_dim", "qk_head_dim"},
                 {"qk_rope_head_dim", "qk_pos_emb_head_dim"},
                 {"num_mtp_predictor", "mtp_num_layers"},
                 {"model_parallel_size", "tensor_model_parallel_size"},
                 {"moe_capacity_factor", "moe_expert_capacity_factor"},
                 {"moe_router_pad_for_fp8", "moe_router_padding_for_fp8"}};
    t.irrelevant = megatron_irrelevant();
    t.approximated = megatron_approximated();
    t.refused = megatron_refused();
    return t;
  }();
  return table;
}

}  // namespace moesim::tools

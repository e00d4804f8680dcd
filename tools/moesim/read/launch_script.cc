#include "tools/moesim/read/launch_script.h"

#include <fmt/format.h>

#include "models/hardware/cluster.h"
#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

std::string launch_script(const models::Scenario& plan, const std::string& command, int version) {
  const JobArguments made = arguments_of(plan, JobFramework::kMegatron, version);
  const models::Cluster& cluster = *plan.cluster;
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH --nodes={0}\n#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --gpus-per-node={1}\n#SBATCH --exclusive\n",
      cluster.nodes, cluster.gpus_per_node);
  text += fmt::format("# The forecast of this plan: {}\n", command);
  for (const std::string& one : made.left_out) text += fmt::format("# Not among the arguments: {}\n", one);
  text += "# Data, tokenizer, learning rate and checkpoints are yours: \"$@\".\nset -euo pipefail\n";
  text += fmt::format(
      "{}MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "ARGUMENTS=(\n{})\n"
      "srun torchrun --nnodes={} --nproc-per-node={} --rdzv-backend=c10d \\\n"
      "  --rdzv-endpoint=\"$MASTER_ADDR:29500\" --rdzv-id=\"$SLURM_JOB_ID\" \\\n"
      "  pretrain_gpt.py \"${{ARGUMENTS[@]}}\" \"$@\"\n",
      variables_text(made.arguments), arguments_text(made.arguments, JobFramework::kMegatron), cluster.nodes,
      cluster.gpus_per_node);
  return text;
}

}  // namespace moesim::tools

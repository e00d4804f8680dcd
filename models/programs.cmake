# Sources of routing, layouts, architectures and dispatcher programs, in ${program_sources}. The registry of
# dispatchers is generated from models/dispatchers/registry.cmake, so that a dispatcher is one file and one line.
set(program_sources
  architecture.cc architecture_builtin.cc architecture_json.cc
  dispatcher.cc dispatchers/capacity.cc dispatchers/common.cc dispatchers/deduplicated.cc dispatchers/equal_split.cc
  dispatchers/fixed_capacity.cc
  dispatchers/megablocks.cc dispatchers/shared_expert.cc dispatchers/torchtitan.cc
  dense_layer.cc dtype.cc faults.cc layer_costs.cc layout.cc memory.cc overload.cc parameter_collectives.cc placement.cc
  attention.cc layer_stack.cc pipeline_schedule.cc pipeline_timing.cc plan_search.cc step_faults.cc step_forecast.cc step_layers.cc step_memory.cc
  step_pass.cc training_flops.cc training_plan.cc training_products.cc
  program.cc program_builder.cc routing.cc routing_cache.cc routing_draw.cc scaling_mode.cc scenario.cc validator.cc)

include(${CMAKE_CURRENT_LIST_DIR}/dispatchers/registry.cmake)
set(dispatcher_declarations "")
set(dispatcher_entries "")
foreach(dispatcher ${dispatchers})
  list(APPEND program_sources dispatchers/${dispatcher}.cc)
  string(APPEND dispatcher_declarations "DispatcherEntry ${dispatcher}();\n")
  string(APPEND dispatcher_entries "${dispatcher}(), ")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/dispatchers/registry.cc.in
               ${CMAKE_CURRENT_BINARY_DIR}/dispatcher_registry.cc @ONLY)
list(APPEND program_sources ${CMAKE_CURRENT_BINARY_DIR}/dispatcher_registry.cc)

# What things cost, and the profiles that are compiled in.
file(GLOB profile_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/calibration/profiles/*.json)
list(JOIN profile_files "," profile_list)
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/embedded_profiles.cc)
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded} -DFILES=${profile_list} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedProfiles.cmake
  DEPENDS ${profile_files} ${PROJECT_SOURCE_DIR}/cmake/EmbedProfiles.cmake
  COMMENT "Embedding calibration profiles" VERBATIM)

set(cost_model_sources
  cluster.cc
  collectives.cc
  costs.cc
  domain_report.cc
  estimate.cc
  ep_kernel.cc
  expert_ffn.cc
  gemm.cc
  hardware.cc
  kernels.cc
  network_law.cc
  prices.cc
  profile.cc
  size_curve.cc
  ${embedded})

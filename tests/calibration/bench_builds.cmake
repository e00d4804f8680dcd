# Builds calibration/bench alone, as on a bare GPU node, and asks moesim-bench-cuda what it would measure.
#   cmake -D SOURCE=... -D BUILD=... -D GENERATOR=Ninja -P bench_builds.cmake
# Prints "SKIPPED" (the test's skip expression) where there is no CUDA compiler.
find_program(nvcc nvcc HINTS /usr/local/cuda/bin)
if(NOT nvcc)
  message("SKIPPED: no nvcc, so that moesim-bench-cuda cannot be compiled here")
  return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${BUILD} -DCMAKE_CUDA_COMPILER=${nvcc} -DCMAKE_CUDA_ARCHITECTURES=90
                OUTPUT_VARIABLE configured ERROR_VARIABLE errors RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "calibration/bench does not configure alone:\n${configured}${errors}")
endif()
if(configured MATCHES "not found")
  message("SKIPPED: ${configured}")
  return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target moesim-bench-cuda
                OUTPUT_VARIABLE built ERROR_VARIABLE errors RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "moesim-bench-cuda does not compile:\n${built}${errors}")
endif()
execute_process(COMMAND ${BUILD}/bench/moesim-bench-cuda --dry-run OUTPUT_VARIABLE listed RESULT_VARIABLE failed)
foreach(expected "latency/" "kernel/class:" "backend:cutlass|without CUTLASS" "gemm/m:" "grouped_gemm/groups:" "all_to_all/|the collectives[^\n]* are not listed" "benchmarks, about [0-9]+ s")
  if(failed OR NOT listed MATCHES "${expected}")
    message(FATAL_ERROR "the dry run does not list ${expected}:\n${listed}")
  endif()
endforeach()

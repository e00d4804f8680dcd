# The types of the page's sources.
set(compiler ${SCRATCH}/node_modules/typescript/bin/tsc)
if(NOT NODE OR NOT EXISTS ${compiler})
  message(STATUS "SKIPPED: the packages of tools/report are not installed")
  return()
endif()
# The compiler looks for packages above the sources.
file(COPY ${FOLDER}/src ${FOLDER}/tsconfig.json DESTINATION ${SCRATCH})
execute_process(COMMAND ${NODE} ${compiler} -p ${SCRATCH}/tsconfig.json RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "tools/report: types do not fit")
endif()

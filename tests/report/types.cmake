# The types of the page's sources. Those of results come from the program's columns; esbuild drops types, so the page,
# which the program holds, is made without them.
find_package(Python3 COMPONENTS Interpreter)
set(compiler ${SCRATCH}/node_modules/typescript/bin/tsc)
if(NOT NODE OR NOT Python3_FOUND OR NOT EXISTS ${compiler})
  message(STATUS "SKIPPED: the packages of tools/report or Python are not installed")
  return()
endif()
# The compiler looks for packages above the sources.
file(COPY ${FOLDER}/src ${FOLDER}/tsconfig.json DESTINATION ${SCRATCH})
execute_process(COMMAND ${Python3_EXECUTABLE} ${FOLDER}/../result_types.py ${PROGRAM} ${SCRATCH}/src/results.ts COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NODE} ${compiler} -p ${SCRATCH}/tsconfig.json RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "tools/report: types do not fit")
endif()

# cmake -D FOLDER=tools/report -D SCRATCH=dir -D OUTPUT=file.cc -D NODE=node -D NPM=npm -P BuildReport.cmake
# Installs the packages of package-lock.json below SCRATCH and bundles the page. What goes wrong with Node or the
# registry leaves a binary that says so; an error in the page itself is an error of the build.
function(write_missing reason)
  message(STATUS "no HTML reports: ${reason}")
  file(WRITE ${OUTPUT} "// Made by cmake/BuildReport.cmake.
#include \"tools/moesim/show/report_template.h\"

namespace moesim::tools {

std::string_view report_template() { return \"\"; }
std::string_view live_template() { return \"\"; }
std::string_view live_policy() { return \"\"; }

std::string_view report_missing() { return \"${reason}\"; }

}  // namespace moesim::tools
")
endfunction()

if(NOT NODE OR NOT NPM)
  write_missing("this moesim was built without Node; install nodejs (18 or newer) and npm, configure and build again")
  return()
endif()
execute_process(COMMAND ${NODE} -p "process.versions.node.split('.')[0]" OUTPUT_VARIABLE major RESULT_VARIABLE failed
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed OR major LESS 18)
  write_missing("this moesim was built beside Node ${major}; install Node 18 or newer and build again")
  return()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/NpmPackages.cmake)
npm_packages(${FOLDER} ${SCRATCH} ${NPM} why)
if(why)
  message(STATUS "${why}")
  write_missing("its page could not be bundled: npm found no way to the packages of tools/report; build again with a network")
  return()
endif()

execute_process(COMMAND ${NODE} ${FOLDER}/build.mjs --modules ${SCRATCH}/node_modules --cc ${OUTPUT}
                RESULT_VARIABLE failed ERROR_VARIABLE why)
if(failed)
  message(FATAL_ERROR "tools/report: ${why}")
endif()

# cmake -D SOURCE=... -D SCRATCH=... -D COMPILER=... -D FOLDER=tools/report -P: what BuildReport.cmake writes where there is
# no Node, a Node that is too old, or no way to npm's registry, compiles, has no page and names what is missing.
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
file(WRITE ${SCRATCH}/old_node "#!/bin/sh\necho 16\n")
file(WRITE ${SCRATCH}/new_node "#!/bin/sh\necho 18\n")
file(WRITE ${SCRATCH}/npm "#!/bin/sh\necho 'no route to registry.npmjs.org' >&2\nexit 1\n")
file(CHMOD ${SCRATCH}/old_node ${SCRATCH}/new_node ${SCRATCH}/npm PERMISSIONS OWNER_READ OWNER_EXECUTE)

# expect(NAME node npm REGEX): builds the source with these tools.
function(expect name node npm regex)
  set(output ${SCRATCH}/${name}.cc)
  execute_process(COMMAND ${CMAKE_COMMAND} -D FOLDER=${FOLDER} -D SCRATCH=${SCRATCH}/${name} -D OUTPUT=${output} "-D NODE=${node}"
                          "-D NPM=${npm}" -P ${SOURCE}/cmake/BuildReport.cmake
                  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    message(FATAL_ERROR "${name}: the build ends: ${said}")
  endif()
  if(NOT said MATCHES "no HTML reports: ")
    message(FATAL_ERROR "${name}: the build does not say that there are no reports: ${said}")
  endif()
  file(READ ${output} text)
  if(NOT text MATCHES "${regex}" OR NOT text MATCHES "report_template\\(\\) { return \"\"; }")
    message(FATAL_ERROR "${name}: found ${text}")
  endif()
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${SOURCE} ${output} RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    message(FATAL_ERROR "${name}: does not compile: ${why}")
  endif()
endfunction()

expect(no_node "" "${SCRATCH}/npm" "install nodejs \\(18 or newer\\) and npm")
expect(not_found "MOESIM_NODE-NOTFOUND" "MOESIM_NPM-NOTFOUND" "install nodejs \\(18 or newer\\) and npm")
expect(old_node "${SCRATCH}/old_node" "${SCRATCH}/npm" "Node 16; install Node 18 or newer")
expect(no_registry "${SCRATCH}/new_node" "${SCRATCH}/npm" "npm found no way to the packages")

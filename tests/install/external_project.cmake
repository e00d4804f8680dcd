# cmake --install into an empty prefix, then a project that only knows find_package(moesim).
set(prefix ${BUILD}/tests/install/prefix)
set(consumer ${BUILD}/tests/install/consumer)
file(REMOVE_RECURSE ${prefix} ${consumer})

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(failed)
    message(FATAL_ERROR "${what}:\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
# The generator of the build: this machine need not have CMake's own choice.
run("configure" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/consumer -B ${consumer} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${CXX})
run("build" ${CMAKE_COMMAND} --build ${consumer})
run("run" ${consumer}/consumer)
if(NOT out MATCHES "alltoall [0-9.]+ us")
  message(FATAL_ERROR "the consumer says:\n${out}")
endif()
run("the installed program" ${prefix}/bin/moesim compare --model mixtral-8x7b --ep 8 --dispatcher alltoall --draws 0)
foreach(file share/man/man1/moesim.1 share/bash-completion/completions/moesim share/zsh/vendor-completions/_moesim
        share/fish/vendor_completions.d/moesim.fish)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
  file(READ ${prefix}/${file} text)
  if(NOT text MATCHES "whatif")
    message(FATAL_ERROR "${file} does not know whatif")
  endif()
endforeach()

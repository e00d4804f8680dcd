# cpack, and what dpkg says of the packages.
find_program(dpkg_deb dpkg-deb)
find_program(cpack cpack)
if(NOT dpkg_deb OR NOT cpack)
  message("SKIPPED: no dpkg-deb or no cpack here")
  return()
endif()
set(out ${BUILD}/tests/install/packages)
file(REMOVE_RECURSE ${out})
execute_process(COMMAND ${cpack} -G DEB --config ${BUILD}/CPackConfig.cmake -B ${out} RESULT_VARIABLE failed
                OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "cpack:\n${said}")
endif()
# Parts that a build has only if it found the libraries.
set(optional)
if(EXISTS ${BUILD}/libmoesim_http.so)
  list(APPEND optional "moesim_*.deb|./usr/lib/moesim/libmoesim_http.so")
endif()
if(EXISTS ${BUILD}/python/moesim)
  list(APPEND optional "python3-moesim_*.deb|./usr/lib/python3/dist-packages/moesim/__init__.py")
endif()
foreach(check "moesim_*.deb|./usr/bin/moesim" "moesim_*.deb|./usr/share/man/man1/moesim.1.gz"
        "moesim_*.deb|./usr/share/doc/moesim/copyright" "moesim_*.deb|./usr/share/doc/moesim/changelog.gz"
        "moesim_*.deb|./usr/share/doc/moesim/limits.md" "moesim_*.deb|./usr/share/moesim/samples/"
        "python3-moesim-capture_*.deb|./usr/lib/python3/dist-packages/moesim_capture/__init__.py"
        "moesim_*.deb|./usr/share/doc/moesim/results.md" ${optional}
        "libmoesim-dev_*.deb|./usr/share/doc/libmoesim-dev/copyright"
        "libmoesim-dev_*.deb|./usr/include/moesim/models/answers/answer.h")
  string(REPLACE "|" ";" check "${check}")
  list(GET check 0 pattern)
  list(GET check 1 file)
  file(GLOB package ${out}/${pattern})
  list(LENGTH package found)
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "found ${found} packages ${pattern}")
  endif()
  execute_process(COMMAND ${dpkg_deb} --contents ${package} OUTPUT_VARIABLE contents RESULT_VARIABLE failed)
  string(FIND "${contents}" "${file}" at)
  if(failed OR at EQUAL -1)
    message(FATAL_ERROR "${package} lacks ${file}:\n${contents}")
  endif()
endforeach()

# The program's package does not depend on MPI.
file(GLOB package ${out}/moesim_*.deb)
execute_process(COMMAND ${dpkg_deb} --field ${package} Depends OUTPUT_VARIABLE depends)
if(depends MATCHES "mpi")
  message(FATAL_ERROR "${package} depends on ${depends}")
endif()

# The package's content runs in place, without the build folder.
set(root ${out}/root)
execute_process(COMMAND ${dpkg_deb} --extract ${package} ${root} RESULT_VARIABLE failed)
file(GLOB_RECURSE everything LIST_DIRECTORIES true ${root}/*)
foreach(folder ${everything})
  file(GLOB inside ${folder}/* ${folder}/.*)
  if(IS_DIRECTORY ${folder} AND NOT inside)
    message(FATAL_ERROR "${folder} is empty")
  endif()
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${root}/usr/bin/moesim replay
                ${root}/usr/share/moesim/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling --microbatches 4 --quiet
                WORKING_DIRECTORY ${root} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed OR NOT said MATCHES "[0-9] ms an iteration")
  message(FATAL_ERROR "the package's moesim (${failed}):\n${said}")
endif()

find_program(lintian lintian)
if(lintian)
  file(GLOB packages ${out}/*.deb)
  # No source package and no upload, which some tags speak of; CPack calls ldconfig for any library.
  set(not_ours initial-upload-closes-no-bugs,bogus-mail-host,maintscript-calls-ldconfig)
  execute_process(COMMAND ${lintian} --allow-root --fail-on error,warning --suppress-tags ${not_ours} ${packages}
                  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    message(FATAL_ERROR "lintian:\n${said}")
  endif()
else()
  message("no lintian here: the packages were not held against Debian's policy")
endif()

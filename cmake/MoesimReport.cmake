# Bundles tools/report into the source file that the binary embeds. Without Node, or where its packages cannot be had,
# moesim builds all the same and `--report` says what is missing.
find_program(MOESIM_NODE node)
find_program(MOESIM_NPM npm)

# moesim_report_template(OUTPUT): declares OUTPUT, the C++ source with the page.
function(moesim_report_template output)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/report)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/src/*.ts ${folder}/src/*.css)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D FOLDER=${folder} -D SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/report -D OUTPUT=${output}
            "-D NODE=${MOESIM_NODE}" "-D NPM=${MOESIM_NPM}" -P ${PROJECT_SOURCE_DIR}/cmake/BuildReport.cmake
    DEPENDS ${sources} ${folder}/build.mjs ${folder}/package.json ${folder}/package-lock.json
            ${PROJECT_SOURCE_DIR}/cmake/BuildReport.cmake ${PROJECT_SOURCE_DIR}/cmake/NpmPackages.cmake
    COMMENT "Bundling the page of reports"
    VERBATIM)
  # Compilers must take strings of 65,536 characters; those that build moesim take more.
  set_source_files_properties(${output} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
endfunction()

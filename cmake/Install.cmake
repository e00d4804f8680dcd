# What `cmake --install` and `cpack` put where: the program with its manual page and completions, and the libraries
# with the headers and the CMake package of find_package(moesim). Folders of headers keep their names below
# include/moesim, so that an installed header is included as it is here: "replay/run/layer_comparison.h".
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moesim)
foreach(folder base sim traces models calibration replay)
  set_target_properties(moesim_${folder} PROPERTIES EXPORT_NAME ${folder})
  target_include_directories(moesim_${folder} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/moesim>)
  install(TARGETS moesim_${folder} EXPORT moesim ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moesim/${folder}
          COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "bench" EXCLUDE)
endforeach()
install(EXPORT moesim NAMESPACE moesim:: FILE moesimTargets.cmake DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/moesimConfig.cmake.in
  ${CMAKE_BINARY_DIR}/moesimConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moesimConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moesimConfig.cmake ${CMAKE_BINARY_DIR}/moesimConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

install(TARGETS moesim RUNTIME COMPONENT program)
if(TARGET moesim_mpi)
  install(TARGETS moesim_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/moesim COMPONENT program)
endif()

foreach(entry "program moesim" "development libmoesim-dev")
  separate_arguments(entry)
  list(GET entry 0 component)
  list(GET entry 1 package)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

# The program itself writes its manual page and completions.
set(shell_files)
foreach(entry "man moesim.1 ${CMAKE_INSTALL_MANDIR}/man1" "bash moesim ${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
        "zsh _moesim ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" "fish moesim.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
  separate_arguments(entry)
  list(GET entry 0 shell)
  list(GET entry 1 file)
  list(GET entry 2 destination)
  set(made ${CMAKE_BINARY_DIR}/shell/${shell}/${file})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/shell/${shell})
  add_custom_command(OUTPUT ${made} COMMAND moesim completion ${shell} > ${made} DEPENDS moesim VERBATIM)
  install(FILES ${made} DESTINATION ${destination} COMPONENT program)
  list(APPEND shell_files ${made})
endforeach()
add_custom_target(moesim_shell_files ALL DEPENDS ${shell_files})

# Debian packages: `cpack` in the build folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "moesim maintainers <maintainers@moesim.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME moesim)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmoesim-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libboost-graph-dev, libfmt-dev, libssl-dev, nlohmann-json3-dev, zlib1g-dev")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS openmpi-bin)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "forecasts of mixture-of-experts training\n Compares token dispatchers, replays recordings, answers what-if questions.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "forecasts of mixture-of-experts training, C++ libraries")
find_program(dpkg_shlibdeps dpkg-shlibdeps)
if(dpkg_shlibdeps)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
endif()
include(CPack)

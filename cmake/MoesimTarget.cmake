# One library per folder. A folder is included as "folder/file.h" through a directory that holds nothing but a
# link to it, so an include against the arrows of docs/contributing.md finds no file and does not build.

add_library(moesim_options INTERFACE)
target_compile_options(moesim_options INTERFACE -Wall -Wextra -Wpedantic)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports std::string concatenation as overlapping or endless copies (GCC bug 105651), and, where <string> is
  # precompiled, as copies out of bounds.
  target_compile_options(moesim_options INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread
                                                  -Wno-array-bounds)
endif()
if(MOESIM_SANITIZE)
  target_compile_options(moesim_options INTERFACE -fsanitize=${MOESIM_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(moesim_options INTERFACE -fsanitize=${MOESIM_SANITIZE})
endif()

# Headers of other people's libraries are compiled once for a GROUP of targets (tests, and tools without
# optimisation, have their own): a first build takes a third of the time, and a missing include of ours is still found.
# moesim_precompile(GROUP [HEADERS headers...] [LIBRARIES targets...] [OPTIONS compile options...])
function(moesim_precompile group)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBRARIES;OPTIONS" ${ARGN})
  if(TARGET ${group}_precompiled)
    return()
  endif()
  file(TOUCH ${PROJECT_BINARY_DIR}/${group}_precompiled.cc)
  add_library(${group}_precompiled OBJECT ${PROJECT_BINARY_DIR}/${group}_precompiled.cc)
  target_link_libraries(${group}_precompiled PRIVATE moesim_options fmt::fmt nlohmann_json::nlohmann_json ${ARG_LIBRARIES})
  target_compile_options(${group}_precompiled PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${group}_precompiled PRIVATE <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h> ${PROJECT_SOURCE_DIR}/cmake/json.h
    ${ARG_HEADERS})
  moesim_show_precompiled(${group}_precompiled)
endfunction()

# Lets a compiler cache see through precompiled headers.
function(moesim_show_precompiled target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  else()
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# moesim_library(NAME [FOLDERS folders...] [ROOMS rooms...] [SOURCES files...] [DEPENDS moesim folders...]
#   [LIBRARIES other targets...] [OPTIONS compile options...])
# Every .cc of the folders is a source, so that a new file is one file and no line. A room is a folder that sees those
# below it and no others: "step>programs,costs" is a target moesim_NAME_step. Rooms are given from the lowest on; the
# list moesim_NAME_parts names the library and its rooms.
function(moesim_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;ROOMS;SOURCES;DEPENDS;LIBRARIES;OPTIONS" ${ARGN})
  foreach(folder ${ARG_FOLDERS})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND ARG_SOURCES ${sources})
  endforeach()
  set(parts "")
  foreach(room ${ARG_ROOMS})
    moesim_room(${name} ${room})
    list(APPEND parts ${target})
    list(APPEND ARG_SOURCES $<TARGET_OBJECTS:${target}>)
  endforeach()
  set(view ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${name} SYMBOLIC)
  add_library(moesim_${name} STATIC ${ARG_SOURCES})
  add_library(moesim::${name} ALIAS moesim_${name})
  target_include_directories(moesim_${name} PUBLIC $<BUILD_INTERFACE:${view}>)
  list(APPEND parts moesim_${name})
  set(group libraries)
  if("-O0" IN_LIST ARG_OPTIONS)  # its macros are others
    set(group ${name})
  endif()
  moesim_precompile(${group} OPTIONS ${ARG_OPTIONS})
  # For the Python module, which is a shared object. Hidden, nothing is looked up by name at run time: the code is that of
  # a program.
  set_target_properties(${parts} ${group}_precompiled PROPERTIES POSITION_INDEPENDENT_CODE ON
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  foreach(part ${parts})
    target_link_libraries(${part} PRIVATE $<BUILD_INTERFACE:moesim_options>)
    target_compile_options(${part} PRIVATE ${ARG_OPTIONS})
    foreach(dependency ${ARG_DEPENDS})
      target_link_libraries(${part} PUBLIC moesim::${dependency})
    endforeach()
    target_link_libraries(${part} PUBLIC ${ARG_LIBRARIES})
    target_precompile_headers(${part} REUSE_FROM ${group}_precompiled)
    moesim_show_precompiled(${part})
  endforeach()
  set(moesim_${name}_parts ${parts} PARENT_SCOPE)
endfunction()

# The room FOLDER of a library, FOLDER>FOLDER,... with those that it sees; sets `target`.
function(moesim_room name room)
  string(REGEX REPLACE ">.*" "" folder ${room})
  set(below "")
  if(room MATCHES ">(.*)$")
    string(REPLACE "," ";" below "${CMAKE_MATCH_1}")
  endif()
  string(MAKE_C_IDENTIFIER ${folder} word)
  set(target moesim_${name}_${word})
  set(view ${CMAKE_BINARY_DIR}/include/${name}.${word})
  get_filename_component(parent ${view}/${name}/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${folder} ${view}/${name}/${folder} SYMBOLIC)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*/*.cc)
  add_library(${target} OBJECT ${sources})
  set(views ${view})
  foreach(other ${below})
    string(MAKE_C_IDENTIFIER ${other} word)
    get_target_property(more moesim_${name}_${word} views)
    list(APPEND views ${more})
  endforeach()
  list(REMOVE_DUPLICATES views)
  set_target_properties(${target} PROPERTIES views "${views}")
  target_include_directories(${target} PRIVATE ${views})
  set(target ${target} PARENT_SCOPE)
endfunction()

# moesim_test(FOLDER SOURCES files... [DEPENDS moesim folders...] [LIBRARIES other targets...] [TIMEOUT seconds])
# Makes FOLDER_tests and registers every GoogleTest case with ctest, so that skips stay visible.
function(moesim_test folder)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(MOESIM_SANITIZE AND ARG_TIMEOUT LESS 1800)
    set(ARG_TIMEOUT 1800)  # a case takes ten times as long, and CI is slower yet
  endif()
  add_executable(${folder}_tests ${ARG_SOURCES})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${folder}_tests PRIVATE moesim::${dependency})
  endforeach()
  target_include_directories(${folder}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${folder}_tests PRIVATE moesim_options GTest::gtest GTest::gmock GTest::gtest_main
                                                rapidcheck ${ARG_LIBRARIES})
  moesim_precompile(tests HEADERS <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h>
                    LIBRARIES GTest::gtest GTest::gmock rapidcheck)
  target_precompile_headers(${folder}_tests REUSE_FROM tests_precompiled)
  moesim_show_precompiled(${folder}_tests)
  target_compile_definitions(${folder}_tests PRIVATE
    MOESIM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MOESIM_DATA_DIR="${PROJECT_SOURCE_DIR}/../shared/data")
  gtest_discover_tests(${folder}_tests TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()

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

# Headers of libraries, never our own, are compiled once a target: a first build takes a third of the time, and a
# missing include of our own is still found.
function(moesim_precompile target)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h> ${ARGN})
  moesim_show_precompiled(${target})
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
#   [LIBRARIES other targets...] [PRECOMPILED headers...])
# Every .cc of the folders is a source, so that a new file is one file and no line. A room is a folder that sees those
# below it and no others: "step>programs,costs" is a target moesim_NAME_step. Rooms are given from the lowest on; the
# list moesim_NAME_parts names the library and its rooms.
function(moesim_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;ROOMS;SOURCES;DEPENDS;LIBRARIES;PRECOMPILED" ${ARGN})
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
  list(GET parts 0 first)
  foreach(part ${parts})
    target_link_libraries(${part} PRIVATE $<BUILD_INTERFACE:moesim_options>)
    # For the Python module, which is a shared object. Hidden, nothing is looked up by name at run time: the code is that
    # of a program.
    set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
    foreach(dependency ${ARG_DEPENDS})
      target_link_libraries(${part} PUBLIC moesim::${dependency})
    endforeach()
    target_link_libraries(${part} PUBLIC ${ARG_LIBRARIES})
    if(part STREQUAL first)
      moesim_precompile(${part} ${ARG_PRECOMPILED})
    else()
      target_precompile_headers(${part} REUSE_FROM ${first})
      moesim_show_precompiled(${part})
    endif()
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

# moesim_test(FOLDER SOURCES files... [DEPENDS moesim folders...] [LIBRARIES other targets...])
# Makes FOLDER_tests and registers every GoogleTest case with ctest, so that skips stay visible.
function(moesim_test folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_executable(${folder}_tests ${ARG_SOURCES})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${folder}_tests PRIVATE moesim::${dependency})
  endforeach()
  target_include_directories(${folder}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${folder}_tests PRIVATE moesim_options GTest::gtest GTest::gmock GTest::gtest_main
                                                rapidcheck ${ARG_LIBRARIES})
  if(NOT TARGET tests_precompiled)
    # Compiled once for all tests.
    file(TOUCH ${PROJECT_BINARY_DIR}/tests_precompiled.cc)
    add_library(tests_precompiled OBJECT ${PROJECT_BINARY_DIR}/tests_precompiled.cc)
    target_link_libraries(tests_precompiled PRIVATE moesim_options fmt::fmt GTest::gtest GTest::gmock rapidcheck
                                                    nlohmann_json::nlohmann_json)
    moesim_precompile(tests_precompiled <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h> ${PROJECT_SOURCE_DIR}/cmake/json.h)
  endif()
  target_precompile_headers(${folder}_tests REUSE_FROM tests_precompiled)
  moesim_show_precompiled(${folder}_tests)
  target_compile_definitions(${folder}_tests PRIVATE
    MOESIM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MOESIM_DATA_DIR="${PROJECT_SOURCE_DIR}/../shared/data")
  gtest_discover_tests(${folder}_tests TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

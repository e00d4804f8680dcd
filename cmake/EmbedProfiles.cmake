# cmake -DOUTPUT=file.cc -DFILES=a.json,b.json -P EmbedProfiles.cmake
# Writes the profiles as raw string literals. GCC and Clang take literals of any length; the pieces keep to the
# 65,536 characters that every C++20 compiler must take.
set(arrays "")
set(table "")
string(REPLACE "," ";" files "${FILES}")
foreach(path ${files})
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 16000 piece)
    string(APPEND pieces "\n    R\"json(${piece})json\"")
    math(EXPR at "${at} + 16000")
  endwhile()
  string(MAKE_C_IDENTIFIER "${name}" identifier)
  string(APPEND arrays "constexpr std::string_view k_${identifier} =${pieces};\n")
  string(APPEND table "    {\"${name}\", k_${identifier}},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/EmbedProfiles.cmake.
#include \"models/embedded_profiles.h\"

#include <array>

namespace moesim::models {
namespace {
${arrays}
constexpr EmbeddedProfile kProfiles[] = {
${table}};
}  // namespace

std::span<const EmbeddedProfile> embedded_profiles() { return kProfiles; }

}  // namespace moesim::models
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUTPUT}.new ${OUTPUT})
file(REMOVE ${OUTPUT}.new)

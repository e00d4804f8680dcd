# cmake -DOUTPUT=file.cc -DFILES=a.json,b.json -P EmbedProfiles.cmake
# Writes the profiles as raw string literals, which GCC and Clang take at any length.
set(arrays "")
set(table "")
string(REPLACE "," ";" files "${FILES}")
foreach(path ${files})
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  string(MAKE_C_IDENTIFIER "${name}" identifier)
  string(APPEND arrays "constexpr std::string_view k_${identifier} =\n    R\"json(${text})json\";\n")
  string(APPEND table "    {\"${name}\", k_${identifier}},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/EmbedProfiles.cmake.
#include \"models/hardware/embedded_profiles.h\"

#pragma GCC diagnostic ignored \"-Woverlength-strings\"

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

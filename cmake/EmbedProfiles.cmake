# cmake -DOUTPUT=file.cc -DFILES=a.json,b.json -DNETWORKS=c.json -DRECIPES=e.json -DTABLES=d.json -P EmbedProfiles.cmake
# Writes profiles, recipes and tables as raw string literals, which GCC and Clang take at any length.
set(arrays "")
foreach(kind FILES NETWORKS RECIPES TABLES)
  set(${kind}_table "")
  string(REPLACE "," ";" files "${${kind}}")
  foreach(path ${files})
    get_filename_component(name ${path} NAME_WLE)
    file(READ ${path} text)
    string(MAKE_C_IDENTIFIER "${kind}_${name}" identifier)
    string(APPEND arrays "constexpr std::string_view k_${identifier} =\n    R\"json(${text})json\";\n")
    string(APPEND ${kind}_table "    {\"${name}\", k_${identifier}},\n")
  endforeach()
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/EmbedProfiles.cmake.
#include \"models/hardware/embedded_profiles.h\"

#include \"base/check.h\"

#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace moesim::models {
namespace {
${arrays}
constexpr EmbeddedProfile kProfiles[] = {
${FILES_table}};
constexpr EmbeddedProfile kNetworks[] = {
${NETWORKS_table}};
constexpr EmbeddedProfile kRecipes[] = {
${RECIPES_table}};
constexpr EmbeddedProfile kTables[] = {
${TABLES_table}};
}  // namespace

std::span<const EmbeddedProfile> embedded_profiles() { return kProfiles; }
std::span<const EmbeddedProfile> embedded_networks() { return kNetworks; }
std::span<const EmbeddedProfile> embedded_recipes() { return kRecipes; }
std::string_view embedded_table(std::string_view name) {
  for (const EmbeddedProfile& table : kTables)
    if (table.name == name) return table.json;
  check_failed(\"a table that is compiled in\");
}

}  // namespace moesim::models
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUTPUT}.new ${OUTPUT})
file(REMOVE ${OUTPUT}.new)

#include "tools/moesim/study/plugin_path.h"

#include "base/file_io.h"

namespace moesim::tools {

std::filesystem::path plugin_path(std::string_view name) {
  const std::filesystem::path folder = own_program().parent_path();
  const std::filesystem::path beside = folder / name;
  return path_exists(beside) ? beside : folder.parent_path() / MOESIM_LIBRARY_FOLDER / name;
}

}  // namespace moesim::tools

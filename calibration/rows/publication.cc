#include "calibration/rows/publication.h"

namespace moesim::calibration {

std::string publication_of(std::string_view source) {
  constexpr std::string_view kArxiv = "arXiv ";
  if (source.starts_with(kArxiv))
    return std::string(source.substr(0, source.find_first_of(" (,", kArxiv.size())));
  return std::string(source.substr(0, source.find_first_of(" (,")));
}

}  // namespace moesim::calibration

// Checks that text files can be printed safely; inside traces/ only.
#pragma once

#include <string>
#include <string_view>

namespace moesim::traces {

// Throws InputError with the place of the first byte that is not UTF-8 (RFC 3629) or is a control character
// other than a line feed.
void check_plain_text(std::string_view text, const std::string& file);

}  // namespace moesim::traces

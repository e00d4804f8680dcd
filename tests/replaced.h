// A good input with one thing wrong.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace moesim {

// `text` with the first `from` made `to`; the test fails where there is none.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace moesim

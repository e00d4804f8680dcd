#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "process.h"

namespace moesim::tools::testing {

// Bad input or usage: nothing on stdout, one line on stderr that `message` matches, exit 2.
inline void expect_refusal(const Outcome& outcome, const ::testing::Matcher<std::string>& message) {
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::AllOf(::testing::StartsWith("moesim: "), message));
}

}  // namespace moesim::tools::testing

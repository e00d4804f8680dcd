// Errors caused by the user's input. The command line prints what() as one line and exits 2.
#pragma once

#include <stdexcept>
#include <string>

namespace moesim {

// A place in an input; line and column count from 1, 0 means unknown.
struct SourcePlace {
  std::string file;
  long line = 0;
  long column = 0;

  // Returns "file", "file:line" or "file:line:column".
  std::string str() const;
};

// what() is "place: found X, expected Y", or "place: message", always one line, truncated to a readable
// length.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message);
  InputError(const SourcePlace& place, const std::string& message);
  InputError(const SourcePlace& place, const std::string& found, const std::string& expected);

  const SourcePlace& place() const { return place_; }

 private:
  SourcePlace place_;
};

}  // namespace moesim

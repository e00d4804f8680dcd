// Answers questions of untrusted callers, each in its own sandboxed process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <semaphore>
#include <string>
#include <string_view>

#include "tools/moesim/serve/limits.h"

namespace moesim::tools {

struct AnswerLimits {
  double seconds = kAnswerSeconds;
  std::size_t bytes = kAnswerBytes;
  bool files = false;  // whether it may read files of this machine
};

struct Reply {
  enum class Kind : std::uint8_t {
    kDone,
    kRefused,  // bad input: the text of the command line's error
    kTooLong,  // exceeded the time limit
    kFailed,   // ended in another way
    kBusy,     // other questions are being answered
  };
  Kind kind = Kind::kFailed;
  std::string text;
};

// One process, forked while the program has one thread, forks another for every question: a question that
// takes too long, needs too much memory or triggers a bug ends only its own process. Such a process cannot
// open a file unless `files` is set: the system refuses it (RLIMIT_NOFILE) by any path.
class Answerer {
 public:
  // Returns the reply to a question, or throws InputError.
  using Question = std::function<std::string(char kind, const std::string& body)>;

  // Must be called before the first thread starts. `prepare` runs once in the forking process.
  Answerer(const AnswerLimits& limits, const Question& question, const std::function<void()>& prepare);
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  ~Answerer();  // ends all its processes

  // Thread-safe.
  Reply ask(char kind, std::string_view body);
  // Ends running and later questions. Thread-safe.
  void stop();

 private:
  Reply reply_of(int fd, std::chrono::steady_clock::time_point start) const;

  AnswerLimits limits_;
  int control_ = -1;  // receives a socket for every question
  pid_t forker_ = -1;
  std::counting_semaphore<> turns_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace moesim::tools

// Answers questions of strangers, each in a process of its own that can do nothing else.
#pragma once

#include <sys/types.h>

#include <atomic>
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
    kRefused,  // bad input: the text of the command line
    kTooLong,  // it took more than the limit
    kFailed,   // it came to an end in another way
    kBusy,     // others are being answered
  };
  Kind kind = Kind::kFailed;
  std::string text;
};

// One process, forked while there is one thread, that forks another for every question: a question that takes
// too long, wants too much memory or finds a fault of ours ends its own process, and nothing else. Such a
// process cannot open a file unless `files` says so: the system refuses it (RLIMIT_NOFILE), whichever way it
// tries.
class Answerer {
 public:
  // Returns the reply to a question, or throws InputError.
  using Question = std::function<std::string(char kind, const std::string& body)>;

  // Call it before the first thread is started. `prepare` runs once in the process that forks.
  Answerer(const AnswerLimits& limits, const Question& question, const std::function<void()>& prepare);
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  ~Answerer();  // ends all its processes

  // From any thread.
  Reply ask(char kind, std::string_view body);
  // Ends the questions under way and all that are asked later. From any thread.
  void stop();

 private:
  Reply reply_of(int fd) const;

  AnswerLimits limits_;
  int control_ = -1;  // where a socket is sent for every question
  pid_t forker_ = -1;
  std::counting_semaphore<> turns_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace moesim::tools

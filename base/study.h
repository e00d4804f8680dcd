// The loop of everything that is asked at many points: threads with an asker each, a cache, and a budget of
// evaluations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"

namespace moesim {

// Calls work(worker, item) once for every item below `count`. A worker is a thread, of at most `threads` (0:
// all cores). Rethrows the first exception.
void on_threads(std::size_t count, int threads,
                const std::function<void(std::size_t worker, std::size_t item)>& work);

struct StudyOptions {
  int threads = 1;  // 0: all cores
  // Evaluations at most: further points have an error in the place of an answer.
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  // Called from several threads; `asked`: all points so far.
  std::function<void(std::int64_t done, std::int64_t asked)> progress = {};
};

// Point::text() names a point.
template <class Answer, class Point>
class Study {
 public:
  // The answer at a point, or why there is none.
  struct Row {
    Answer answer = {};
    std::string error = {};
    bool ok() const { return error.empty(); }
  };
  // Answers one point after another. Throws InputError where a point has no answer.
  using Asker = std::function<Answer(const Point&)>;

  // `make`: an asker for each thread.
  explicit Study(std::function<Asker()> make, StudyOptions options = {})
      : make_(std::move(make)), options_(std::move(options)) {}

  // Returns a row for every point, the same ones on any number of threads. A point is asked once; its row
  // stays where it is.
  std::vector<Row*> rows(const std::vector<Point>& points) {
    std::vector<Row*> all;
    std::vector<std::pair<const Point*, Row*>> fresh;
    for (const Point& point : points) {
      const auto [found, added] = rows_.try_emplace(point.text());
      all.push_back(&found->second);
      if (!added) continue;
      if (asked_ == options_.most) {
        found->second.error = "beyond the " + std::to_string(options_.most) + " evaluations of this study";
        continue;
      }
      ++asked_;
      fresh.emplace_back(&point, all.back());
    }
    on_threads(fresh.size(), options_.threads, [&](std::size_t worker, std::size_t item) {
      auto& [point, row] = fresh[item];
      try {
        row->answer = asker(worker)(*point);
      } catch (const InputError& error) {
        row->error = error.what();
      }
      if (options_.progress) options_.progress(++done_, asked_);
    });
    return all;
  }
  Row& at(const Point& point) { return *rows({point}).front(); }

 private:
  // Threads and their askers are kept apart by number, and an asker keeps what it read and priced.
  Asker& asker(std::size_t worker) {
    const std::scoped_lock lock(mutex_);
    Asker& one = askers_[worker];
    if (!one) one = make_();
    return one;
  }

  std::function<Asker()> make_;
  StudyOptions options_;
  std::mutex mutex_;
  std::map<std::size_t, Asker> askers_;
  std::map<std::string, Row> rows_;
  std::int64_t asked_ = 0;
  std::atomic<std::int64_t> done_{0};
};

}  // namespace moesim

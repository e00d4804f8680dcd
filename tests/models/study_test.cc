// A question asked at many points.
#include "models/study/study.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace moesim::models {
namespace {

using Squares = Study<std::int64_t>;

std::vector<Point> points_of(const std::vector<std::int64_t>& numbers) {
  const auto paths = std::make_shared<const std::vector<ScenarioPath>>(1, find_path("topk"));
  std::vector<Point> points;
  for (const std::int64_t n : numbers)
    points.push_back({paths, {value_of(paths->front(), static_cast<double>(n))}});
  return points;
}

// Squares that count how often they are asked; 7 has none.
std::function<Squares::Asker()> squares(std::atomic<int>& asked) {
  return [&] {
    return [&](const Point& point) {
      ++asked;
      const auto n = static_cast<std::int64_t>(point.values.front().number);
      if (n == 7) throw InputError("7 has no square");
      return n * n;
    };
  };
}

TEST(Study, AsksEachPointOnceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    std::atomic<int> asked = 0;
    Squares study(squares(asked), {.threads = threads});
    const std::vector<Squares::Row*> rows = study.rows(points_of({3, 7, 3, 5, 1}));
    EXPECT_EQ(asked, 4);
    EXPECT_EQ(rows[0], rows[2]);
    EXPECT_EQ(rows[1]->error, "7 has no square");
    EXPECT_EQ(rows[0]->answer, 9);
    EXPECT_EQ(rows[3]->answer, 25);
    EXPECT_EQ(rows[4]->answer, 1);
    EXPECT_EQ(&study.at(points_of({5}).front()), rows[3]);
    EXPECT_EQ(asked, 4);
  }
}

TEST(Study, EndsAtItsBudgetWhateverTheThreads) {
  for (const int threads : {1, 4}) {
    std::atomic<int> asked = 0;
    Squares study(squares(asked), {.threads = threads, .most = 3});
    const std::vector<Squares::Row*> rows = study.rows(points_of({1, 2, 3, 4, 2}));
    EXPECT_EQ(asked, 3);
    EXPECT_TRUE(rows[2]->ok() && rows[4]->ok());
    EXPECT_EQ(rows[3]->error, "beyond the 3 evaluations of this study");
  }
}

TEST(Study, AnErrorThatIsNoUsersEndsIt) {
  Squares study(
      []() -> Squares::Asker {
        return [](const Point&) -> std::int64_t { throw std::logic_error("broken"); };
      },
      {.threads = 3});
  EXPECT_THROW(study.rows(points_of({1, 2, 3, 4})), std::logic_error);
}

}  // namespace
}  // namespace moesim::models

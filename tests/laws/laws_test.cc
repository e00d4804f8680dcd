// Every law against random cases. MOESIM_LAW_CASES says how many [20000], MOESIM_LAW_SEED which, MOESIM_LAW one law by its
// name. Other seeds (tools/laws.sh) still find breaks, about one in 8,000 cases, so that a test has a seed of its own. The figures
// of long runs stand in docs/reliability.md.
#include "tests/laws/laws.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/cases.h"

namespace moesim::laws {
namespace {

std::uint64_t number_of(const char* name, std::uint64_t fallback) {
  const char* said = std::getenv(name);
  return said ? std::strtoull(said, nullptr, 10) : fallback;
}

// Sanitizers make a case ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kCases = 1'000;
#else
constexpr std::uint64_t kCases = 20'000;
#endif

struct Broken {
  Case one;
  std::uint64_t draw = 0;  // seed of what the law draws
  std::uint64_t count = 0;
};

struct Ran {
  std::map<std::string, std::uint64_t> spoke;  // by law
  std::map<std::string, Broken> broken;
  std::uint64_t cases = 0, refused = 0;
};

std::optional<std::string> check(const Law& law, const Case& one, std::uint64_t seed, const Ask& ask) {
  const std::optional<Seen> seen = ask(one);
  if (!seen) return std::nullopt;
  Random draw(seed);
  return law.check(one, *seen, draw, ask);
}

// A law that errs, or a question that ends in something else than an answer or a refusal.
std::optional<std::string> outcome(const Law& law, const Case& one, const Seen& seen, std::uint64_t seed,
                                   const Ask& ask) {
  Random draw(seed);
  try {
    return law.check(one, seen, draw, ask);
  } catch (const std::exception& error) {
    return std::string("it ends in: ") + error.what();
  }
}

// So many cases over all cores. `only`: one law.
Ran run(std::uint64_t cases, std::uint64_t seed, const std::string& only, const Ask& ask,
        const std::vector<Law>& all = laws()) {
  constexpr std::uint64_t kOfAScenario = 4;
  std::vector<const Law*> weighted;
  for (const Law& law : all)
    for (int i = 0; i < law.often; ++i)
      if (only.empty() || law.name == only) weighted.push_back(&law);
  Ran ran;
  std::mutex mutex;
  std::atomic<std::uint64_t> next = 0;
  const auto work = [&] {
    for (std::uint64_t index; (index = next++) < cases / kOfAScenario;) {
      Random draw = Random::for_item(seed, index);
      Case one;
      std::optional<Seen> seen;
      std::uint64_t refused = 0;
      for (;; ++refused) {
        one = random_case(draw);
        if ((seen = ask(one))) break;
      }
      std::set<const Law*> asked;
      std::uint64_t spoke = 0;
      for (int tries = 0; tries < 24 && spoke < (only.empty() ? kOfAScenario : 1); ++tries) {
        const Law* law = one_of(draw, weighted);
        const std::uint64_t own = draw.next();
        if (!asked.insert(law).second) continue;
        const auto wrong = outcome(*law, one, *seen, own, ask);
        if (!wrong) continue;
        ++spoke;
        const std::lock_guard lock(mutex);
        ++ran.spoke[law->name];
        if (wrong->empty()) continue;
        Broken& known = ran.broken.try_emplace(law->name, Broken{one, own}).first->second;
        // As soon as it is found: a long run may not come to its end.
        if (++known.count <= 3)
          std::fprintf(stderr, "%s\n  %s\n  %s\n", law->name.c_str(), one.command().c_str(), wrong->c_str());
        // Deterministic for any number of threads.
        if (one.scenario.dump() < known.one.scenario.dump()) known.one = one, known.draw = own;
      }
      const std::lock_guard lock(mutex);
      ran.cases += spoke;
      ran.refused += refused;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& one : threads) one.join();
  return ran;
}

const Law& named(const std::string& name) {
  for (const auto* all : {&laws(), &laws_of_parts()})
    for (const Law& law : *all)
      if (law.name == name) return law;
  std::abort();
}

std::string smallest(const std::string& name, const Broken& broken, const Ask& ask) {
  const Law& law = named(name);
  const auto wrong = [&](const Case& one) {
    try {
      return check(law, one, broken.draw, ask).value_or("");
    } catch (const std::exception& error) {
      return std::string("it ends in: ") + error.what();
    }
  };
  const Case small = shrunk(broken.one, [&](const Case& one) { return !wrong(one).empty(); });
  return fmt::format("{} ({} times): {}{}{}\n  {}\n  {}\n", law.name, broken.count, law.says,
                     law.holds.empty() ? "" : "; holds for ", law.holds, small.command(), wrong(small));
}

// `share`: of the cases that are asked for; `speak`: of them, those of which some law has to say something.
void hold(const std::vector<Law>& all, std::uint64_t share, double speak, std::uint64_t usual) {
  const std::uint64_t cases = number_of("MOESIM_LAW_CASES", kCases) / share;
  const std::uint64_t seed = number_of("MOESIM_LAW_SEED", usual);
  std::printf("MOESIM_LAW_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const char* only = std::getenv("MOESIM_LAW");
  if (only && std::ranges::find(all, only, &Law::name) == all.end()) return;
  const Ran ran = run(cases, seed, only ? only : "", ask, all);
  for (const auto& [name, broken] : ran.broken) ADD_FAILURE() << smallest(name, broken, ask);
  std::string table;
  for (const auto& [name, count] : ran.spoke) table += fmt::format("  {:>8}  {}\n", count, name);
  std::printf("%llu cases, %llu questions refused on the way\n%s", static_cast<unsigned long long>(ran.cases),
              static_cast<unsigned long long>(ran.refused), table.c_str());
  if (only || cases < 20'000 / share) return;
  EXPECT_GE(static_cast<double>(ran.cases), speak * static_cast<double>(cases));
  for (const Law& law : all)
    EXPECT_GT(ran.spoke.count(law.name), 0u) << law.name << " said nothing of any case";
}

TEST(Laws, Hold) { hold(laws(), 1, 0.9, 1); }

std::vector<Law> of_parts(bool lines) {
  std::vector<Law> all = laws_of_parts();
  std::erase_if(all, [&](const Law& law) { return (law.name == "a product line's better part") != lines; });
  return all;
}

TEST(Laws, OfPartsHold) { hold(of_parts(false), 10, 0.02, 1711850020); }
TEST(Laws, OfProductLinesHold) { hold(of_parts(true), 10, 0.18, 1); }

// The smallest cases that once broke a law: the model was mended, or the law says now where it does not hold.
TEST(Laws, HoldWhereTheyOnceDidNot) {
  for (const auto& worked : testing::cases("laws/once_broken.json", "cases")) {
    Case one;
    one.scenario = worked["scenario"];
    const std::string law = worked["law"];
    SCOPED_TRACE(law + ": " + one.command());
    ASSERT_TRUE(ask(one));
    const auto wrong = check(named(law), one, 1, ask);
    EXPECT_EQ(wrong.has_value(), worked["speaks"].get<bool>());
    EXPECT_EQ(wrong.value_or(""), "");
  }
}

// For a model that is slower on a faster network where the sequence has 1,024 tokens or more, the harness
// finds the smallest case.
TEST(Laws, FindWhatIsWrongAndMakeItSmall) {
  const Ask wrong = [](const Case& one) -> std::optional<Seen> {
    Seen seen;
    seen.us = 1000;
    if (one.get("parallel.seq", 0) >= 1024) seen.us += one.cluster().nic.bandwidth * 1e-9;
    return seen;
  };
  const Ran ran = run(4000, 1, "better nic.bandwidth", wrong);
  ASSERT_EQ(ran.broken.size(), 1u);
  const std::string& name = ran.broken.begin()->first;
  const auto& broken = ran.broken.begin()->second;
  const Case small = shrunk(broken.one, [&](const Case& one) {
    return !check(named(name), one, broken.draw, wrong).value_or("").empty();
  });
  // Halving leaves less than twice the least.
  EXPECT_GE(small.get("parallel.seq", 0), 1024);
  EXPECT_LT(small.get("parallel.seq", 0), 2048);
  EXPECT_EQ(
      small.with("parallel.seq", 1024).scenario.dump(),
      R"({"cluster":"dgx-h100x1","dispatcher":"alltoall","model":"olmoe","parallel":{"ep":1,"seq":1024},"routing":"balanced"})");
}

}  // namespace
}  // namespace moesim::laws

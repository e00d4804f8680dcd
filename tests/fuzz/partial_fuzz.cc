// Any bytes as the files of an interrupted sweep: rows, their chain of checksums, the definition of the
// sweep, and, in a fourth and fifth part, a finished table and its record. Refused with one line, or resumed:
// the kept rows are then a prefix up to a checksum, and the finished table is this prefix and the later rows.
// An "@" in the chain stands for the right checksum, which cannot be guessed.
#include <fmt/format.h>

#include <optional>

#include "base/sha256.h"
#include "base/text.h"
#include "tests/fuzz/one_line.h"
#include "tests/fuzz/parts.h"
#include "tools/moesim/study/sweep_file.h"

namespace {

using namespace moesim;

constexpr const char* kDefinition = "{\"scenarios\": 3, \"files\": {}}\n";

// The chain with checksums of `rows` in the place of "@".
std::string with_sums(std::string_view chain, std::string_view rows) {
  std::string made, link = sha256_hex(kDefinition);
  std::size_t before = 0;
  for (const std::string_view line : split(chain, '\n')) {
    const auto words = split(line, ' ');
    const auto scenarios = words.size() == 3 ? parse_int(words[0]) : std::nullopt;
    const auto bytes = words.size() == 3 ? parse_int(words[1]) : std::nullopt;
    if (scenarios && *scenarios >= 0 && bytes && *bytes >= 0 && static_cast<std::size_t>(*bytes) >= before &&
        static_cast<std::size_t>(*bytes) <= rows.size()) {
      link =
          tools::sweep_link(link, static_cast<std::uint64_t>(*scenarios), static_cast<std::uint64_t>(*bytes),
                            rows.substr(before, static_cast<std::size_t>(*bytes) - before));
      before = static_cast<std::size_t>(*bytes);
      if (words[2] == "@") {
        made += fmt::format("{} {} {}\n", words[0], words[1], link);
        continue;
      }
    }
    made += std::string(line) + "\n";
  }
  if (!made.empty()) made.pop_back();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size));
  const auto part = [&](std::size_t i) { return i < parts.size() ? parts[i] : std::string_view(); };
  const fuzz::Folder folder;
  const auto table = folder / "t.csv";
  const std::string rows(part(0));
  if (!rows.empty() || parts.size() < 4) {
    write_file(folder / "t.csv.partial", rows);
    write_file(folder / "t.csv.partial.sums", with_sums(part(1), rows));
    write_file(folder / "t.csv.partial.json", part(2) == "@" ? kDefinition : std::string(part(2)));
  }
  if (parts.size() > 3) write_file(table, part(3));
  if (parts.size() > 4) write_file(tools::SweepFile::record_of(table), part(4));
  constexpr const char* kMore = "made anew\n";
  std::optional<std::string> whole;
  fuzz::accepted([&] {
    tools::SweepFile file(table, kDefinition, "header\n", tools::SweepStart::kResume);
    if (file.complete()) {
      check(file.first() == 0, "a finished sweep has nothing to do");
      return;
    }
    const std::string kept = read_own_file(tools::SweepFile::partial_of(table));
    check(kept == "header\n" || std::string_view(rows).starts_with(kept), "what is kept was there");
    file.append(kMore, file.first() + 1);
    file.finish("{}\n");
    whole = kept + kMore;
    check(file.sha256() == sha256_hex(*whole), "the checksum is that of the rows");
  });
  if (!whole) return 0;
  check(read_own_file(table) == *whole, "the table is what was kept and what came after");
  check(!path_exists(tools::SweepFile::partial_of(table)), "and nothing is left of the partial");
  return 0;
}

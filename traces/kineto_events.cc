#include "traces/kineto_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "traces/gzip_stream.h"

namespace moesim::traces {

namespace {

using Json = nlohmann::json;

constexpr double kNsPerUs = 1e3;
constexpr double kMostNs = 4e18;             // of a time; 2096 in the Unix epoch
constexpr std::size_t kMostDepth = 64;       // of nested values; profilers write five levels
constexpr std::size_t kMostRanks = 1 << 20;  // of a process group
constexpr std::size_t kLongestName = 4096;   // bytes of a name that are kept

// Parses "[0, 1, 2]"; empty for an incomplete list.
std::vector<std::int64_t> parse_list(std::string_view text) {
  std::vector<std::int64_t> out;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return out;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    std::int64_t value = 0;
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] == ' ') ++digits;
    const std::size_t first = digits;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < first + 9; ++digits)
      value = value * 10 + (text[digits] - '0');
    if (digits == first || (digits < text.size() && text[digits] != ',') || out.size() == kMostRanks)
      return {};
    out.push_back(value);
    text.remove_prefix(std::min(text.size(), digits + 1));
  }
  return out;
}

// Returns nanoseconds of "1694128201436271.125" microseconds, which a double represents to a quarter of one
// only.
std::optional<std::int64_t> exact_ns(std::string_view text) {
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos || point == 0 || point > 16) return std::nullopt;
  std::int64_t ns = 0;
  for (std::size_t i = 0; i < point + 4; ++i) {
    if (i == point) continue;
    const char c = i < text.size() ? text[i] : '0';
    if (c < '0' || c > '9') return std::nullopt;
    const int digit = c - '0';
    if (ns > (std::numeric_limits<std::int64_t>::max() - digit) / 10) return std::nullopt;
    ns = ns * 10 + digit;
  }
  return text.find_first_of("eE") == std::string_view::npos ? std::optional(ns) : std::nullopt;
}

// Follows the parser through the text. Level 1 is the outermost object (or the bare list of events).
class Handler {
 public:
  Handler(const std::string& file, const GzipStream& stream,
          const std::function<void(const KinetoEvent&)>& event)
      : file_(file), stream_(stream), event_(event) {}

  KinetoFacts facts;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t value) { return number(static_cast<double>(value), value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    constexpr auto kMost = static_cast<Json::number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    return number(static_cast<double>(value), static_cast<std::int64_t>(std::min(value, kMost)));
  }
  bool number_float(Json::number_float_t value, const Json::string_t& text) {
    const bool fits = std::isfinite(value) && std::abs(value) < 9e18;
    exact_ns_ = exact_ns(text);
    number(value, fits ? static_cast<std::int64_t>(value) : 0);
    exact_ns_.reset();
    return true;
  }
  bool string(Json::string_t& value) {
    if (in_event() && levels_.size() == event_level_) {
      if (key_ == "ph") complete_ = value == "X";
      if (key_ == "cat") now_.category = value;
      if (key_ == "name") now_.name = value.substr(0, kLongestName);
      if (key_ == "tid") now_.thread = value;
      if (key_ == "ts" || key_ == "dur") fail("\"" + key_ + "\" that is a text", "a number of microseconds");
    } else if (in_args()) {
      argument(value);
    } else if (levels_.size() == 2 && section_ == "distributedInfo") {
      if (key_ == "backend") facts.backend = value;
    } else if (in_group_list()) {
      if (key_ == "pg_name") group_.name = value;
      if (key_ == "pg_desc") group_.description = value;
      if (key_ == "ranks") group_.ranks = parse_list(value);
    } else if (section_ == "deviceProperties" && levels_.size() == 3 && key_ == "name" &&
               facts.device.empty()) {
      facts.device = value;
    }
    return true;
  }
  bool binary(Json::binary_t&) { return true; }
  bool key(Json::string_t& value) {
    key_ = value;
    if (levels_.size() == 1) section_ = value;
    return true;
  }
  bool start_object(std::size_t) {
    push(Level::object);
    if (events_level_ > 0 && levels_.size() == events_level_ + 1) {
      now_ = {};
      complete_ = timed_ = false;
      event_level_ = levels_.size();
    } else if (in_event() && levels_.size() == event_level_ + 1) {
      args_ = key_ == "args";
    } else if (in_group_list()) {
      group_ = {};
    }
    return true;
  }
  bool end_object() {
    if (in_event() && levels_.size() == event_level_) {
      finish_event();
      event_level_ = 0;
    } else if (in_event() && levels_.size() == event_level_ + 1) {
      args_ = false;
    } else if (in_group_list()) {
      facts.groups.push_back(std::move(group_));
    }
    pop();
    return true;
  }
  bool start_array(std::size_t) {
    push(Level::array);
    const bool bare = levels_.size() == 1;
    if (bare || (levels_.size() == 2 && section_ == "traceEvents")) {
      events_level_ = levels_.size();
      seen_events_ = true;
    }
    if (in_args()) {
      list_key_ = key_;
      dims_.clear();
      dims_depth_ = levels_.size();
    }
    return true;
  }
  bool end_array() {
    if (events_level_ == levels_.size()) events_level_ = 0;
    // The first list of numbers is the first input's dimensions: [[2048, 4096], []].
    if (in_args() && list_key_ == "Input Dims" && !now_.elements && levels_.size() == dims_depth_ &&
        !dims_.empty()) {
      double product = 1;
      for (const std::int64_t dim : dims_) product *= static_cast<double>(dim);
      if (product >= 0 && product < 1e15) now_.elements = static_cast<std::int64_t>(product);
    }
    pop();
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const Json::exception&) {
    if (!stream_.problem().empty()) fail(stream_.problem(), "a whole gzip file");
    std::string shown;
    for (const char c : token.substr(0, 40)) shown += c >= ' ' && c < 127 ? c : '?';
    const bool ended = token.find("<U+0000>") != std::string::npos || token.empty() || stream_ended_();
    if (ended) fail("the end of the file inside an unfinished trace", "a whole JSON text");
    fail(in_quotes(shown) + " where it is no JSON", "a whole JSON text");
  }

  void finish() const {
    if (!seen_events_)
      throw InputError(SourcePlace{file_}, "no \"traceEvents\"", "a trace of the PyTorch profiler");
  }
  // Whether the input is exhausted.
  std::function<bool()> stream_ended_;

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, static_cast<long>(stream_.line())}, found, expected);
  }

 private:
  enum class Level : std::uint8_t { object, array };

  void push(Level level) {
    if (levels_.size() == kMostDepth) fail("values nested 65 levels deep", "at most 64");
    levels_.push_back(level);
  }
  void pop() { levels_.pop_back(); }

  bool in_event() const { return event_level_ > 0; }
  bool in_args() const { return in_event() && args_; }
  // Elements of distributedInfo.pg_config.
  bool in_group_list() const { return !in_event() && section_ == "distributedInfo" && levels_.size() == 4; }

  bool number(double value, std::int64_t whole) {
    if (in_event() && levels_.size() == event_level_) {
      if (key_ == "ts" || key_ == "dur") {
        if (!(value >= 0 && value * kNsPerUs < kMostNs))
          fail("\"" + key_ + "\" of " + std::to_string(value), "microseconds from 0 to 4e15");
        const std::int64_t ns = exact_ns_.value_or(std::llround(value * kNsPerUs));
        (key_ == "ts" ? now_.start_ns : now_.duration_ns) = ns;
        timed_ |= key_ == "ts";
      }
      if (key_ == "tid") now_.thread = std::to_string(whole);
    } else if (in_args()) {
      if (levels_.size() > event_level_ + 1) {
        if (list_key_ == "Input Dims" && dims_.size() < 16) dims_.push_back(std::max<std::int64_t>(0, whole));
        dims_depth_ = levels_.size();
      } else {
        argument(whole);
      }
    } else if (levels_.size() == 1 && key_ == "baseTimeNanoseconds") {
      facts.base_ns = whole;
    } else if (levels_.size() == 2 && section_ == "distributedInfo") {
      if (key_ == "rank") facts.rank = whole;
      if (key_ == "world_size") facts.world = whole;
    } else if (!in_event() && section_ == "distributedInfo" && levels_.size() == 5 && key_ == "ranks") {
      if (group_.ranks.size() < kMostRanks) group_.ranks.push_back(whole);
    }
    return true;
  }

  void argument(std::int64_t value) {
    if (key_ == "correlation") now_.correlation = value;
    if (key_ == "stream") now_.stream = value;
    if (key_ == "In msg nelems") now_.elements = std::max<std::int64_t>(0, value);
    if (key_ == "Group size") now_.group_size = value;
    if (key_ == "Src Rank") now_.source_rank = value;
    if (key_ == "Dst Rank") now_.destination_rank = value;
  }
  void argument(const std::string& value) {
    if (levels_.size() > event_level_ + 1) {
      if (list_key_ == "Input type" && now_.dtype.empty()) now_.dtype = value;
      return;
    }
    if (key_ == "Collective name") now_.collective = value;
    if (key_ == "dtype") now_.dtype = value;
    if (key_ == "Process Group Name") now_.group_name = value;
    if (key_ == "Process Group Description") now_.group_description = value;
    if (key_ == "Process Group Ranks") now_.group_ranks = parse_list(value);
  }

  void finish_event() {
    if (!complete_) return;
    if (!timed_) fail("an event " + in_quotes(now_.name.substr(0, 60)) + " without \"ts\"", "a time");
    ++facts.events;
    event_(now_);
  }

  const std::string& file_;
  const GzipStream& stream_;
  const std::function<void(const KinetoEvent&)>& event_;
  std::vector<Level> levels_;
  std::string section_, key_, list_key_;
  std::size_t events_level_ = 0;  // of the list of events while inside it
  std::size_t event_level_ = 0;   // of an event's object while inside it
  std::size_t dims_depth_ = 0;
  std::optional<std::int64_t> exact_ns_;  // of a number with decimals
  bool args_ = false, complete_ = false, timed_ = false, seen_events_ = false;
  std::vector<std::int64_t> dims_;
  KinetoEvent now_;
  KinetoGroup group_;
};

bool is_end(int c) { return c == std::char_traits<char>::eof(); }

class StreamSource {
 public:
  StreamSource() = default;  // at its end
  StreamSource(GzipStream& stream, const Handler& handler) : stream_(&stream), handler_(&handler) {
    take(stream.sgetc());
  }
  bool done() const { return done_; }
  const char& here() const { return here_; }
  void next() { take(stream_->snextc()); }
  [[noreturn]] void too_long() const {
    handler_->fail(fmt::format("a text or number of more than {} characters", kMaxJsonToken), "fewer");
  }

 private:
  void take(int c) {
    done_ = is_end(c);
    here_ = done_ ? '\0' : static_cast<char>(c);
  }

  GzipStream* stream_ = nullptr;
  const Handler* handler_ = nullptr;
  char here_ = '\0';
  bool done_ = true;
};

}  // namespace

KinetoFacts scan_kineto(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event) {
  const std::string file = path.string();
  GzipStream buffer(path);
  Handler handler(file, buffer, event);
  handler.stream_ended_ = [&] { return is_end(buffer.sgetc()); };
  using Chars = JsonChars<StreamSource>;
  Json::sax_parse(Chars(StreamSource(buffer, handler)), Chars(), &handler);
  // Reads past the last bracket: the trailer contains the checksum of the unpacked data.
  if (!buffer.problem().empty())
    throw InputError(SourcePlace{file, static_cast<long>(buffer.line())}, buffer.problem(),
                     "a whole gzip file");
  // nlohmann's lexer takes a zero for the end.
  if (buffer.zeros())
    throw InputError(SourcePlace{file, static_cast<long>(buffer.line())}, "the byte 0x00", "text in UTF-8");
  handler.finish();
  return std::move(handler.facts);
}

}  // namespace moesim::traces

#include "tools/moesim/read/layer_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace moesim::tools {

namespace {

using List = std::vector<std::int64_t>;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<List> all() {
    auto list = sum(0);
    blanks();
    return at_ == text_.size() ? list : std::nullopt;
  }

 private:
  static constexpr int kDepth = 32;

  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::optional<std::int64_t> whole() {
    blanks();
    const std::size_t start = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    const auto n = parse_int(text_.substr(start, at_ - start));
    return n && *n <= static_cast<long long>(kMaxLayerList) ? std::optional<std::int64_t>(*n) : std::nullopt;
  }
  std::optional<List> bracket() {
    List list;
    if (take(']')) return list;
    do {
      if (const auto n = whole())
        list.push_back(*n);
      else
        return std::nullopt;
    } while (take(','));
    return take(']') ? std::optional(list) : std::nullopt;
  }
  std::optional<List> product(int depth) {
    if (depth > kDepth) return std::nullopt;
    std::optional<List> list;
    if (take('('))
      list = take_sum(depth);
    else if (take('['))
      list = bracket();
    if (!list) return std::nullopt;
    while (take('*')) {
      const auto times = whole();
      if (!times || (!list->empty() && static_cast<std::size_t>(*times) > kMaxLayerList / list->size()))
        return std::nullopt;
      List repeated;
      for (std::int64_t i = 0; i < (list->empty() ? 0 : *times); ++i)
        repeated.insert(repeated.end(), list->begin(), list->end());
      list = std::move(repeated);
    }
    return list;
  }
  std::optional<List> take_sum(int depth) {
    auto list = sum(depth + 1);
    return list && take(')') ? list : std::nullopt;
  }
  std::optional<List> sum(int depth) {
    auto list = product(depth);
    while (list && take('+')) {
      const auto more = product(depth);
      if (!more || list->size() + more->size() > kMaxLayerList) return std::nullopt;
      list->insert(list->end(), more->begin(), more->end());
    }
    return list;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<List> layer_list(std::string_view text) { return Parser(text).all(); }

std::string layer_list_text(const ExpertLayers& form, std::int64_t layers) {
  std::vector<std::string> parts;
  const auto add = [&](int what, std::int64_t count) {
    if (count > 0) parts.push_back(fmt::format("[{}]*{}", what, count));
  };
  add(0, form.dense);
  const std::int64_t left = layers - form.dense, rounds = left / form.every;
  if (form.every == 1)
    add(1, rounds);
  else if (rounds > 0)
    parts.push_back(fmt::format("([0]*{}+[1])*{}", form.every - 1, rounds));
  add(0, left - rounds * form.every);
  return "(" + join(parts, "+") + ")";
}

}  // namespace moesim::tools

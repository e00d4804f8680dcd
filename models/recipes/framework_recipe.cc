#include "models/recipes/framework_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"

namespace moesim::models {

namespace {

std::string in_small_letters(std::string_view text) {
  std::string small;
  for (const char c : text) small += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

// Year and month of a release: "26.04.01" is 26.04, since patches count as their release; so is "2026-04".
using Release = std::pair<long long, long long>;

std::optional<Release> release_of(std::string_view text) {
  const auto number = [&](std::size_t& at) -> std::optional<long long> {
    const std::size_t begin = at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return parse_int(text.substr(begin, at - begin));
  };
  std::size_t at = 0;
  const auto first = number(at);
  if (!first) return std::nullopt;
  if (at == text.size() || (text[at] != '.' && text[at] != '-')) return Release{*first, 0};
  const bool date = text[at++] == '-';
  const long long second = number(at).value_or(0);
  return Release{date ? *first % 100 : *first, second};
}

// Returns the first word of a free-form name that is a release or a month.
std::optional<Release> release_in(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i]));
    const bool inside =
        i > 0 && (std::isalnum(static_cast<unsigned char>(text[i - 1])) || text[i - 1] == '.');
    if (!digit || inside) continue;
    const std::size_t end = text.find_first_not_of("0123456789", i);
    if (end == std::string_view::npos || (text[end] != '.' && text[end] != '-')) continue;
    return release_of(text.substr(i));
  }
  return std::nullopt;
}

std::vector<std::string> texts_of(const JsonNode& node) {
  std::vector<std::string> all;
  if (node.is_string()) return {node.string()};
  for (const JsonNode& item : node.items()) all.push_back(item.string());
  return all;
}

RecipeCondition condition_of(const std::string& fact, const JsonNode& value) {
  RecipeCondition c;
  c.fact = fact;
  if (value.is_integer()) {
    c.equal = value.integer(1);
  } else if (value.is_object()) {
    JsonObject o(value);
    c.above = o.integer("above", 0, 1);
    c.multiple_of = o.string("multiple_of", "");
    o.finish();
  } else {
    c.prefixes = texts_of(value);
  }
  return c;
}

RecipeLine line_of(const JsonNode& node) {
  RecipeLine line;
  JsonObject o(node);
  if (const auto when = o.find("when"))
    for (const std::string& fact : when->keys()) line.when.push_back(condition_of(fact, *when->find(fact)));
  const JsonNode set = o.at("set");
  for (const std::string& path : set.keys())
    line.set.push_back({path, std::make_shared<const nlohmann::json>(set.find(path)->to_json())});
  line.source = o.at("source").string();
  if (line.source.empty()) node.fail("a line without a source", "where it was read");
  o.finish();
  return line;
}

bool listed(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}

const FrameworkRecipe* newest(std::span<const FrameworkRecipe> all, std::string_view name,
                              const std::optional<Release>& at_most) {
  const FrameworkRecipe* found = nullptr;
  for (const FrameworkRecipe& r : all) {
    if (r.name != name) continue;
    if (!found || !at_most || release_of(r.version).value_or(Release{}) <= *at_most) found = &r;
  }
  return found;
}

}  // namespace

bool RecipeCondition::holds(const RecipeFacts& facts) const {
  const auto at = facts.find(fact);
  if (at == facts.end()) return false;
  if (const auto* text = std::get_if<std::string>(&at->second))
    return std::ranges::any_of(prefixes, [&](const std::string& p) { return text->starts_with(p); });
  const std::int64_t number = std::get<std::int64_t>(at->second);
  if (!multiple_of.empty()) {
    const auto divisor = facts.find(multiple_of);
    const auto* by = divisor == facts.end() ? nullptr : std::get_if<std::int64_t>(&divisor->second);
    return by && *by > 0 && number % *by == 0;
  }
  return equal > 0 ? number == equal : above > 0 && number > above;
}

bool RecipeLine::holds(const RecipeFacts& facts) const {
  return std::ranges::all_of(when, [&](const RecipeCondition& c) { return c.holds(facts); });
}

std::string FrameworkRecipe::id() const { return version.empty() ? name : name + "@" + version; }

bool FrameworkRecipe::runs_dispatcher(std::string_view dispatcher) const {
  return listed(runs.dispatchers, dispatcher);
}
bool FrameworkRecipe::runs_schedule(std::string_view schedule) const {
  return listed(runs.schedules, schedule);
}
bool FrameworkRecipe::runs_launch(std::string_view launch) const { return listed(runs.launches, launch); }

FrameworkRecipe FrameworkRecipe::parse(const JsonNode& node, std::span<const FrameworkRecipe> extended) {
  FrameworkRecipe r;
  JsonObject o(node);
  r.name = o.at("name").string();
  r.version = o.string("version", "");
  r.about = o.at("about").string();
  r.trains = o.boolean("trains", true);
  r.spread = o.number("spread", 0, 0, 2);
  r.holds_one_microbatch = o.boolean("holds_one_microbatch", false);
  if (const auto written = o.find("written")) r.written = texts_of(*written);
  for (const JsonNode& line : o.at("lines").items()) r.lines.push_back(line_of(line));
  if (const auto runs = o.find("runs")) {
    JsonObject lists(*runs);
    if (const auto list = lists.find("dispatchers")) r.runs.dispatchers = texts_of(*list);
    if (const auto list = lists.find("schedules")) r.runs.schedules = texts_of(*list);
    if (const auto list = lists.find("launches")) r.runs.launches = texts_of(*list);
    if (const auto list = lists.find("recomputes")) r.runs.recomputes = texts_of(*list);
    if (lists.at("source").string().empty()) runs->fail("no source", "where it was read");
    lists.finish();
  }
  if (const auto base = o.find("extends")) {
    const std::string id = base->string();
    const auto at = std::ranges::find_if(extended, [&](const FrameworkRecipe& e) { return e.id() == id; });
    if (at == extended.end()) base->fail(base->describe(), "another recipe");
    r.lines.insert(r.lines.end(), at->lines.begin(), at->lines.end());
    if (!o.find("runs")) r.runs = at->runs;
    if (!o.find("written")) r.written = at->written;
  }
  o.finish();
  return r;
}

std::span<const FrameworkRecipe> FrameworkRecipe::all() {
  static const std::vector<FrameworkRecipe> all = [] {
    // Reads base files before the files that extend them.
    std::vector<JsonNode> left;
    for (const EmbeddedProfile& file : embedded_recipes())
      left.push_back(JsonNode::parse(file.json, "models/recipes/" + std::string(file.name) + ".json"));
    std::vector<FrameworkRecipe> done;
    while (!left.empty()) {
      const std::size_t before = left.size();
      std::erase_if(left, [&](const JsonNode& node) {
        const auto base = node.find("extends");
        if (base && std::ranges::none_of(done, [&](const auto& d) { return d.id() == base->string(); }))
          return false;
        done.push_back(FrameworkRecipe::parse(node, done));
        return true;
      });
      check(left.size() < before, "every recipe extends one that is there");
    }
    std::ranges::sort(done, [](const FrameworkRecipe& a, const FrameworkRecipe& b) {
      return std::pair(a.name, release_of(a.version)) < std::pair(b.name, release_of(b.version));
    });
    return done;
  }();
  return all;
}

FrameworkRecipe FrameworkRecipe::find(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string name(trim(text.substr(0, at)));
  const std::string version(at == std::string_view::npos ? std::string_view() : trim(text.substr(at + 1)));
  const auto release = release_of(version);
  const FrameworkRecipe* found = newest(all(), name, release);
  if (!found || (at != std::string_view::npos && !release)) {
    std::vector<std::string> names;
    for (const FrameworkRecipe& r : all())
      if (names.empty() || names.back() != r.name) names.push_back(r.name);
    const std::string bad = found ? version : name;
    throw InputError(fmt::format("recipe: found {}, expected {}{}", in_quotes(text),
                                 found ? "a version such as " + found->id() : "one of " + join(names, ", "),
                                 found ? "" : did_you_mean(bad, names)));
  }
  FrameworkRecipe result = *found;
  // Lines hold until a later file changes them: the requested release has them.
  if (release && !found->version.empty()) result.version = version;
  return result;
}

std::shared_ptr<const FrameworkRecipe> FrameworkRecipe::recognise(std::string_view framework) {
  const std::string text = in_small_letters(trim(framework));
  const FrameworkRecipe* best = nullptr;
  std::size_t longest = 0;
  for (const FrameworkRecipe& r : all())
    for (const std::string& part : r.written) {
      const bool has = part.starts_with('=')
                           ? text == part.substr(1)
                           : std::ranges::all_of(split(part, '*'), [&](std::string_view piece) {
                               return text.find(piece) != std::string::npos;
                             });
      // Files of one name have the same parts: the newest is taken.
      if (has && part.size() >= longest) best = &r, longest = part.size();
    }
  if (!best) return nullptr;
  const auto release = best->version.empty() ? std::nullopt : release_in(text);
  if (!release) return std::make_shared<const FrameworkRecipe>(*best);
  return std::make_shared<const FrameworkRecipe>(
      find(fmt::format("{}@{}.{:02}", best->name, release->first, release->second)));
}

}  // namespace moesim::models

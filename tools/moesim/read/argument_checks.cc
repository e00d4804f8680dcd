#include "tools/moesim/read/argument_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"
#include "models/workload/fields.h"
#include "tools/moesim/read/layer_list.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools {

namespace {

// A value of a condition: a text, and the number that it is. Nothing is an empty text, and 0.
struct Value {
  std::string text;  // empty for a number that was computed
  std::optional<double> number;

  static Value of(double n) { return {"", n}; }
  static Value of(std::string text) {
    if (text == "true" || text == "True") return of(1);
    if (text == "false" || text == "False" || text == "none" || text == "None" || text == "null") return {};
    const auto n = parse_number(text);
    return {std::move(text), n};
  }
  std::string written() const { return text.empty() && holds() ? fmt::format("{}", *number) : text; }
  double as_number() const { return number.value_or(0); }
  bool holds() const { return number ? *number != 0 : !text.empty(); }
  friend bool operator==(const Value& a, const Value& b) {
    return a.number && b.number ? *a.number == *b.number : a.written() == b.written();
  }
};

struct Node {
  std::string what;  // "name", "text", "number", "call", or an operator
  std::string word;
  double number = 0;
  std::vector<Node> parts;
};

// Reads a condition. Rules are a file of ours: a mistake in them is an error of the program.
class ConditionParser {
 public:
  explicit ConditionParser(std::string_view text) : text_(text) { next(); }

  Node whole() {
    Node all = either();
    check(word_.empty(), "a condition of argument_checks.json ends");
    return all;
  }

 private:
  void next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    const std::size_t from = at_;
    const auto is_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (at_ < text_.size() && text_[at_] == '\'')
      at_ = text_.find('\'', at_ + 1) + 1;
    else if (at_ < text_.size() && is_word(text_[at_]))
      while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.')) ++at_;
    else if (at_ < text_.size())
      at_ += text_.substr(at_ + 1, 1) == "=" ? 2 : 1;
    word_ = text_.substr(from, at_ - from);
  }
  bool take(std::string_view word) {
    if (word_ != word) return false;
    next();
    return true;
  }
  // Reads parts joined by one of `words`, from the left.
  template <class Part>
  Node joined(std::initializer_list<std::string_view> words, Part part) {
    Node left = part();
    while (std::ranges::find(words, word_) != words.end()) {
      Node both{std::string(word_), "", 0, {}};
      next();
      both.parts.push_back(std::move(left));
      both.parts.push_back(part());
      left = std::move(both);
    }
    return left;
  }
  Node either() {
    return joined({"or"}, [&] { return joined({"and"}, [&] { return negated(); }); });
  }
  Node negated() {
    if (!take("not")) return compared();
    return {"not", "", 0, {negated()}};
  }
  Node compared() {
    Node left = sum();
    if (take("in")) {
      Node in{"in", "", 0, {std::move(left)}};
      for (Node& one : listed()) in.parts.push_back(std::move(one));
      return in;
    }
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(op)) {
        Node both{std::string(op), "", 0, {}};
        both.parts.push_back(std::move(left));
        both.parts.push_back(sum());
        return both;
      }
    return left;
  }
  Node sum() {
    return joined({"+", "-"}, [&] { return joined({"*", "/", "%"}, [&] { return atom(); }); });
  }
  std::vector<Node> listed() {
    std::vector<Node> all;
    check(take("("), "a list begins");
    do all.push_back(either());
    while (take(","));
    check(take(")"), "a list ends");
    return all;
  }
  Node atom() {
    const std::string word(word_);
    check(!word.empty(), "a condition has a value");
    if (word == "(") {
      next();
      Node inside = either();
      check(take(")"), "a bracket closes");
      return inside;
    }
    next();
    if (word.front() == '\'') return {"text", word.substr(1, word.size() - 2), 0, {}};
    if (const auto n = parse_number(word)) return {"number", "", *n, {}};
    if (word_ != "(") return {"name", word, 0, {}};
    return {"call", word, 0, listed()};
  }

  std::string_view text_, word_;
  std::size_t at_ = 0;
};

struct Rule {
  BrokenRule rule;
  Node when;
  int since = 0;
};

constexpr std::string_view kPlan = "plan.";  // what a resolved plan says

struct RuleBook {
  std::map<std::string, Value, std::less<>> defaults;
  std::map<std::string, Node, std::less<>> shared;
  std::vector<Rule> rules;
};

RuleBook read_book(std::string_view framework) {
  const JsonNode file = JsonNode::parse(models::embedded_table("argument_checks"), "argument_checks.json");
  JsonObject object(*file.find(framework));
  RuleBook book;
  const JsonNode sources = object.at("sources"), defaults = object.at("defaults"), let = object.at("let");
  for (const std::string& name : defaults.keys()) {
    const JsonNode value = *defaults.find(name);
    book.defaults[name] =
        value.is_string() ? Value::of(value.string()) : Value::of(value.number(-1e18, 1e18));
  }
  for (const std::string& name : let.keys())
    book.shared[name] = ConditionParser(let.find(name)->string()).whole();
  for (const JsonNode& node : object.at("rules").items()) {
    JsonObject row(node);
    Rule rule;
    rule.rule.id = row.at("id").string();
    rule.rule.is = row.at("is").string();
    rule.rule.says = row.at("says").string();
    const std::string at = row.at("at").string();
    std::string from;  // the longest beginning of the path
    for (const std::string& begin : sources.keys())
      if (at.starts_with(begin) && begin.size() >= from.size()) from = begin;
    rule.rule.source = at + ", " + sources.find(from)->string();
    rule.rule.lacks = row.boolean("lacks", false);
    rule.rule.told = row.boolean("told", false);
    rule.rule.warns = rule.rule.told || row.boolean("warns", false);
    rule.since = static_cast<int>(row.integer("since", 0, 0, 1000));
    rule.when = ConditionParser(row.at("when").string()).whole();
    book.rules.push_back(std::move(rule));
  }
  return book;
}

// Whether a layout begins with E and ends with L, and has its MTP layers behind the others, in one stage that is the
// last of its rank.
bool is_ordered(std::string_view layout, double ranks) {
  const std::string all = expand_layout(layout).value_or("");
  const std::size_t first = all.find('m'), last = all.rfind('m');
  if (!all.starts_with('E') || !all.ends_with('L')) return false;
  if (first == std::string::npos) return true;
  const std::string_view view = all;
  const auto stages_to = [&](std::size_t end) { return std::ranges::count(view.substr(0, end), '|'); };
  return all.rfind('t') < first && stages_to(first) == stages_to(last) &&
         static_cast<double>(stages_to(first)) >= static_cast<double>(stages_to(all.size()) + 1) - ranks;
}

class Conditions {
 public:
  Conditions(const RuleBook& book, const CheckedArguments& arguments) : book_(book), arguments_(arguments) {}

  bool holds(const Node& node) { return value(node).holds(); }

 private:
  const std::vector<std::string>* given(std::string_view name) const {
    const auto at = arguments_.values.find(name);
    return at == arguments_.values.end() ? nullptr : &at->second;
  }

  Value named(const std::string& name) {
    if (const auto* values = given(name)) return values->empty() ? Value::of(1) : Value::of(values->front());
    if (const auto at = book_.shared.find(name); at != book_.shared.end()) {
      const auto known = known_.find(name);
      if (known != known_.end()) return known->second;
      return known_[name] = value(at->second);
    }
    if (name.starts_with(kPlan)) return planned(name.substr(kPlan.size()));
    if (name == "world") return Value::of(static_cast<double>(arguments_.world));
    if (name == "environment") return Value::of(arguments_.environment);
    if (name == "complete") return Value::of(arguments_.complete);
    if (name == "typed") return Value::of(arguments_.typed);
    if (name == "bridge") return Value::of(arguments_.bridge);
    if (name == "gpu") return Value::of(arguments_.gpu);
    if (name == "before_blackwell") return Value::of(arguments_.before_blackwell);
    const auto at = book_.defaults.find(name);
    return at == book_.defaults.end() ? Value{} : at->second;
  }

  // A size of the plan's model, its dispatcher, or a field of its scenario.
  Value planned(std::string_view name) const {
    if (!arguments_.plan) return {};
    const models::Scenario& s = *arguments_.plan;
    for (const auto& [size, value] :
         {std::pair<std::string_view, std::int64_t>{"model.layers", s.model.layers},
          {"model.experts", s.model.experts},
          {"model.heads", s.model.attention.heads},
          {"model.kv_heads", s.model.attention.kv_heads},
          {"model.mtp_layers", s.model.mtp_layers}})
      if (name == size) return Value::of(static_cast<double>(value));
    if (name == "dispatcher") return s.model.experts > 0 ? Value::of(s.dispatchers.front().name) : Value{};
    const models::Field* field = models::find_field(name);
    check(field != nullptr, "a field of a scenario");
    const nlohmann::ordered_json value = field->value(*field, s);
    return Value::of(value.is_string() ? value.get<std::string>() : value.dump());
  }

  Value call(const Node& node) {
    const std::string& name = node.parts.front().word;
    const auto* values = given(name);
    if (node.word == "given" && name.starts_with(kPlan)) return Value::of(named(name).holds());
    if (node.word == "given")
      return Value::of(values && (values->empty() || Value::of(values->front()).holds()));
    if (node.word == "has" || node.word == "only") {
      std::vector<std::string> items;
      if (values)
        for (const std::string& one : *values)
          for (const std::string_view item : split(one, ',')) items.emplace_back(trim(item));
      else
        items.push_back(named(name).written());
      const auto is_listed = [&](const std::string& item) {
        return std::any_of(node.parts.begin() + 1, node.parts.end(),
                           [&](const Node& listed) { return listed.word == item; });
      };
      return Value::of(node.word == "has" ? std::ranges::any_of(items, is_listed)
                                          : std::ranges::all_of(items, is_listed));
    }
    const std::string first = values && !values->empty() ? values->front() : "";
    if (node.word == "count") return Value::of(values ? static_cast<double>(values->size()) : 1);
    if (node.word == "length") {
      const auto list = first.starts_with('[') || first.starts_with('(') ? layer_list(first) : std::nullopt;
      return Value::of(list ? static_cast<double>(list->size()) : 0);
    }
    if (node.word == "product") {
      double all = 1;
      for (const std::string& one : *values) all *= Value::of(one).as_number();
      return Value::of(all);
    }
    // Stages of a hybrid model's pattern are no layout.
    if (node.word == "stages" && name == "hybrid_layer_pattern")
      return Value::of(1 + static_cast<double>(std::ranges::count(first, '|')));
    if (node.word == "ordered") return Value::of(is_ordered(first, value(node.parts[1]).as_number()));
    const auto counts = count_layout(first);
    const char letter = node.word == "stages" ? '|' : node.parts.back().word.front();
    const auto at = counts.find(letter);
    return Value::of(at == counts.end() ? 0.0 : static_cast<double>(at->second));
  }

  Value value(const Node& node) {
    if (node.what == "text") return Value::of(node.word);
    if (node.what == "number") return Value::of(node.number);
    if (node.what == "name") return named(node.word);
    if (node.what == "call") return call(node);
    if (node.what == "not") return Value::of(!holds(node.parts[0]));
    const Value left = value(node.parts[0]);
    if (node.what == "and") return left.holds() ? value(node.parts[1]) : Value{};
    if (node.what == "or") return left.holds() ? left : value(node.parts[1]);
    if (node.what == "in")
      return Value::of(std::any_of(node.parts.begin() + 1, node.parts.end(),
                                   [&](const Node& one) { return value(one) == left; }));
    const Value right = value(node.parts[1]);
    const double a = left.as_number(), b = right.as_number();
    if (node.what == "==") return Value::of(left == right);
    if (node.what == "!=") return Value::of(!(left == right));
    if (node.what == "<") return Value::of(a < b);
    if (node.what == ">") return Value::of(a > b);
    if (node.what == "<=") return Value::of(a <= b);
    if (node.what == ">=") return Value::of(a >= b);
    if (node.what == "+") return Value::of(a + b);
    if (node.what == "-") return Value::of(a - b);
    if (node.what == "*") return Value::of(a * b);
    // Sizes: whole numbers, of which what does not divide is another rule's.
    if (node.what == "/") return Value::of(b == 0 ? 0 : std::floor(a / b));
    check(node.what == "%", "an operator of a condition");
    return Value::of(b == 0 ? 0 : std::fmod(a, b));
  }

  const RuleBook& book_;
  const CheckedArguments& arguments_;
  std::map<std::string, Value, std::less<>> known_;
};

}  // namespace

std::optional<std::string> expand_layout(std::string_view layout) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::string all, inside;
  bool open = false;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const char c = layout[i];
    if (c == '(') {
      if (open) return {};
      open = true;
      inside.clear();
      continue;
    }
    if (c == ')' && !open) return {};
    std::size_t times = 1;
    if (layout.substr(i + 1, 1) == "*") {
      const std::size_t end = std::min(layout.find_first_not_of("0123456789", i + 2), layout.size());
      const auto n = parse_int(layout.substr(i + 2, end - i - 2));
      if (!n || *n < 1 || *n > static_cast<std::int64_t>(kMost)) return {};
      times = static_cast<std::size_t>(*n);
      i = end - 1;
    }
    if (c == ')') open = false;
    const std::string part = c == ')' ? inside : c == ',' || c == ' ' ? "" : std::string(1, c);
    std::string& to = open ? inside : all;
    if (to.size() + part.size() * times > kMost) return {};
    for (std::size_t k = 0; k < times; ++k) to += part;
  }
  if (open || layout.empty()) return {};
  if (all.ends_with('|')) all.pop_back();
  return all;
}

std::map<char, std::int64_t> count_layout(std::string_view layout) {
  std::map<char, std::int64_t> counts;
  if (const auto all = expand_layout(layout)) {
    for (const char letter : *all) ++counts[letter];
    ++counts['|'];
  }
  return counts;
}

std::string BrokenRule::text() const { return fmt::format("{} (rule {}: \"{}\", {})", is, id, says, source); }

std::string BrokenRule::note(const std::string& file, JobFramework framework) const {
  return fmt::format("{}: {} {} {}", file, name_of(framework), warns ? "goes on with" : "does not start with",
                     text());
}

std::string_view rules_of(std::string_view recipe) {
  if (recipe.empty() || recipe.starts_with("megatron")) return "megatron";
  for (const std::string_view name : {"torchtitan", "deepspeed", "nemo-automodel"})
    if (recipe == name) return name;
  return "";
}

std::string_view rules_of(JobFramework framework) {
  return framework == JobFramework::kNemo ? "megatron" : name_of(framework);
}

std::string_view rules_of(const models::Scenario& plan) {
  return rules_of(plan.recipe.empty() ? plan.job_framework : plan.recipe);
}

int framework_version(std::string_view text) {
  if (text == "newest") return 0;
  const std::size_t at = text.find("0.");
  const auto n = at == std::string_view::npos
                     ? std::nullopt
                     : parse_int(text.substr(at + 2, text.find('.', at + 2) - at - 2));
  if (!n || *n < 1 || *n > 1000)
    throw InputError(fmt::format(
        "--framework-version: found {}, expected a version of Megatron-Core as in 0.16, or newest",
        in_quotes(text)));
  return static_cast<int>(*n);
}

namespace {

// Returns a framework's rules, which are read when they are first asked for.
const RuleBook& book_of(std::string_view rules) {
  static std::mutex reading;
  static std::map<std::string, RuleBook, std::less<>> books;
  const std::scoped_lock lock(reading);
  auto at = books.find(rules);
  if (at == books.end()) at = books.emplace(rules, read_book(rules)).first;
  return at->second;
}

std::vector<BrokenRule> broken_of(const CheckedArguments& arguments, std::string_view rules, int version) {
  const RuleBook& book = book_of(rules);
  Conditions conditions(book, arguments);
  std::vector<BrokenRule> broken;
  for (const Rule& rule : book.rules)
    if ((version == 0 || rule.since <= version) && conditions.holds(rule.when)) broken.push_back(rule.rule);
  return broken;
}

CheckedArguments checked(const JobFile& file, const models::Scenario* plan) {
  CheckedArguments all;
  for (const Setting& s : file.settings) all.values[s.name] = s.values;
  all.world = file.gpus.count;
  all.complete = file.complete;
  if (plan && plan->cluster) {
    all.gpu = plan->cluster->profile.name();
    const models::GpuFamily* family = models::gpu_family(all.gpu);
    all.before_blackwell = family && !family->amd() && !family->blackwell();
  }
  all.plan = plan;
  return all;
}

CheckedArguments checked(const Arguments& arguments, const models::Scenario& plan) {
  CheckedArguments all = checked(file_of(arguments, plan.parallel.world()), &plan);
  all.environment = true;
  return all;
}

}  // namespace

std::vector<BrokenRule> broken_rules(const CheckedArguments& arguments, JobFramework framework, int version) {
  CheckedArguments all = arguments;
  all.bridge = framework == JobFramework::kNemo;
  return broken_of(all, rules_of(framework), version);
}

std::vector<BrokenRule> broken_rules(const JobFile& file, JobFramework framework, int version) {
  return broken_rules(checked(file, nullptr), framework, version);
}

std::vector<BrokenRule> broken_rules(const models::Scenario& plan, const Arguments& arguments,
                                     JobFramework framework, int version) {
  return broken_rules(checked(arguments, plan), framework, version);
}

std::string refusal_of(const models::Scenario& plan, std::optional<JobFramework> framework, int version) {
  const std::string_view rules = framework ? rules_of(*framework) : rules_of(plan);
  if (rules.empty()) return "";
  // Megatron's rules hold only for plans that its arguments can say.
  if (rules == "megatron" &&
      (megatron::unwritten_layers(plan.model) || plan.training.recompute.operations ||
       plan.training.sharding == models::ShardingScheme::kHsdp ||
       (plan.model.experts > 0 && !megatron::writes_dispatcher(plan.dispatchers.front().name))))
    return "";
  const bool automodel = rules == "nemo-automodel";  // moesim has no words for its arguments
  CheckedArguments all =
      checked(automodel ? Arguments{} : written_arguments(plan, framework_named(rules)), plan);
  all.bridge = framework == JobFramework::kNemo || plan.recipe.starts_with("megatron-bridge");
  for (const BrokenRule& broken : broken_of(all, rules, version))
    if (!broken.warns && !(framework && broken.lacks)) return broken.text();
  return "";
}

std::vector<std::string> check_start(const Job& job, JobFramework framework, int version,
                                     const models::Scenario* plan) {
  std::vector<std::string> changed;
  CheckedArguments all = checked(job.settings, plan);
  all.typed =
      std::ranges::any_of(job.settings.settings, [](const Setting& s) { return s.shown.starts_with("--"); });
  for (const BrokenRule& broken : broken_rules(all, framework, version))
    if (broken.warns)
      changed.push_back(broken.note(job.file, framework));
    else if (!broken.lacks)
      throw InputError(SourcePlace{job.file}, broken.text(),
                       fmt::format("arguments that {} starts with", name_of(framework)));
  return changed;
}

}  // namespace moesim::tools

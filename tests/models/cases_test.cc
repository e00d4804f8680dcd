// Runs the cases under tests/models/cases/: worked examples of docs/spec.md and docs/dispatchers.md, and what
// readers refuse. A case names its subjects (programs of a dispatcher on a layer) and their figures.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "tests/models/case_language.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// ---- layers ---------------------------------------------------------------------------------------------------

Routing routing_of(const JsonNode& node) {
  if (node.is_string()) {
    const std::map<std::string, Routing (*)()> examples{
        {"example 1", example_1}, {"example 2", example_2}, {"example 3", example_3}};
    const auto found = examples.find(node.string());
    if (found == examples.end()) node.fail(node.describe(), "example 1, 2 or 3");
    return found->second();
  }
  JsonObject object(node);
  const auto experts = static_cast<int>(object.at("experts").integer());
  const auto topk = static_cast<int>(object.at("topk").integer());
  if (const auto choices = object.find("choices")) {
    std::vector<std::vector<std::int32_t>> each;
    for (const JsonNode& rank : choices->items()) {
      const auto ids = rank.integers(-1, experts);
      each.emplace_back(ids.begin(), ids.end());
    }
    object.finish();
    return Routing::from_choices(experts, topk, std::move(each));
  }
  const auto ranks = static_cast<int>(object.at("ranks").integer());
  const std::int64_t tokens = object.at("tokens").integer();
  if (const auto counts = object.find("counts")) {
    object.finish();
    return Routing::from_counts(ranks, experts, topk, Numbers(static_cast<std::size_t>(ranks), tokens),
                                counts->integers(0, tokens));
  }
  RoutingSpec spec;
  if (const auto text = object.find("spec")) spec = RoutingSpec::parse(text->string());
  if (object.boolean("round_robin", false)) spec.kind = RoutingSpec::Kind::kRoundRobin;
  const auto seed = static_cast<std::uint64_t>(object.integer("seed", 1));
  object.finish();
  return make_routing(spec, ranks, tokens, experts, topk, seed);
}

// The layer of example 1 with the settings of an object.
struct CaseLayer {
  Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  Numbers load;

  CaseLayer() = default;
  CaseLayer(const CaseLayer& other) : routing(other.routing), layer(other.layer), load(other.load) { aim(); }
  CaseLayer& operator=(const CaseLayer&) = delete;

  void set(JsonObject& object) {
    if (const auto node = object.find("routing")) routing = routing_of(*node);
    if (const auto node = object.find("load")) load = node->integers(0, 1 << 30);
    for (const auto& [key, size] :
         std::map<std::string_view, int MoeLayer::*>{{"ep", &MoeLayer::ep},
                                                     {"etp", &MoeLayer::etp},
                                                     {"tp", &MoeLayer::tp},
                                                     {"ranks_per_node", &MoeLayer::ranks_per_node},
                                                     {"ranks_per_host", &MoeLayer::ranks_per_host}})
      layer.*size = static_cast<int>(object.integer(key, layer.*size));
    for (const auto& [key, size] :
         std::map<std::string_view, std::int64_t MoeLayer::*>{{"hidden", &MoeLayer::hidden},
                                                              {"expert_ffn", &MoeLayer::expert_ffn},
                                                              {"shared_ffn", &MoeLayer::shared_ffn},
                                                              {"microbatches", &MoeLayer::microbatches}})
      layer.*size = object.integer(key, layer.*size);
    for (const auto& [key, flag] :
         std::map<std::string_view, bool MoeLayer::*>{{"gated", &MoeLayer::gated},
                                                      {"train", &MoeLayer::train},
                                                      {"placed", &MoeLayer::placed},
                                                      {"straddles", &MoeLayer::straddles},
                                                      {"routing_given", &MoeLayer::routing_given},
                                                      {"own_links", &MoeLayer::own_links}})
      layer.*flag = object.boolean(key, layer.*flag);
    for (const auto& [key, type] : std::map<std::string_view, DType MoeLayer::*>{
             {"router", &MoeLayer::router}, {"activation", &MoeLayer::activation}})
      if (const auto node = object.find(key)) layer.*type = dtype_named(node->string());
    if (const auto node = object.find("recompute"))
      layer.recompute = node->string() == "full" ? Recompute::kFull : Recompute::kActivation;
    aim();
  }

 private:
  void aim() {
    layer.routing = &routing;
    if (!load.empty()) layer.load = &load;
  }
};

// ---- programs -------------------------------------------------------------------------------------------------

[[noreturn]] void no_figure(const std::string& name) { throw InputError("no figure '" + name + "'"); }

std::string_view name_of(Stream stream) {
  constexpr std::array<std::string_view, kStreams> names{"compute", "comm", "copy", "shared", "host"};
  return names[static_cast<std::size_t>(stream)];
}

std::string_view name_of(GemmBackend backend) {
  constexpr std::array<std::string_view, 6> names{"dense", "grouped", "grouped_mm",
                                                  "loop",  "batched", "block_sparse"};
  return names[static_cast<std::size_t>(backend)];
}

Value op_figure(const Program& p, const std::vector<Op>& pass, const Op& op, Step& step) {
  static const std::map<std::string_view, PerRank Op::*> each{
      {"in", &Op::in},     {"out", &Op::out},         {"tx", &Op::tx},           {"rx", &Op::rx},
      {"read", &Op::read}, {"written", &Op::written}, {"present", &Op::present}, {"bytes", &Op::bytes}};
  static const std::map<std::string_view, double (*)(const Op&)> one{
      {"launches", [](const Op& o) { return static_cast<double>(o.launches); }},
      {"n", [](const Op& o) { return static_cast<double>(o.n); }},
      {"k", [](const Op& o) { return static_cast<double>(o.k); }},
      {"sms", [](const Op& o) { return static_cast<double>(o.sms); }},
      {"row_bytes", [](const Op& o) { return static_cast<double>(o.row_bytes); }},
      {"fused", [](const Op& o) { return static_cast<double>(o.fused); }},
      {"one_kernel", [](const Op& o) { return static_cast<double>(o.one_kernel); }},
      {"across_nodes", [](const Op& o) { return static_cast<double>(o.across_nodes); }},
      {"transposed", [](const Op& o) { return static_cast<double>(o.transposed); }}};
  static const std::map<std::string_view, std::string_view (*)(const Op&)> texts{
      {"name", [](const Op& o) { return o.name; }},
      {"comm", [](const Op& o) { return models::name_of(o.comm); }},
      {"group", [](const Op& o) { return models::name_of(o.group); }},
      {"dtype", [](const Op& o) { return models::name_of(o.dtype); }},
      {"kernel", [](const Op& o) { return models::name_of(o.kernel); }},
      {"library", [](const Op& o) { return models::name_of(o.library); }},
      {"category", [](const Op& o) { return sim::name(o.category); }},
      {"stream", [](const Op& o) { return name_of(o.stream); }},
      {"backend", [](const Op& o) { return name_of(o.backend); }}};
  if (const auto found = each.find(step.name); found != each.end())
    return Value::of_each(numbers(p, op.*found->second));
  if (const auto found = one.find(step.name); found != one.end()) return Value::of(found->second(op));
  if (const auto found = texts.find(step.name); found != texts.end())
    return Value::of(std::string(found->second(op)));
  if (step.name == "place") {
    for (std::size_t i = 0; i < pass.size(); ++i)
      if (&pass[i] == &op) return Value::of(static_cast<double>(i));
  }
  if (step.name == "after") return Value::of_each(op.after);
  if ((step.name == "matrix_row" || step.name == "matrix_column") && !step.at.empty()) {
    const auto all = p.matrix(op.matrix, 0);
    const auto members = static_cast<std::size_t>(p.group_size(p.matrices()[op.matrix].group));
    const auto member = static_cast<std::size_t>(step.at.front());
    Value value;
    for (std::size_t i = 0; i < members; ++i)
      value.numbers.push_back(all[step.name == "matrix_row" ? member * members + i : i * members + member]);
    step.at.clear();
    return value;
  }
  if (step.name == "issued") {
    Value value;
    for (int r = 0; r < p.ranks(); ++r) value.numbers.push_back(p.issues(op, r) ? 1 : 0);
    return value;
  }
  if (step.name == "rows" && !step.at.empty()) {  // of a rank
    const int rank = step.at.front();
    step.at.erase(step.at.begin());
    return Value::of_each(p.expert_rows(op.table, rank));
  }
  no_figure(step.name);
}

const Op& chosen(const std::vector<const Op*>& ops, const Step& step) {
  const auto count = static_cast<int>(ops.size());
  if (step.at.empty() && count != 1)
    throw InputError(std::to_string(count) + " operations '" + step.name + "', expected one or an index");
  const int at = step.at.empty() ? 0 : step.at.front() < 0 ? count + step.at.front() : step.at.front();
  if (at < 0 || at >= count) throw InputError("no such operation '" + step.name + "'");
  return *ops[static_cast<std::size_t>(at)];
}

// Figures of a pass: of the whole, of a collective "message[i]", of a product "product[i]" or of the operations of
// one name.
Value pass_figure(const Program& p, const std::vector<Op>& pass, Path& path, std::size_t from) {
  const std::string& name = path.at(from).name;
  if (name == "host_syncs") return Value::of(p.host_syncs(pass));
  if (name == "total_tx") return Value::of_each(total_tx(p, pass));
  if (name == "total_rx") return Value::of_each(total_rx(p, pass));
  if (name == "product_launches") return Value::of(product_launches(pass));
  if (name == "comm" || name == "backend") {  // how many are of a kind
    const std::string& kind = path.at(from + 1).name;
    return Value::of(static_cast<double>(std::count_if(pass.begin(), pass.end(), [&](const Op& op) {
      return name == "comm" ? op.kind == OpKind::kCollective && models::name_of(op.comm) == kind
                            : op.kind == OpKind::kGemm && name_of(op.backend) == kind;
    })));
  }
  std::vector<const Op*> ops;
  std::vector<std::string> names;
  std::int64_t launches = 0;
  for (const Op& op : pass) {
    const bool held = op.kind == OpKind::kAllocate || op.kind == OpKind::kFree;
    if (op.kind == OpKind::kKernel) launches += op.launches;
    if (name == "names" || (name == "messages" && op.kind == OpKind::kCollective))
      names.emplace_back(op.name);
    if (name == "message"   ? op.kind == OpKind::kCollective
        : name == "product" ? op.kind == OpKind::kGemm
                            : op.name == name && !held)
      ops.push_back(&op);
  }
  if (name == "kernel_launches") return Value::of(static_cast<double>(launches));
  if (name == "names" || name == "messages") return Value::of(std::move(names));
  if (from + 1 == path.size()) no_figure(name);
  if (path[from + 1].name == "count") return Value::of(static_cast<double>(ops.size()));
  return op_figure(p, pass, chosen(ops, path[from]), path[from + 1]);
}

Value program_figure(const Program& p, Path& path, std::size_t from) {
  static const std::map<std::string_view, std::vector<std::int64_t> Program::*> each{
      {"tokens", &Program::tokens},
      {"computed_rows", &Program::computed_rows},
      {"dispatched_rows", &Program::dispatched_rows},
      {"balanced_rows", &Program::balanced_rows},
      {"saved_bytes", &Program::saved_bytes},
      {"peak_forward_bytes", &Program::peak_forward_bytes},
      {"peak_backward_bytes", &Program::peak_backward_bytes}};
  static const std::map<std::string_view, bool Program::*> flags{
      {"tokens_replicated", &Program::tokens_replicated},
      {"forces_routing", &Program::forces_routing},
      {"runs_shared_expert", &Program::runs_shared_expert}};
  const std::string& name = path.at(from).name;
  if (name == "forward") return pass_figure(p, p.forward(), path, from + 1);
  if (name == "backward") return pass_figure(p, p.backward(), path, from + 1);
  if (const auto found = each.find(name); found != each.end()) return Value::of_each(p.*found->second);
  if (const auto found = flags.find(name); found != flags.end()) return Value::of(p.*found->second ? 1 : 0);
  if (name == "persistent_bytes") return Value::of(static_cast<double>(p.persistent_bytes));
  if (name == "layer_bytes") return Value::of(static_cast<double>(p.layer_bytes));
  if (name == "dropped_rows") return Value::of(static_cast<double>(p.dropped_rows));
  if (name == "warnings") return Value::of(p.warnings);
  if (name == "counters") {
    for (const auto& [key, count] : p.counters)
      if (key == path.at(from + 1).name) return Value::of(static_cast<double>(count));
  }
  no_figure(name);
}

// ---- cases ----------------------------------------------------------------------------------------------------

struct NamedCase {
  std::string name;
  JsonNode node;
};

void PrintTo(const NamedCase& each, std::ostream* out) { *out << each.node.place().str(); }

std::vector<NamedCase> all_cases() {
  std::vector<NamedCase> all;
  std::set<std::string> names;
  for (const auto& file : entries_of(std::filesystem::path(MOESIM_SOURCE_DIR) / "tests/models/cases"))
    for (const JsonNode& node : JsonObject(JsonNode::read(file)).at("cases").items()) {
      std::string name = file.stem().string() + "_" + JsonObject(node).at("case").string();
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      if (!names.insert(name).second) node.fail("a second case of this name", "another name");
      all.push_back({name, node});
    }
  return all;
}

class Cases : public ::testing::TestWithParam<NamedCase> {};

TEST_P(Cases, Hold) {
  const JsonNode node = GetParam().node;
  SCOPED_TRACE(node.place().str() + ": " + node.to_json().dump(1));
  JsonObject object(node);
  object.find("case"), object.find("about");
  CaseLayer usual;
  if (const auto layer = object.find("layer")) {
    JsonObject settings(*layer);
    usual.set(settings);
    settings.finish();
  }

  std::map<std::string, Value> let;
  std::map<std::string, Program> programs;
  const Figures figures = [&](Path& path) {
    if (const auto found = let.find(path.front().name); found != let.end()) return found->second;
    if (const auto found = programs.find(path.front().name); found != programs.end())
      return program_figure(found->second, path, 1);
    const auto only = programs.find("");
    if (only == programs.end()) no_figure(path.front().name);
    return program_figure(only->second, path, 0);
  };
  if (const auto own = object.find("let"))
    for (const std::string& name : own->keys()) {
      const JsonNode value = *own->find(name);
      Value each;
      for (const JsonNode& item : value.is_array() ? value.items() : std::vector<JsonNode>{value})
        each.numbers.push_back(item.is_string() ? evaluated(item.string(), figures).numbers.at(0)
                                                : item.number());
      let[name] = std::move(each);
    }

  const auto add = [&](const std::string& name, const JsonNode& what) {
    CaseLayer layer(usual);
    std::string dispatcher;
    if (what.is_object()) {
      JsonObject settings(what);
      dispatcher = settings.at("dispatcher").string();
      layer.set(settings);
      settings.finish();
    } else {
      dispatcher = what.string();
    }
    programs.emplace(name, build(dispatcher, layer.layer));
    EXPECT_EQ(check_bytes(programs.at(name)), std::vector<std::string>()) << dispatcher;
  };
  if (const auto dispatcher = object.find("dispatcher")) add("", *dispatcher);
  if (const auto named = object.find("programs"))
    for (const std::string& name : named->keys()) add(name, *named->find(name));

  if (const auto expected = object.find("expect"))
    for (const std::string& key : expected->keys()) {
      const JsonNode value = *expected->find(key);
      // A table of messages: name, in, out, tx, rx.
      const bool table =
          key.ends_with("messages") && value.is_array() && value.size() > 0 && value.items()[0].is_array();
      if (!table) {
        expect_figure(key, value, figures);
        continue;
      }
      const std::vector<JsonNode> rows = value.items();
      expect_figure("size(" + key + ")",
                    JsonNode::from_json(nlohmann::json(rows.size()), value.place().str()), figures);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<JsonNode> cells = rows[i].items();
        ASSERT_EQ(cells.size(), 5u) << rows[i].place().str();
        const std::string message = key.substr(0, key.size() - 1) + "[" + std::to_string(i) + "].";
        for (std::size_t c = 0; c < 5; ++c)
          expect_figure(message + std::array{"name", "in", "out", "tx", "rx"}[c], cells[c], figures);
      }
    }

  // [dispatcher, rule] or [dispatcher, settings of the layer, rule]; the rule is empty where it is legal.
  if (const auto rules = object.find("rules"))
    for (const JsonNode& row : rules->items()) {
      const std::vector<JsonNode> cells = row.items();
      CaseLayer layer(usual);
      if (cells.size() == 3) {
        JsonObject settings(cells[1]);
        layer.set(settings);
        settings.finish();
      }
      const std::string found = rule(cells.at(0).string(), layer.layer);
      EXPECT_TRUE(matches(found, cells.back().string())) << row.place().str() << ": found '" << found << "'";
    }
  if (const auto refusals = object.find("refusals"))
    for (const std::string& dispatcher : refusals->keys()) {
      const JsonNode expected = *refusals->find(dispatcher);
      const std::string found = moesim::testing::message_of([&] { parse_dispatchers(dispatcher); });
      EXPECT_TRUE(matches(found, expected.string())) << expected.place().str() << ": found '" << found << "'";
    }
  object.finish();
}

INSTANTIATE_TEST_SUITE_P(Models, Cases, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moesim::models::testing

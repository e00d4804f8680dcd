// Dispatchers by name: texts and JSON that read back, their options, and the rule that holds for all of them. Mistakes
// stand in tests/cases/scenarios/refused.json.
#include "models/dispatchers/dispatcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "docs/examples/toy_broadcast.cc"  // NOLINT(bugprone-suspicious-include): the docs' example
#include "models/answers/answer.h"
#include "models/workload/dispatcher_spec.h"
#include "models/workload/scenario.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(DispatcherOptions, ListsAreReadWhole) {
  EXPECT_EQ(parse_dispatchers("all").size(), dispatcher_registry().size());
  EXPECT_EQ(parse_dispatchers("allgather, alltoall:pad_rows=16").size(), 2u);
}

TEST(DispatcherOptions, FromJson) {
  const DispatcherSpec spec = DispatcherSpec::parse(
      JsonNode::parse(R"({"name": "alltoall", "capacity_factor": 1.5, "pad": true})", "s.json"));
  EXPECT_EQ(spec.text(), "alltoall:capacity_factor=1.5:pad=true");
  EXPECT_NO_THROW(make_dispatcher(spec));
  const DispatcherSpec bad =
      DispatcherSpec::parse(JsonNode::parse("{\"name\": \"alltoall\",\n \"pud\": true}", "s.json"));
  EXPECT_THROW(make_dispatcher(bad), InputError);
}

TEST(DispatcherRules, ARankHoldsWholeExpertsUnlessTheDispatcherSplitsThem) {
  const Routing routing = make_routing(RoutingSpec(), 4, 8, 2, 1, 1);
  const MoeLayer layer = example_layer(routing);
  int splitting = 0;
  for (const DispatcherEntry& entry : dispatcher_registry()) {
    const std::string name(entry.name);
    const bool splits = make_dispatcher(DispatcherSpec::parse(name))->splits_experts();
    const std::string whole = "ep 4 must divide the 2 experts: a rank holds whole experts";
    if (splits)
      EXPECT_NE(rule(name, layer), whole) << name;
    else
      EXPECT_EQ(rule(name, layer), whole) << name;
    splitting += splits ? 1 : 0;
  }
  EXPECT_EQ(splitting, 4);  // MegaBlocks' and expert tensor parallelism
}

TEST(DispatcherRegistry, NamesAreDistinctAndSummariesOneLine) {
  std::set<std::string_view> names;
  for (const DispatcherEntry& entry : dispatcher_registry()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
    EXPECT_EQ(entry.summary.find('\n'), std::string_view::npos) << entry.name;
  }
}

DispatcherSpec from_json(const std::string& text) {
  return DispatcherSpec::parse(JsonNode::parse(text, "s.json"));
}

TEST(DispatcherSpec, TextIsANameAndOptions) {
  const DispatcherSpec spec = DispatcherSpec::parse(" alltoall:pad: capacity_factor=1.5");
  EXPECT_EQ(spec.name, "alltoall");
  EXPECT_EQ(spec.options.at("pad"), "true");  // a key alone switches something on
  EXPECT_EQ(spec.text(), "alltoall:capacity_factor=1.5:pad=true");
  EXPECT_EQ(DispatcherSpec::parse(spec.text()).text(), spec.text());
  const auto list = DispatcherSpec::parse_list("allgather, alltoall:pad=false");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].options.at("pad"), "false");
}

TEST(DispatcherSpec, UnderstandsCommonWordsAndAnswersByItsName) {
  const auto list = DispatcherSpec::parse_list("a2a,ag,deepep:transport=uccl,hybrid-ep");
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const DispatcherSpec& spec : list) names.push_back(spec.text());
  EXPECT_EQ(names, (std::vector<std::string>{"alltoall", "allgather", "flex-deepep:transport=uccl",
                                             "flex-hybridep"}));
  EXPECT_EQ(from_json(R"({"name": "deepep"})").name, "flex-deepep");
}

TEST(DispatcherSpec, JsonIsATextOrAnObjectWithItsPlace) {
  const DispatcherSpec text = from_json(R"("alltoall:pad=true")"),
                       object = from_json("{\n\"name\": \"alltoall\", \"pad\": true}");
  EXPECT_EQ(text.text(), object.text());
  EXPECT_EQ(object.origin, "s.json:1");
  EXPECT_EQ(from_json(R"({"name": "a", "n": 3, "x": 1.5, "s": "t"})").text(), "a:n=3:s=t:x=1.5");
}

TEST(DispatcherSpec, IsWrittenAsATextWhereThatReadsBack) {
  EXPECT_EQ(from_json(R"({"name": "alltoall", "pad": true})").to_json(), "alltoall:pad=true");
  // A value with a colon would be read as two options.
  const DispatcherSpec odd = from_json(R"({"name": "own", "path": "a:b"})");
  ASSERT_TRUE(odd.to_json().is_object());
  EXPECT_EQ(from_json(odd.to_json().dump()).options, odd.options);
}

// The example of docs/contributing.md compiles and does what it says.

TEST(ToyDispatcher, GathersAndReduces) {
  const DispatcherEntry entry = toy_broadcast();
  DispatcherOptions options("toy-broadcast", {}, "test");
  const auto toy = entry.make(options);
  options.finish();
  const Routing routing = example_1();
  const MoeLayer layer = example_layer(routing);
  ASSERT_FALSE(rule_against(*toy, layer));
  const Program p = toy->build(layer);
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 2 * 768));
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_TRUE(check_bytes(p).empty());
}

TEST(ToyDispatcher, HalvesTheGatherInFp8) {
  DispatcherOptions options("toy-broadcast", {{"fp8", "true"}}, "test");
  const auto toy = toy_broadcast().make(options);
  const Routing routing = example_1();
  const Program p = toy->build(example_layer(routing));
  EXPECT_EQ(numbers(p, messages(p.forward())[0].tx), Numbers(4, 384));
}

// AllGather in plain torch operations: the published halves of an MoE layer on 8 H800 (bytedance/flux, plain torch +
// NCCL) against what it takes.

struct Halves {
  double layer0_ms = 0,
         layer1_ms = 0;  // all-gather to the last product of fc1; first product of fc2 to the end
};

Halves forecast(std::int64_t tokens, std::int64_t hidden, std::int64_t inner, std::int64_t experts,
                std::int64_t topk, int tp, int ep) {
  Scenario s;
  s.model.name = "published";
  s.model.hidden = hidden;
  s.model.layers = 1;
  s.model.attention.heads = s.model.attention.kv_heads = 64;
  s.model.attention.head_dim = hidden / 64;
  s.model.expert_ffn = inner;
  s.model.experts = experts;
  s.model.topk = topk;
  s.model.gated = false;
  s.set_cluster("dgx-h800x1");
  s.parallel.tp = 8;
  s.parallel.etp = tp;
  s.parallel.ep = ep;
  s.parallel.seq = tokens;
  s.train = false;
  s.training.framework = Framework::kNone;  // the kernels alone, as the source runs them
  s.routing = RoutingSpec::parse("uniform");
  s.set_dispatchers("allgather-torch");
  const Comparison c = answer(s, {.draws = 0, .breakdown = false, .trace = true});
  const Answer& f = c.answers.front();
  const auto pass = std::ranges::find_if(f.layer->passes, &ProgramPass::dispatcher);
  const auto ms = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-9; };
  Halves halves;
  double gathered_from = 0, activation_to = 0, last = 0;
  for (std::size_t i = 0; i < f.program().forward().size(); ++i) {
    const Op& op = f.program().forward()[i];
    const LayerTrace::Span span = f.layer->span(*pass, i, 0);
    if (op.name == "tokens") gathered_from = ms(span.begin);
    if (op.name == "activation") {
      halves.layer0_ms = ms(span.start) - gathered_from;
      activation_to = ms(span.end);
    }
    last = std::max(last, ms(span.end));
  }
  halves.layer1_ms = last - activation_to;
  return halves;
}

struct Row {
  std::map<std::string, std::string> cells;
  double number(const char* name) const { return std::stod(cells.at(name)); }
  std::int64_t integer(const char* name) const { return std::stoll(cells.at(name)); }
};

std::vector<Row> read_table(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, ',');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
      continue;
    }
    Row row;
    for (std::size_t i = 0; i < names.size() && i < cells.size(); ++i) row.cells[names[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(PublishedMoeLayer, TorchHalvesWithinAQuarter) {
  const std::filesystem::path file = std::filesystem::path(MOESIM_DATA_DIR) / "published" / "moe_layer.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  // "M" of the source's second half counts rows after expansion in its argument, but tokens in its text: the
  // tokens are those of the first half of the same shape.
  std::map<std::string, std::int64_t> tokens;
  int compared = 0;
  for (const Row& row : read_table(file)) {
    const std::string shape = row.cells.at("experts") + "/" + row.cells.at("ep");
    const bool first = row.cells.at("op").starts_with("layer0");
    if (first) tokens[shape] = row.integer("tokens_total");
    ASSERT_TRUE(tokens.contains(shape));
    const Halves halves = forecast(tokens[shape], row.integer("hidden"), row.integer("moe_inter_total"),
                                   row.integer("experts"), row.integer("topk"),
                                   static_cast<int>(row.integer("tp")), static_cast<int>(row.integer("ep")));
    const double found = first ? halves.layer0_ms : halves.layer1_ms, measured = row.number("torch_ms");
    RecordProperty(shape + (first ? " layer0" : " layer1"),
                   fmt::format("{:.3f} of {:.3f} ms", found, measured));
    fmt::print("{} {}: forecast {:.3f} ms, measured {:.3f} ms\n", shape, first ? "layer0" : "layer1", found,
               measured);
    EXPECT_NEAR(found / measured, 1, 0.25) << row.cells.at("op");
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

}  // namespace
}  // namespace moesim::models::testing

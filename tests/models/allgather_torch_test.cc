// AllGather in plain torch operations: the published halves of an MoE layer on 8 H800 (bytedance/flux, plain torch +
// NCCL) against what it takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

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
  const auto part =
      std::find_if(f.layer.begin(), f.layer.end(), [](const PassTrace& p) { return p.dispatcher; });
  const sim::LockstepTrace& trace = part->trace;
  const auto ms = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-9; };
  Halves halves;
  double gathered_from = 0, activation_to = 0, last = 0;
  for (std::size_t i = 0; i < f.program().forward().size(); ++i) {
    const Op& op = f.program().forward()[i];
    const std::size_t at = i * trace.ranks;
    if (op.name == "tokens") gathered_from = ms(trace.begin[at]);
    if (op.name == "activation") {
      halves.layer0_ms = ms(trace.start[at]) - gathered_from;
      activation_to = ms(trace.end[at]);
    }
    last = std::max(last, ms(trace.end[at]));
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
}  // namespace moesim::models

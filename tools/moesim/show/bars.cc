#include "tools/moesim/show/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace moesim::tools {

namespace {

constexpr std::size_t kPipeColumns = 100;
constexpr std::size_t kFewest = 10;  // columns of the longest bar

double sum_of(std::span<const BarPart> parts) {
  double sum = 0;
  for (const BarPart& part : parts) sum += part.value;
  return sum;
}

}  // namespace

std::string bar(std::span<const BarPart> parts, double full, std::size_t columns, const Terminal& terminal) {
  std::string out;
  double at = 0;
  std::size_t drawn = 0;
  for (const BarPart& part : parts) {
    at += part.value;
    const double share = full > 0 ? std::clamp(at / full, 0.0, 1.0) : 0;
    const auto end = static_cast<std::size_t>(std::lround(share * static_cast<double>(columns)));
    if (end <= drawn) continue;
    out += inked(std::string(end - drawn, part.letter), part.ink, terminal);
    drawn = end;
  }
  return out;
}

std::string bar_key(std::span<const std::vector<BarPart>> bars, std::size_t indent,
                    const Terminal& terminal) {
  std::vector<char> seen;
  std::string out(indent, ' ');
  std::size_t column = indent;
  for (const auto& parts : bars)
    for (const BarPart& part : parts) {
      if (part.value <= 0 || std::find(seen.begin(), seen.end(), part.letter) != seen.end()) continue;
      seen.push_back(part.letter);
      const std::size_t width = 2 + std::string_view(part.name).size();
      if (column > indent && terminal.columns > 0 && column + 2 + width > terminal.columns) {
        out += '\n' + std::string(indent, ' ');
        column = indent;
      }
      if (column > indent) out += "  ", column += 2;
      out += inked(std::string_view(&part.letter, 1), part.ink, terminal) + ' ' + part.name;
      column += width;
    }
  return out;
}

std::vector<BarPart> breakdown_parts(const std::array<double, sim::kCategories>& us) {
  const auto of = [&](sim::Category category) { return us[static_cast<std::size_t>(category)]; };
  using enum sim::Category;
  return {{'A', "attention", Ink::kBlue, of(attention)},
          {'R', "router", Ink::kBlue, of(router)},
          {'P', "permute", Ink::kPink, of(permute) + of(unpermute)},
          {'D', "dispatch", Ink::kYellow, of(dispatch)},
          {'E', "expert", Ink::kGreen, of(expert)},
          {'C', "combine", Ink::kOrange, of(combine)},
          {'H', "host", Ink::kPurple, of(host_sync)},
          {'w', "waiting", Ink::kGrey, of(straggler_wait)},
          {'2', "p2p", Ink::kYellow, of(p2p)},
          {'b', "bubble", Ink::kGrey, of(bubble)},
          {'G', "gradients", Ink::kOrange, of(grad_sync)},
          {'O', "optimizer", Ink::kPurple, of(optimizer)},
          {'L', "head, loss", Ink::kBlue, of(embedding) + of(loss)},
          {'F', "dense FFN, rest", Ink::kSoft, of(other)}};
}

std::string bar_chart(std::span<const BarRow> rows, const Terminal& terminal) {
  std::size_t name = 0, text = 0;
  double full = 0;
  std::vector<std::vector<BarPart>> parts;
  for (const BarRow& row : rows) {
    name = std::max(name, width_of(row.name));
    text = std::max(text, width_of(row.text));
    full = std::max(full, sum_of(row.parts));
    parts.push_back(row.parts);
  }
  const std::size_t room = terminal.columns > 0 ? std::min<std::size_t>(terminal.columns, 160) : kPipeColumns;
  const std::size_t beside = name + text + 4;
  const std::size_t columns = room > beside + kFewest ? room - beside : kFewest;
  std::string out;
  for (const BarRow& row : rows) {
    const std::string pad(name - width_of(row.name), ' ');
    out += fmt::format("{}{}  {}  {}\n", inked(row.name, row.best ? Ink::kBest : Ink::kPlain, terminal), pad,
                       bar(row.parts, full, columns, terminal), row.text);
  }
  return out + bar_key(parts, name + 2, terminal) + "\n";
}

std::string sparkline(std::span<const double> values, std::size_t most, bool from_zero) {
  static constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || most == 0) return "";
  const std::size_t n = std::min(values.size(), most);
  std::vector<double> shown(n);
  for (std::size_t i = 0; i < n; ++i)
    shown[i] = *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / n),
                                 values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / n));
  const double high = *std::max_element(shown.begin(), shown.end());
  const double low = from_zero ? std::min(0.0, *std::min_element(shown.begin(), shown.end()))
                               : *std::min_element(shown.begin(), shown.end());
  std::string out;
  for (const double value : shown) {
    const double share = high > low ? (value - low) / (high - low) : 0;
    out += kLevels[std::clamp<std::size_t>(static_cast<std::size_t>(share * 8), 0, 7)];
  }
  return out;
}

}  // namespace moesim::tools

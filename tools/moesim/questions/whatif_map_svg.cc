// The map of the fastest dispatchers as an SVG picture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "tools/moesim/questions/whatif.h"

namespace moesim::tools {

namespace {

// Okabe and Ito's colours, which are distinguishable with colour-blindness.
struct Colour {
  int red, green, blue;
};
constexpr std::array<Colour, 7> kColours{{{0, 114, 178},
                                          {230, 159, 0},
                                          {0, 158, 115},
                                          {204, 121, 167},
                                          {213, 94, 0},
                                          {86, 180, 233},
                                          {240, 228, 66}}};
constexpr double kFullSpeedup = 1.5;  // the colour is full from here on
constexpr double kFaintest = 0.25;
constexpr int kLeft = 110, kTop = 56, kText = 12;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text, "\n")) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

double strength_of(double speedup) {
  return kFaintest + (1 - kFaintest) * std::clamp(std::log(speedup) / std::log(kFullSpeedup), 0.0, 1.0);
}

Colour mixed(const Colour& full, double strength) {
  const auto channel = [&](int c) { return static_cast<int>(std::lround(255 + (c - 255) * strength)); };
  return {channel(full.red), channel(full.green), channel(full.blue)};
}

std::string hex(const Colour& c) { return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue); }

// Returns black or white, whichever is more readable on it (luminance of ITU-R BT.601).
const char* ink_on(const Colour& c) {
  return 0.299 * c.red + 0.587 * c.green + 0.114 * c.blue > 140 ? "#000" : "#fff";
}

class Picture {
 public:
  Picture(const WinnerMap& map, const std::string& title) : map_(map), names_(dispatchers_of(map.cells)) {
    const auto columns = static_cast<int>(map.columns.size()), rows = static_cast<int>(map.rows.size());
    cell_width_ = std::clamp(720 / columns, 4, 64);
    cell_height_ = std::clamp(480 / rows, 4, 40);
    const std::string head = "Fastest dispatcher: " + title;
    width_ = std::max({kLeft + columns * cell_width_ + 30, kLeft + 10 * static_cast<int>(head.size()), 640});
    bottom_ = kTop + rows * cell_height_;
    height_ = bottom_ + 92 + 20 * static_cast<int>(names_.size());
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" font-family="sans-serif" font-size="{}">)"
        "\n",
        width_, height_, width_, height_, kText);
    put(R"svg(<defs><pattern id="unsure" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2" height="6" fill="#fff" fill-opacity="0.75"/></pattern></defs>)svg"
        "\n");
    put(R"(<rect width="{}" height="{}" fill="#fff"/>)"
        "\n",
        width_, height_);
    text(kLeft, 22, "start", head, "font-size=\"15\" font-weight=\"bold\"");
    text(kLeft, 42, "start", "numbers: how many times as fast as the second");
    cells();
    axes();
    legend();
    put("</svg>\n");
  }

  std::string take() { return std::move(out_); }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void text(int x, int y, const char* anchor, const std::string& words, const std::string& more = "") {
    put(R"(<text x="{}" y="{}" text-anchor="{}" {}>{}</text>)"
        "\n",
        x, y, anchor, more, escaped(words));
  }
  int left_of(std::size_t column) const { return kLeft + static_cast<int>(column) * cell_width_; }
  // Values grow upwards.
  int top_of(std::size_t row) const {
    return kTop + static_cast<int>(map_.rows.size() - 1 - row) * cell_height_;
  }
  const Colour& colour_of(const std::string& name) const {
    const auto at = std::find(names_.begin(), names_.end(), name) - names_.begin();
    return kColours[static_cast<std::size_t>(at) % kColours.size()];
  }

  void cells() {
    for (std::size_t y = 0; y < map_.rows.size(); ++y)
      for (std::size_t x = 0; x < map_.columns.size(); ++x) {
        const PointRow& c = map_.at(y, x);
        const Colour fill =
            c.ok() ? mixed(colour_of(c.fastest), strength_of(c.speedup)) : Colour{217, 217, 217};
        std::string hint =
            fmt::format("{} = {}, {} = {}", map_.across.path, label_of(map_.across, map_.columns[x]),
                        map_.down.path, label_of(map_.down, map_.rows[y]));
        if (!c.ok()) hint += "\n" + c.error;
        for (const auto& [name, us] : c.time_us) hint += fmt::format("\n{}: {:.1f} us", name, us.value);
        if (c.ok())
          hint += fmt::format("\n{} is the fastest{}{}", c.fastest,
                              c.probability ? fmt::format(" with probability {:.2f}", *c.probability) : "",
                              c.fits ? "" : "\nnothing fits the memory");
        put(R"(<g><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>)", escaped(hint),
            left_of(x), top_of(y), cell_width_, cell_height_, hex(fill));
        if (c.ok() && !c.sure())
          put(R"svg(<rect x="{}" y="{}" width="{}" height="{}" fill="url(#unsure)"/>)svg", left_of(x),
              top_of(y), cell_width_, cell_height_);
        if (c.ok() && cell_width_ >= 34 && cell_height_ >= 14 && c.time_us.size() > 1)
          put(R"(<text x="{}" y="{}" text-anchor="middle" font-size="11" fill="{}">{:.2f}</text>)",
              left_of(x) + cell_width_ / 2, top_of(y) + cell_height_ / 2 + 4, ink_on(fill), c.speedup);
        put("</g>\n");
      }
    put(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="none" stroke="#444"/>)"
        "\n",
        kLeft, kTop, static_cast<int>(map_.columns.size()) * cell_width_, bottom_ - kTop);
  }

  void axes() {
    // Limits the labels to the available room.
    std::size_t longest = 1;
    for (const PathValue& value : map_.columns)
      longest = std::max(longest, label_of(map_.across, value).size());
    const std::size_t room = longest * 7 + 10;
    const std::size_t each = std::max<std::size_t>(
        1, (room + static_cast<std::size_t>(cell_width_) - 1) / static_cast<std::size_t>(cell_width_));
    for (std::size_t x = 0; x < map_.columns.size(); x += each)
      text(left_of(x) + cell_width_ / 2, bottom_ + 17, "middle", label_of(map_.across, map_.columns[x]));
    const auto lines =
        static_cast<std::size_t>(std::max(1, 14 / cell_height_ + (14 % cell_height_ > 0 ? 1 : 0)));
    for (std::size_t y = 0; y < map_.rows.size(); y += lines)
      text(kLeft - 7, top_of(y) + cell_height_ / 2 + 4, "end", label_of(map_.down, map_.rows[y]));
    text(kLeft + static_cast<int>(map_.columns.size()) * cell_width_ / 2, bottom_ + 37, "middle",
         map_.across.path, "font-weight=\"bold\"");
    const int middle = kTop + (bottom_ - kTop) / 2;
    text(16, middle, "middle", map_.down.path,
         fmt::format("font-weight=\"bold\" transform=\"rotate(-90 16 {})\"", middle));
  }

  void legend() {
    int y = bottom_ + 56;
    for (const std::string& name : names_) {
      put(R"(<rect x="{}" y="{}" width="24" height="13" fill="{}"/>)", kLeft, y, hex(colour_of(name)));
      text(kLeft + 32, y + 11, "start", name);
      y += 20;
    }
    put(R"svg(<rect x="{}" y="{}" width="24" height="13" fill="#888"/><rect x="{}" y="{}" width="24" height="13" fill="url(#unsure)"/>)svg"
        "\n",
        kLeft, y, kLeft, y);
    text(kLeft + 32, y + 11, "start", fmt::format("probability below {}", models::Decision::kSure));
    put(R"(<rect x="{}" y="{}" width="24" height="13" fill="#d9d9d9"/>)"
        "\n",
        kLeft + 190, y);
    text(kLeft + 222, y + 11, "start", "no forecast");
    text(kLeft + 310, y + 11, "start", fmt::format("colour: 1.00 to {:.2f} times as fast", kFullSpeedup));
  }

  const WinnerMap& map_;
  std::vector<std::string> names_;  // in the order of the scenario: a dispatcher has one colour in all maps
  int cell_width_ = 0, cell_height_ = 0, width_ = 0, height_ = 0, bottom_ = 0;
  std::string out_;
};

}  // namespace

std::string map_svg(const WinnerMap& map, const std::string& title) { return Picture(map, title).take(); }

}  // namespace moesim::tools

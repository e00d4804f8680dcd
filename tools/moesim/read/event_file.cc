#include "tools/moesim/read/event_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/input_error.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kHead = 12,
                      kTail = 4;  // bytes of a record: its length with a checksum, and its own checksum
constexpr std::string_view kVersion = "brain.Event:";

// The fields of a message in protocol buffers' encoding (protobuf.dev/programming-guides/encoding).
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // Reads the next field; false at the end, and where the bytes are no message.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = key >> 3, wire = key & 7;
    text = {};
    switch (wire) {
      case 0:
        number = varint();
        break;
      case 1:
        text = take(8);
        break;
      case 2:
        text = take(varint());
        break;
      case 5:
        text = take(4);
        break;
      default:
        broken = true;
    }
    return !broken;
  }
  // The first float of a field: alone, or packed.
  float real() const {
    float value = 0;
    if (text.size() >= sizeof value) std::memcpy(&value, text.data(), sizeof value);
    return value;
  }

  std::uint64_t field = 0, wire = 0, number = 0;
  std::string_view text;
  bool broken = false;

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    broken = true;
    return 0;
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) {
      broken = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

// A Summary.Value: its tag, and `simple_value`, or the `float_val` of its tensor.
void add_value(std::string_view bytes, std::int64_t step, std::string& into) {
  std::string tag;
  float value = 0;
  bool scalar = false;
  for (Message one(bytes); one.next();) {
    if (one.field == 1) tag = one.text;
    if (one.field == 2 && one.wire == 5) value = one.real(), scalar = true;
    if (one.field != 8 || one.wire != 2) continue;
    for (Message tensor(one.text); tensor.next();)
      if (tensor.field == 5) value = tensor.real(), scalar = true;
  }
  if (scalar)
    into += nlohmann::ordered_json{{"step", step}, {tag, value}}.dump(
                -1, ' ', true, nlohmann::json::error_handler_t::replace) +
            "\n";
}

}  // namespace

bool is_event_file(std::string_view bytes) {
  return bytes.size() > kHead + kVersion.size() &&
         bytes.substr(0, 64).find(kVersion) != std::string_view::npos && bytes[7] == '\0';
}

EventLines lines_of_events(std::string_view bytes, const std::string& file) {
  static_assert(std::endian::native == std::endian::little, "records are little-endian");
  EventLines lines;
  for (long record = 1; !bytes.empty(); ++record) {
    std::uint64_t size = 0;
    if (bytes.size() >= kHead) std::memcpy(&size, bytes.data(), sizeof size);
    if (bytes.size() < kHead + kTail || size > bytes.size() - kHead - kTail) {
      lines.cut = true;
      break;
    }
    std::int64_t step = 0;
    std::string_view summary;
    Message event(bytes.substr(kHead, size));
    while (event.next()) {
      if (event.field == 2 && event.wire == 0) step = static_cast<std::int64_t>(event.number);
      if (event.field == 5 && event.wire == 2) summary = event.text;
    }
    if (event.broken)
      throw InputError(SourcePlace{file}, fmt::format("a record {} that is no Event", record),
                       "an event file of TensorBoard");
    for (Message values(summary); values.next();)
      if (values.field == 1 && values.wire == 2) add_value(values.text, step, lines.text);
    bytes.remove_prefix(kHead + size + kTail);
  }
  return lines;
}

}  // namespace moesim::tools

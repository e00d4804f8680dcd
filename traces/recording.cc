#include "traces/recording.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory_resource>

#include "base/check.h"
#include "base/text.h"

namespace moesim::traces {

namespace detail {

// Both live in a Pool's arena, which never runs destructors: members must be trivially destructible.
struct InternedText {
  std::string_view text;
  std::uint32_t hash = 0;  // upper half of the hash, compared before the text
};

struct InternedShape {
  std::string_view text;
  std::span<const std::int64_t> dims;
  std::int64_t elements = 0;
  std::uint32_t hash = 0;
  bool none = false;
};

}  // namespace detail

namespace {

constexpr std::array<std::uint64_t, Decimal::kMaxDigits + 1> kPowersOfTen = [] {
  std::array<std::uint64_t, Decimal::kMaxDigits + 1> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = 10 * powers[i - 1];
  return powers;
}();

}  // namespace

Decimal::Decimal(std::uint64_t mantissa, int digits)
    : mantissa_(mantissa & kMaxMantissa), digits_(digits & 15) {
  check(mantissa <= kMaxMantissa && digits >= 0 && digits <= kMaxDigits, "a decimal number in range");
}

Decimal Decimal::from_ms(double value) {
  if (!(value >= 0.0) || value > 1e15)
    throw InputError("found the time " + std::to_string(value) + " ms, expected 0 to 1e15 ms");
  const auto hundredths = static_cast<std::uint64_t>(std::llround(value * 100.0));
  return hundredths % 10 == 0 ? Decimal(hundredths / 10, 1) : Decimal(hundredths, 2);
}

Decimal Decimal::from_ns(std::int64_t ns) {
  return {static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns)), 6};
}

std::optional<Decimal> Decimal::parse(std::string_view text) {
  std::uint64_t mantissa = 0;
  int digits = -1;  // of the fraction; -1 before the point
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && digits < 0 && i > 0) {
      digits = 0;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    if (digits < 0 && i == 1 && text[0] == '0') return std::nullopt;
    mantissa = 10 * mantissa + static_cast<std::uint64_t>(c - '0');
    if (mantissa > kMaxMantissa) return std::nullopt;
    if (digits >= 0 && ++digits > kMaxDigits) return std::nullopt;
  }
  if (text.empty() || digits == 0) return std::nullopt;
  return Decimal(mantissa, std::max(digits, 0));
}

double Decimal::value() const {
  // Exact integers divided once: the nearest double to the written number (up to 2^53).
  return static_cast<double>(mantissa_) / static_cast<double>(kPowersOfTen[digits_]);
}

std::string Decimal::str() const {
  std::string text = std::to_string(mantissa());
  const auto fraction = static_cast<std::size_t>(digits());
  if (fraction == 0) return text;
  if (text.size() <= fraction) text.insert(0, fraction + 1 - text.size(), '0');
  text.insert(text.size() - fraction, 1, '.');
  return text;
}

std::string_view Name::view() const { return text_ == nullptr ? std::string_view() : text_->text; }

bool Shape::is_none() const { return shape_ != nullptr && shape_->none; }

std::span<const std::int64_t> Shape::dims() const {
  return shape_ == nullptr ? std::span<const std::int64_t>() : shape_->dims;
}

std::int64_t Shape::elements() const { return shape_ == nullptr ? 0 : shape_->elements; }

std::string Shape::str() const { return shape_ == nullptr ? std::string() : std::string(shape_->text); }

bool operator==(Shape a, Shape b) {
  if (a.shape_ == b.shape_) return true;
  return a.present() && b.present() && a.shape_->text == b.shape_->text;
}

void RankRecording::add(Operation operation, std::span<const SubOperation> subs) {
  operation.first_sub = static_cast<std::uint32_t>(sub_operations.size());
  operation.sub_count = static_cast<std::uint32_t>(subs.size());
  sub_operations.insert(sub_operations.end(), subs.begin(), subs.end());
  operations.push_back(operation);
}

bool is_fused_pair(std::span<const Operation> operations, std::size_t index) {
  if (index + 1 >= operations.size()) return false;
  const Operation& send = operations[index];
  const Operation& receive = operations[index + 1];
  const bool opposite = (send.name == "send_forward" && receive.name == "recv_backward") ||
                        (send.name == "send_backward" && receive.name == "recv_forward");
  // Stamps are late, durations exact. Two separate calls are stamped at least the second's duration apart;
  // closer stamps belong to one fused call.
  constexpr double kRoundedMs = 0.011, kLateMs = 5.0;
  const double apart = std::abs(send.timestamp.value() - receive.timestamp.value());
  return opposite && !send.timestamp.is_placeholder() &&
         std::abs(send.duration.value() - receive.duration.value()) <= kRoundedMs &&
         (apart == 0 || (apart <= kLateMs && apart < 0.9 * receive.duration.value()));
}

const RankRecording* Recording::find(std::int32_t rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                      [](const RankRecording& a, std::int32_t b) { return a.rank < b; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::size_t Recording::operation_count() const {
  std::size_t count = 0;
  for (const RankRecording& rank : ranks) count += rank.operations.size();
  return count;
}

std::optional<int> dtype_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBytes[] = {
      {"torch.bfloat16", 2}, {"torch.float16", 2}, {"torch.float32", 4},       {"torch.float64", 8},
      {"torch.bool", 1},     {"torch.uint8", 1},   {"torch.int8", 1},          {"torch.int16", 2},
      {"torch.int32", 4},    {"torch.int64", 8},   {"torch.float8_e4m3fn", 1}, {"torch.float8_e5m2", 1},
  };
  for (const auto& [name, bytes] : kBytes)
    if (name == dtype) return bytes;
  return std::nullopt;
}

namespace {

// Multiply and fold (the mixing step of wyhash): every byte of the text matters, so that words with a common
// prefix or suffix, like identifiers, spread well.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0x9E3779B97F4A7C15u ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word, 0xD6E8FEB86659FD93u);
  }
  std::uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return mix(hash ^ word, 0xA0761D6478BD642Fu);
}

// Open addressing over pointers to entries with `text` and `hash`.
template <typename Entry>
class Table {
 public:
  const Entry* find(std::string_view text, std::uint64_t hash) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t slot = hash & mask();; slot = (slot + 1) & mask()) {
      const Entry* entry = slots_[slot];
      if (entry == nullptr || (entry->hash == static_cast<std::uint32_t>(hash >> 32) && entry->text == text))
        return entry;
    }
  }

  void insert(const Entry* entry, std::uint64_t hash) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    place(entry, hash);
    ++count_;
  }

 private:
  std::size_t mask() const { return slots_.size() - 1; }

  void place(const Entry* entry, std::uint64_t hash) {
    std::size_t slot = hash & mask();
    while (slots_[slot] != nullptr) slot = (slot + 1) & mask();
    slots_[slot] = entry;
  }

  void grow() {
    std::vector<const Entry*> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Entry* entry : old)
      if (entry != nullptr) place(entry, hash_text(entry->text));
  }

  std::vector<const Entry*> slots_;  // a power of two, at most half full
  std::size_t count_ = 0;
};

constexpr std::size_t kMaxDims = 16;  // PyTorch prints no tensor with more; bounds the cost of a hostile file

// Parses dimensions as Python prints them; nullopt for anything else.
std::optional<std::vector<std::int64_t>> parse_dims(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<std::int64_t> dims;
  std::int64_t elements = 1;
  while (!text.empty()) {
    const std::string_view number = text.substr(0, text.find(','));
    if (dims.size() == kMaxDims || number.empty() || number.size() > 13 ||
        (number.size() > 1 && number[0] == '0'))
      return std::nullopt;
    std::int64_t dim = 0;
    for (char c : number) {
      if (c < '0' || c > '9') return std::nullopt;
      dim = 10 * dim + (c - '0');
    }
    if (dim > Shape::kMaxElements || (dim > 0 && elements > Shape::kMaxElements / dim)) return std::nullopt;
    elements *= dim;
    dims.push_back(dim);
    text.remove_prefix(number.size());
    if (text.empty()) break;
    if (text.size() < 3 || text.substr(0, 2) != ", ") return std::nullopt;
    text.remove_prefix(2);
  }
  return dims;
}

}  // namespace

struct Pool::Tables {
  std::pmr::monotonic_buffer_resource arena;
  Table<detail::InternedText> names;
  Table<detail::InternedShape> shapes;

  std::string_view keep(std::string_view text) {
    char* memory = static_cast<char*>(arena.allocate(std::max<std::size_t>(1, text.size()), 1));
    std::copy(text.begin(), text.end(), memory);
    return {memory, text.size()};
  }

  template <typename Entry>
  Entry* make() {
    return new (arena.allocate(sizeof(Entry), alignof(Entry))) Entry{};
  }
};

Pool::Pool() : tables_(std::make_unique<Tables>()) {}
Pool::~Pool() = default;
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&&) noexcept = default;

Name Pool::name(std::string_view text) {
  const std::uint64_t hash = hash_text(text);
  if (const auto* known = tables_->names.find(text, hash)) return Name(known);
  auto* entry = tables_->make<detail::InternedText>();
  entry->text = tables_->keep(text);
  entry->hash = static_cast<std::uint32_t>(hash >> 32);
  tables_->names.insert(entry, hash);
  return Name(entry);
}

Shape Pool::shape_none() { return *parse_shape("None"); }

Shape Pool::shape(std::span<const std::int64_t> dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  text += "]";
  const std::optional<Shape> shape = parse_shape(text);
  if (!shape)
    throw InputError("found the shape " + in_quotes(text) + ", expected dimensions from 0 up and at most " +
                     std::to_string(Shape::kMaxElements) + " elements");
  return *shape;
}

std::optional<Shape> Pool::parse_shape(std::string_view text) {
  const std::uint64_t hash = hash_text(text);
  if (const auto* known = tables_->shapes.find(text, hash)) return Shape(known);
  std::vector<std::int64_t> dims;
  if (text != "None") {
    std::optional<std::vector<std::int64_t>> parsed = parse_dims(text);
    if (!parsed) return std::nullopt;
    dims = std::move(*parsed);
  }
  auto* entry = tables_->make<detail::InternedShape>();
  entry->text = tables_->keep(text);
  entry->hash = static_cast<std::uint32_t>(hash >> 32);
  entry->none = text == "None";
  entry->elements = entry->none ? 0 : 1;
  for (std::int64_t dim : dims) entry->elements *= dim;
  if (!dims.empty()) {
    void* memory = tables_->arena.allocate(dims.size() * sizeof(std::int64_t), alignof(std::int64_t));
    auto* kept = static_cast<std::int64_t*>(memory);
    std::copy(dims.begin(), dims.end(), kept);
    entry->dims = {kept, dims.size()};
  }
  tables_->shapes.insert(entry, hash);
  return Shape(entry);
}

}  // namespace moesim::traces

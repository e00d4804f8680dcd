#include "traces/cmd_line.h"

#include <array>
#include <vector>

#include "base/text.h"

namespace moesim::traces {
namespace {

// Characters of names: Python identifiers, torch.dtype, "<lambda>", "cmd-31b045c3edaf".
constexpr std::array<bool, 256> kNameCharacters = [] {
  std::array<bool, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (unsigned char c : {'_', '.', '-', '<', '>', ':', '/'}) table[c] = true;
  return table;
}();

class LineParser {
 public:
  LineParser(std::string_view line, std::uint32_t number, RankRecording& rank, Pool& pool)
      : line_(line), rest_(line), number_(number), rank_(rank), pool_(pool) {}

  void parse() {
    Operation operation;
    operation.line = number_;
    literal("rank:");
    const auto rank = integer("a rank", 0, kMaxRank);
    if (rank_.operations.empty()) {
      rank_.rank = static_cast<std::int32_t>(rank);
    } else if (rank != rank_.rank) {
      fail_at(5, "rank " + std::to_string(rank),
              "rank " + std::to_string(rank_.rank) + " as on the lines above");
    }
    operation.name = at(":").name("the name of an operation");
    literal("(");
    operation.first_sub = static_cast<std::uint32_t>(rank_.sub_operations.size());
    if (operation.name == "ddp_grad_comm") {
      gradient_bucket(operation);
    } else {
      fields(operation);
    }
    operation.sub_count = static_cast<std::uint32_t>(rank_.sub_operations.size()) - operation.first_sub;
    literal(")");
    if (!rest_.empty()) fail("the end of the line");
    rank_.operations.push_back(operation);
  }

 private:
  // The fields of every operation but ddp_grad_comm, v1 and v2.
  void fields(Operation& op) {
    op.stage_id = static_cast<std::int32_t>(at("stage_id=").integer("a pipeline stage", 0, kMaxStage));
    op.batch_id = static_cast<std::int32_t>(at(",batch_id=").integer("a microbatch", 0, kMaxBatch));
    op.state = at(",mg_state=").word("an mg_state", kCmdStates);
    op.duration = at(",duration=").milliseconds("a duration");
    op.description = at(",description=").description();
    op.group_kind = at(",group_kind=").word("a group", kCmdGroups);
    if (rest_.starts_with(",cmd_uid=")) {
      op.form = LineForm::kV2;
      op.cmd_uid = at(",cmd_uid=").name("a cmd_uid");
      op.op_semantics = at(",op_semantics=").word("an op_semantics", kCmdOpSemantics);
      op.finalize_base_duration =
          at(",finalize_base_duration_ms=").optional_milliseconds("a duration or None");
    }
    shape_and_dtype(op.shape, op.dtype);
    op.timestamp = at(",timestamp=").milliseconds("a time stamp");
    sub_operations();
  }

  void gradient_bucket(Operation& op) {
    op.form = LineForm::kGradientBucket;
    GradientBucket bucket;
    bucket.comm_uid = at("comm_uid=").name("a comm_uid");
    bucket.iteration = at(",iter=").count("an iteration");
    op.stage_id = static_cast<std::int32_t>(at(",stage_id=").integer("a pipeline stage", 0, kMaxStage));
    op.state = at(",mg_state=").word("an mg_state", kCmdStates);
    op.group_kind = at(",group_kind=").word("a group", kCmdGroups);
    bucket.comm_func = at(",comm_func=").word("a communication function", kCmdCommFunctions);
    bucket.buffer_id = at(",buffer_id=").count("a buffer number");
    bucket.bucket_id = at(",bucket_id=").count("a bucket number");
    bucket.bucket_offset = at(",bucket_offset=").count("an offset in elements");
    bucket.bucket_numel = at(",bucket_numel=").count("a number of elements");
    bucket.bucket_numel_unpadded = at(",bucket_numel_unpadded=").count("a number of elements");
    bucket.param_count = at(",param_count=").count("a number of parameters");
    bucket.trigger_cmd_uid = at(",trigger_cmd_uid=").name("a cmd_uid or None");
    bucket.trigger_op = at(",trigger_op=").name("the name of an operation or None");
    bucket.trigger_batch_id = at(",trigger_batch_id=").integer("a microbatch", 0, kMaxBatch);
    bucket.trigger_timestamp = at(",trigger_timestamp_ms=").optional_milliseconds("a time stamp or None");
    bucket.launch_timestamp = at(",launch_timestamp_ms=").optional_milliseconds("a time stamp or None");
    bucket.launch_source = at(",launch_source=").name("a launch source");
    bucket.timing_domain = at(",timing_domain=").name("a timing domain");
    bucket.metadata_only = at(",metadata_only=").boolean();
    bucket.status = at(",status=").name("a status");
    bucket.completion_timestamp =
        at(",completion_observed_timestamp_ms=").optional_milliseconds("a time stamp or None");
    bucket.completion_source = at(",completion_source=").name("a completion source or None");
    bucket.wait_cmd_uid = at(",wait_cmd_uid=").name("a cmd_uid or None");
    bucket.wait_start = at(",wait_start_timestamp_ms=").optional_milliseconds("a time stamp or None");
    bucket.wait_end = at(",wait_end_timestamp_ms=").optional_milliseconds("a time stamp or None");
    bucket.logical_stream_role = at(",logical_stream_role=").name("a stream role");
    bucket.grad_dtype = at(",grad_dtype=").word("a data type", kCmdDtypes);
    bucket.data_parallel_world_size = at(",data_parallel_world_size=").count("a number of ranks");
    op.duration = at(",duration=").milliseconds("a duration");
    op.timestamp = at(",timestamp=").milliseconds("a time stamp");
    op.bucket = static_cast<std::uint32_t>(rank_.gradient_buckets.size());
    rank_.gradient_buckets.push_back(bucket);
    sub_operations();
  }

  // ",sub_operations=" and the printed Python list after it.
  void sub_operations() {
    literal(",sub_operations=[");
    if (rest_.starts_with(']')) return literal("]");
    for (;;) {
      literal("'");
      sub_operation();
      literal("'");
      if (rest_.starts_with(']')) return literal("]");
      literal(", ");
    }
  }

  void sub_operation() {
    SubOperation sub;
    sub.source = at("trace_src_func=").name("the name of a function");
    sub.duration = at(",duration=").milliseconds("a duration");
    sub.timestamp = at(",timestamp=").milliseconds("a time stamp");
    if (rest_.starts_with(",input__shape=")) shape_and_dtype(sub.shape, sub.dtype);
    if (optional_literal(",func_name=")) sub.func_name = name("the name of a function");
    if (optional_literal(",overlap_op_name=")) sub.overlap_op_name = name("the name of an operation");
    if (optional_literal(",group=")) sub.group = word("a group", kCmdGroups);
    if (optional_literal(",comm_func=")) sub.comm_func = word("a communication function", kCmdCommFunctions);
    if (!rest_.starts_with('\'')) fail("the end of the sub-operation or its next key");
    rank_.sub_operations.push_back(sub);
  }

  void shape_and_dtype(Shape& shape, Name& dtype) {
    literal(",input__shape=");
    const std::size_t start = column();
    std::size_t length = 4;  // of "None"
    if (rest_.starts_with('[')) {
      length = rest_.find(']');
      if (length == std::string_view::npos) fail("']' after the shape");
      ++length;
    }
    const std::string_view text = rest_.substr(0, length);
    const std::optional<Shape> parsed = pool_.parse_shape(text);
    if (!parsed) fail("a shape of at most 2^40 elements like [1024, 1, 4096], or None");
    shape = *parsed;
    rest_.remove_prefix(length);
    dtype = at(",input__dtype=").word("a data type", kCmdDtypes);
    if (too_large(shape.elements(), dtype))
      fail_at(start, "the shape " + std::string(text) + " of " + dtype.str(), kPossibleTensor);
  }

  // Reads free text up to the next key; it may contain commas, parentheses and equal signs.
  Name description() {
    const std::size_t length = rest_.find(",group_kind=");
    if (length == std::string_view::npos) fail("a description followed by ',group_kind='");
    return pool_.name(take(length));
  }

  Name name(const char* what) { return pool_.name(name_text(what)); }

  Name word(const char* what, std::span<const std::string_view> known) {
    const std::size_t start = column();
    const std::string_view text = name_text(what);
    if (!contains(known, text)) {
      const std::vector<std::string> words(known.begin(), known.end());
      fail_at(start, in_quotes(text), std::string(what) + ", one of " + join(words, ", "));
    }
    return pool_.name(text);
  }

  std::string_view name_text(const char* what) {
    std::size_t length = 0;
    while (length < rest_.size() && kNameCharacters[static_cast<unsigned char>(rest_[length])]) ++length;
    if (length == 0 || length > 255) fail(what);
    return take(length);
  }

  Decimal milliseconds(const char* what) {
    std::size_t length = 0;
    while (length < rest_.size() && ((rest_[length] >= '0' && rest_[length] <= '9') || rest_[length] == '.'))
      ++length;
    const std::optional<Decimal> parsed = Decimal::parse(rest_.substr(0, length));
    if (!parsed) fail(std::string(what) + " in milliseconds like 24.5, from 0 to 10^15");
    rest_.remove_prefix(length);
    return *parsed;
  }

  std::optional<Decimal> optional_milliseconds(const char* what) {
    if (optional_literal("None")) return std::nullopt;
    return milliseconds(what);
  }

  bool boolean() {
    if (optional_literal("True")) return true;
    if (optional_literal("False")) return false;
    fail("True or False");
  }

  std::int64_t count(const char* what) { return integer(what, 0, Shape::kMaxElements); }

  std::int64_t integer(const char* what, std::int64_t low, std::int64_t high) {
    std::size_t length = 0;
    std::int64_t value = 0;
    while (length < rest_.size() && rest_[length] >= '0' && rest_[length] <= '9' && value <= high)
      value = 10 * value + (rest_[length++] - '0');
    const bool leading_zero = length > 1 && rest_[0] == '0';
    if (length == 0 || leading_zero || value < low || value > high)
      fail(std::string(what) + " from " + std::to_string(low) + " to " + std::to_string(high));
    rest_.remove_prefix(length);
    return value;
  }

  void literal(std::string_view text) {
    if (!rest_.starts_with(text)) [[unlikely]]
      fail(in_quotes(text));
    rest_.remove_prefix(text.size());
  }

  // The parser, behind the text.
  LineParser& at(std::string_view text) {
    literal(text);
    return *this;
  }

  bool optional_literal(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::string_view take(std::size_t length) {
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }

  std::size_t column() const { return line_.size() - rest_.size(); }

  [[noreturn]] void fail(const std::string& expected) const {
    fail_at(column(), rest_.empty() ? "the end of the line" : in_quotes(rest_, 32), expected);
  }

  [[noreturn]] void fail_at(std::size_t column, const std::string& found, const std::string& expected) const {
    throw InputError({rank_.file, number_, static_cast<long>(column) + 1}, found, expected);
  }

  std::string_view line_;
  std::string_view rest_;
  std::uint32_t number_;
  RankRecording& rank_;
  Pool& pool_;
};

}  // namespace

bool too_large(std::int64_t elements, std::string_view dtype) {
  return elements > kMaxTensorBytes / dtype_bytes(dtype).value_or(1);
}

void parse_cmd_line(std::string_view line, std::uint32_t line_number, RankRecording& rank, Pool& pool) {
  LineParser(line, line_number, rank, pool).parse();
}

}  // namespace moesim::traces

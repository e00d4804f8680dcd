// A recording without interpretation: per rank an ordered list of operations, each with its sub-operations,
// shapes, data types, times and source line. Everything is kept, so that a writer can reproduce the bytes;
// the layers above (replay/, recording_facts.h) interpret the fields.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::traces {

// Earliest time in recordings converted from other clocks: different from the placeholder 0.
inline constexpr std::int64_t kFirstNs = 1'000'000'000;

// A non-negative decimal number as written: mantissa / 10^digits. A bare "0" has no digits, "0.0" one, so
// that placeholders survive and the writer reproduces the bytes.
class Decimal {
 public:
  static constexpr std::uint64_t kMaxMantissa = (std::uint64_t{1} << 60) - 1;
  static constexpr int kMaxDigits = 15;

  constexpr Decimal() = default;
  // Aborts when out of range; readers check first.
  Decimal(std::uint64_t mantissa, int digits);
  // Returns `value` rounded half away from zero to two digits, as the recorder does: "0.1" has one digit,
  // "3.0" too. Throws InputError for a negative, infinite or too large value.
  static Decimal from_ms(double value);
  // Returns six decimals; 0 for a negative time.
  static Decimal from_ns(std::int64_t ns);
  // Parses a number that fills all of `text`; nullopt for anything else (signs, exponents, leading zeros,
  // overflow).
  static std::optional<Decimal> parse(std::string_view text);

  std::uint64_t mantissa() const { return mantissa_; }
  int digits() const { return static_cast<int>(digits_); }
  // Whether it is the bare integer 0 of lines that were not measured.
  bool is_placeholder() const { return mantissa_ == 0 && digits_ == 0; }
  double value() const;
  std::string str() const;
  friend bool operator==(const Decimal&, const Decimal&) = default;

 private:
  std::uint64_t mantissa_ : 60 = 0;
  std::uint64_t digits_ : 4 = 0;
};

namespace detail {
struct InternedText;
struct InternedShape;
}  // namespace detail

// A word of the recording, stored once; eight bytes, compares and prints as text. Valid as long as its Pool.
class Name {
 public:
  constexpr Name() = default;                        // absent: the field was not written
  bool present() const { return text_ != nullptr; }  // "None" is present
  bool is_none() const { return view() == "None"; }
  std::string_view view() const;  // "" when absent
  std::string str() const { return std::string(view()); }
  operator std::string_view() const { return view(); }
  friend bool operator==(Name a, Name b) { return a.text_ == b.text_ || a.view() == b.view(); }
  friend bool operator==(Name a, std::string_view b) { return a.view() == b; }

 private:
  friend class Pool;
  explicit Name(const detail::InternedText* text) : text_(text) {}
  const detail::InternedText* text_ = nullptr;
};

// A tensor shape, stored once: absent (not written), None (written as None), or dimensions.
class Shape {
 public:
  // Far above any real tensor; prevents overflow of byte counts.
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

  constexpr Shape() = default;
  bool present() const { return shape_ != nullptr; }
  bool is_none() const;
  bool has_dims() const { return present() && !is_none(); }
  std::span<const std::int64_t> dims() const;  // empty for a scalar, None or absent
  // Product of the dimensions, at most kMaxElements; 1 for a scalar, 0 for None and absent.
  std::int64_t elements() const;
  std::string str() const;  // "[2048, 4096]", "None", ""
  friend bool operator==(Shape a, Shape b);

 private:
  friend class Pool;
  explicit Shape(const detail::InternedShape* shape) : shape_(shape) {}
  const detail::InternedShape* shape_ = nullptr;
};

// Words and shapes of one recording, each stored once. Handles stay valid while the pool lives, also when it
// is moved.
class Pool {
 public:
  Pool();
  ~Pool();
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;

  Name name(std::string_view text);
  Shape shape_none();
  // Throws InputError when a dimension is negative or the product exceeds Shape::kMaxElements.
  Shape shape(std::span<const std::int64_t> dims);
  // Parses "None" or "[2048, 4096]" as Python prints them; nullopt for other or too large values.
  std::optional<Shape> parse_shape(std::string_view text);

 private:
  struct Tables;
  std::unique_ptr<Tables> tables_;
};

// One call inside an operation, usually a communication call. Fields in file order.
struct SubOperation {
  Name source;        // trace_src_func: the function that was traced
  Decimal duration;   // ms; meaningless for communication in scaling recordings
  Decimal timestamp;  // ms, host clock; end of the call in 2025 recordings, start in 2026 ones
  Shape shape;        // of the input tensor; absent when not written
  Name dtype;         // "torch.bfloat16", ...; absent when not written
  Name func_name;
  Name overlap_op_name;
  Name group;      // "tp", "dp", "exp", ...: a label, not the members
  Name comm_func;  // "allgather", "all_to_all", ...; absent for calls other than communication
};

// The fields of ddp_grad_comm lines only (one gradient bucket, 2026 recordings).
struct GradientBucket {
  Name comm_uid;
  std::int64_t iteration = 0;
  Name comm_func;
  std::int64_t buffer_id = 0;
  std::int64_t bucket_id = 0;
  std::int64_t bucket_offset = 0;          // elements
  std::int64_t bucket_numel = 0;           // elements
  std::int64_t bucket_numel_unpadded = 0;  // elements
  std::int64_t param_count = 0;
  Name trigger_cmd_uid;
  Name trigger_op;
  std::int64_t trigger_batch_id = 0;
  std::optional<Decimal> trigger_timestamp;  // ms; nullopt is None
  std::optional<Decimal> launch_timestamp;   // ms
  Name launch_source;
  Name timing_domain;
  bool metadata_only = false;
  Name status;
  std::optional<Decimal> completion_timestamp;  // ms
  Name completion_source;
  Name wait_cmd_uid;
  std::optional<Decimal> wait_start;  // ms
  std::optional<Decimal> wait_end;    // ms
  Name logical_stream_role;
  Name grad_dtype;
  std::int64_t data_parallel_world_size = 0;
};

// The three forms of a CMD line; other formats become kV1.
enum class LineForm : std::uint8_t { kV1, kV2, kGradientBucket };

inline constexpr std::uint32_t kNoBucket = 0xFFFFFFFFu;

// One line: a top-level operation of one rank.
struct Operation {
  Name name;  // "forward_step", "dp_allreduce", ...
  LineForm form = LineForm::kV1;
  std::int32_t stage_id = 0;   // pipeline rank
  std::int32_t batch_id = -1;  // counter per operation name, the microbatch; -1 on ddp_grad_comm lines
  std::uint32_t line = 0;      // in RankRecording::file, from 1; 0 when generated
  Name state;                  // mg_state: "None", "warmup", "steady", ...
  Decimal duration;            // ms
  Decimal timestamp;           // ms, host clock at the end of the operation
  Name description;            // free text; absent on ddp_grad_comm lines
  Name group_kind;             // "dp", "pp", "ep" (embedding group!), ...
  Name cmd_uid;                // v2 only
  Name op_semantics;           // v2 only
  std::optional<Decimal> finalize_base_duration;  // v2 only, ms; nullopt is None
  Shape shape;
  Name dtype;
  std::uint32_t first_sub = 0;  // sub-operations: [first_sub, first_sub + sub_count) of the rank's list
  std::uint32_t sub_count = 0;
  std::uint32_t bucket = kNoBucket;  // index into RankRecording::gradient_buckets

  double start_ms() const { return timestamp.value() - duration.value(); }
};

// The recording of one rank.
struct RankRecording {
  std::int32_t rank = 0;
  std::string file;  // the path as given, for messages; "" when generated
  std::vector<std::string>
      header;  // leading comment lines, without the '#', in order; public recordings have none
  std::vector<Operation> operations;
  std::vector<SubOperation> sub_operations;  // of all operations, in order
  std::vector<GradientBucket> gradient_buckets;

  std::span<const SubOperation> subs(const Operation& operation) const {
    return std::span(sub_operations).subspan(operation.first_sub, operation.sub_count);
  }
  // Appends an operation with its sub-operations and sets first_sub and sub_count.
  void add(Operation operation, std::span<const SubOperation> subs = {});
  SourcePlace place(const Operation& operation) const { return {file, operation.line, 0}; }
};

// Returns whether operations[index] and the next one are one fused send-and-receive call written as two lines
// (send first, equal duration and time stamp), whose time counts once.
bool is_fused_pair(std::span<const Operation> operations, std::size_t index);

// Sizes in the names of folders and files, kept apart from those of the lines. Each is absent unless named.
struct NamedTopology {
  std::optional<std::int64_t> world;        // wd
  std::optional<std::int64_t> tp;           // tp
  std::optional<std::int64_t> pp;           // pp
  std::optional<std::int64_t> ep;           // exp (realistic folders, files) or ep (scaling folders)
  std::optional<std::int64_t> experts;      // expn, expNum; 0 where the name says None: a dense model
  std::optional<std::int64_t> dp;           // dp; contains the expert dimension
  std::optional<std::int64_t> layers;       // nl, numl, l
  std::optional<std::int64_t> hidden;       // hs
  std::optional<std::int64_t> seq;          // sl
  std::optional<std::int64_t> micro_batch;  // bs
  friend bool operator==(const NamedTopology&, const NamedTopology&) = default;

  bool empty() const { return *this == NamedTopology{}; }
};

struct Recording {
  std::string source;                // folder or file as given
  Pool pool;                         // owns every Name and Shape below
  std::vector<RankRecording> ranks;  // ascending rank, each rank once
  NamedTopology named;
  std::size_t pass = 0;               // which pass of the folder this is, from 0
  std::size_t passes = 1;             // passes that the folder holds
  std::vector<std::string> warnings;  // one line each, in a fixed order

  // Returns nullptr when the rank was not recorded.
  const RankRecording* find(std::int32_t rank) const;
  std::size_t operation_count() const;
};

// Returns bytes per element of "torch.bfloat16" and similar; nullopt for None and unknown names.
std::optional<int> dtype_bytes(std::string_view dtype);

}  // namespace moesim::traces

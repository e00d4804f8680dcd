// Imports results of other tools: nccl-tests and rccl-tests logs, Google Benchmark JSON, the benchmark tables
// of the Echo traces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/measurements.h"

namespace moesim::calibration {

// Facts that a log does not contain.
struct ImportFacts {
  std::string gpu;                      // canonical name; needed unless the log names the device
  std::string source;                   // who measured
  std::string library;                  // where the file does not name it: "NCCL 2.18.6"
  int nodes = 0;                        // 0 = from the log's rank lines
  int gpus_per_node = 0;                // 0 = from the log's rank lines
  std::optional<sim::CollectiveOp> op;  // needed where the log does not name the test
  // For tests of expert-parallel libraries, per rank; 0 = from the log.
  std::int64_t tokens = 0, hidden = 0, topk = 0, experts = 0;
};

// Imported rows, and notes on rows left out or doubtful, one sentence each.
struct Imported {
  Measurements rows;
  std::vector<std::string> notes;
};

// Imports the output of nccl-tests and rccl-tests, any version: standard output, whole or an excerpt, with
// any launcher's prefixes and several tests in it; the JSON of nccl-tests (-J) and the JSON and CSV of
// rccl-tests (-Z). Uses out-of-place times. Tests that no forecast uses are left out and named. Throws
// InputError with the line for a truncated row, NaN, a size that is not count x element size (as the tool
// counts), a bandwidth that contradicts size and time, failed results (#wrong > 0), ranks that contradict the
// columns, a missing operation, rank count or GPU, and for a file without rows.
Imported import_nccl_tests(std::string_view text, const std::string& file, const ImportFacts& facts);

// Imports Google Benchmark's JSON output of calibration/bench: name and counters describe a row
// (calibration/bench/README.md). Uses medians where the file has aggregates; notes how many benchmarks are no
// rows, and why. Throws InputError for an unfinished file, an unknown name layout, and an error reported by a
// benchmark.
Imported import_google_benchmark(std::string_view json, const std::string& file, const ImportFacts& facts);

// Imports any of these, DeepEP's tests (deepep_log.h), NCCL Inspector's logs (inspector_log.h), tables and
// measurement files (measurements.h), recognised by content.
Imported import_any(std::string_view text, const std::string& file, const ImportFacts& facts);

// Imports CSV files of the Echo traces' benchmarks: all_reduce tables have algbw in Gbit/s and the time of
// one operation, send/recv tables 2 x bytes / time in GiB/s and the time of a round trip. Ranks and nodes
// come from the file's name (allreduce_16gpu_2node_*.csv, multi_node_sendrecv_*.csv). Throws InputError where
// a column contradicts these units.
Measurements import_echo(std::string_view text, const std::string& file, const ImportFacts& facts);

// Returns whether the text looks like such a table.
bool is_echo_table(std::string_view text);

}  // namespace moesim::calibration

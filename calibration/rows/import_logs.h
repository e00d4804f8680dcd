// Imports results of other tools: nccl-tests and rccl-tests logs, Google Benchmark JSON, the benchmark tables
// of the Echo traces.
#pragma once

#include <cstdint>
#include <functional>
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

// Imports any of these, DeepEP's tests, NCCL Inspector's logs, tables and measurement files (measurements.h),
// recognised by content.
Imported import_any(std::string_view text, const std::string& file, const ImportFacts& facts);

// Imports CSV files of the Echo traces' benchmarks: all_reduce tables have algbw in Gbit/s and the time of
// one operation, send/recv tables 2 x bytes / time in GiB/s and the time of a round trip. Ranks and nodes
// come from the file's name (allreduce_16gpu_2node_*.csv, multi_node_sendrecv_*.csv). Throws InputError where
// a column contradicts these units.
Measurements import_echo(std::string_view text, const std::string& file, const ImportFacts& facts);

// Returns whether the text looks like such a table.
bool is_echo_table(std::string_view text);

// Text of nccl-tests and rccl-tests, one log with one or several tests, whole or an excerpt.
// Reads line by line. Strips launchers' prefixes ("[1,0]<stdout>:", "0: ", "node-1: ", times); a table
// belongs to the test that its section names, and to no other; ranks are identified by their numbers, not
// counted.
Imported read_nccl_log(std::string_view text, const std::string& file, const ImportFacts& facts);

// Returns a line without the prefixes of launchers and quotes; `launcher` receives the prefix without times.
std::string_view without_prefix(std::string_view line, std::string& launcher);

// Machine-readable output of the same: the JSON of nccl-tests (-J), the JSON and CSV of rccl-tests (-Z json,
// -Z csv).
bool is_nccl_json(std::string_view text);
bool is_rccl_csv(std::string_view text);

// Reads one object with "config" and "results" (nccl-tests), or a list of records with "algBw" (rccl-tests).
// Ignores keys unrelated to size, time and ranks.
Imported read_nccl_json(std::string_view text, const std::string& file, const ImportFacts& facts);

// Reads the same records as a table with a header.
Imported read_rccl_csv(std::string_view text, const std::string& file, const ImportFacts& facts);

// Output of DeepEP's tests: test_intranode, test_internode and test_low_latency (V1), test_ep (V2), and
// HybridEP's test_hybrid_ep.
// Returns one row per kernel, precision and number of SMs: the best of a tuning, the mean over the printing
// ranks. `facts` must give what the log does not contain (the GPU; ranks of V1; tokens, width and experts of
// low latency and HybridEP). Throws InputError with the line for missing facts, and for a bandwidth and a
// time that contradict the sizes.
Imported import_deepep(std::string_view text, const std::string& file, const ImportFacts& facts);

// NCCL Inspector's log: one JSON object per line for every collective of a process (README of
// plugins/profiler/inspector in NVIDIA/nccl, formats 4.0 to 4.3).
bool is_inspector_log(std::string_view text);

// Imports the logs of one job, one file per process: a row for each operation, size and shape of a
// communicator. A call's duration is that of the rank that waited least (coll_exec_time_us includes waiting
// for later ranks); a row is the median over calls. Sizes are converted to those of nccl-tests: the log's are
// of one rank where the operation gathers or scatters. Sends, receives, proxy records, operations that no
// forecast uses, and calls with missing ranks are left out and named. Throws InputError with the line for a
// truncated line, a dump that lacks records, a bandwidth that contradicts size, time and ranks, ranks of one
// call that disagree, a missing GPU name, and files without rows. `text_of` returns a file's text; one is
// held at a time.
Imported import_inspector(const std::vector<std::string>& files,
                          const std::function<std::string(const std::string&)>& text_of,
                          const ImportFacts& facts);

}  // namespace moesim::calibration

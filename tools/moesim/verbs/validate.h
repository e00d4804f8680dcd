// The questions of `moesim validate` about files of runs.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/calibrate_rows.h"

namespace moesim::tools {

// A run of one's own, is it normal? The file says itself what it is: measured rows of collectives and kernels
// (logs of nccl-tests, rccl-tests, DeepEP and NCCL Inspector, tables, recordings), or a training log.
struct FileValidation {
  std::string file;
  FactOptions facts;
  std::string network, nic_rate;
  int nics = 0;

  void declare(CLI::App& app);
};

// Judges rows. `log`: the file's text; empty for a folder. Returns the exit code, 1 where they are not normal.
int validate_rows(const FileValidation& options, const std::string& log, const CommonOptions& common);

// The logged steps of a training job against the forecast of the same arguments.
struct LogValidation {
  std::string log;
  std::string job;  // arguments or a scenario; empty: those in the log
  std::vector<std::string> with;
  std::string cluster;
  int draws = 0;
  double max_error = 0;  // limit on the error of the median step; 0: none
  bool judge = false;    // exit code 1 where the steps are not normal
};

// Prints the result; returns the exit code, 1 where the median error exceeds the limit, or as `judge` says.
int validate_log(const LogValidation& options, const CommonOptions& common);

// The error of a forecast against a measured recording, in total and operation by operation.
struct RecordingValidation {
  std::vector<std::string> forecast;
  std::string measured;
  std::string all, only;  // a folder of recordings, and which of them
  std::string cluster = "echo-h800x2";
  RecordingOptions job;
  std::string max_error;
  std::string timeline, report;
  TimelineOptions shown;
  int microbatches = 0;  // 0: as measured
  int draws = models::AnswerOptions{}.draws;
  bool rescale = false;
};

// Prints the result; returns the exit code, 1 where an iteration is further off than the limit.
int validate_recordings(const RecordingValidation& options, const CommonOptions& common);

}  // namespace moesim::tools

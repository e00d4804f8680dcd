// `moesim validate --decisions TABLE`: measured decisions between dispatchers against forecast ones.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct DecisionValidation {
  std::vector<std::string> tables;
  int draws = 48;
  double max_error = 0;    // limit on the mean loss of answered decisions; 0: none
  bool leave_out = false;  // forecasts each publication without the constants that its rows determine
  bool anchored = false;   // each arm in turn is given as measured (--measured), the others are forecast
};

// Rows of the table with equal decision_id form one decision. Prints the result; returns the exit code.
// Throws InputError for a table without decisions, and where none of them can be forecast.
int validate_decisions(const DecisionValidation& options, const CommonOptions& common);

}  // namespace moesim::tools

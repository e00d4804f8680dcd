// `moesim validate --decisions TABLE`: measured decisions between dispatchers against forecast ones.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct DecisionValidation {
  std::vector<std::string> tables;
  int draws = 48;
  double max_error = 0;    // of the mean loss of those answered; 0: none
  bool leave_out = false;  // each publication is forecast without the constants that its rows set
  bool anchored = false;   // each arm in turn is known (--measured), the others are forecast
};

// Rows of the table that have the same decision_id are one decision. Prints the result; the exit code.
// Throws InputError for a table without decisions, and where none of them can be forecast.
int validate_decisions(const DecisionValidation& options, const CommonOptions& common);

}  // namespace moesim::tools

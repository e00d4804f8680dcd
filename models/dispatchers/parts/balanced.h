// Online balancing around a dispatcher (docs/spec.md 2.15): experts are copied to other ranks, and rows go to
// the copies. `balance=eplb:slots=N` fills N slots with copies of the busiest experts, which stay;
// `balance=least-loaded:limit=1.1:min_rows=1024:threshold=0` moves rows and weights anew in every pass.
#pragma once

#include <memory>

#include "models/dispatchers/dispatcher.h"

namespace moesim::models {

inline constexpr std::string_view kBalanceOption = "balance";

// Wraps `inner` in the balancing that the options ask for; returns `inner` where they ask for none. Throws
// InputError for a dispatcher whose experts cannot move.
std::unique_ptr<Dispatcher> balanced(std::unique_ptr<Dispatcher> inner, DispatcherOptions& options);

// Returns the same dispatcher without its balancing; nullopt where it has none.
std::optional<DispatcherSpec> without_balance(const DispatcherSpec& spec);

// Returns whether an operation of a program exists only for the balancing.
bool pays_for_balance(const Op& op);

}  // namespace moesim::models

// Several processes, one benchmark library: process 0 has it, the others run what it calls out.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "device.h"

namespace moesim::bench {

int process_index();
int process_count();
void broadcast(void* data, std::size_t bytes);  // from process 0
bool all_agree(bool yes);
double slowest(double seconds);

// Whether another iteration follows; `state` is null in the processes without a benchmark library.
bool keep_running(benchmark::State* state);

using Followed = std::function<void(benchmark::State*)>;
void add_followed_case(std::vector<Case>& cases, const std::string& name, double seconds,
                       const Followed& run);

void follow();  // in processes other than 0, until stop_followers()
void stop_followers();

}  // namespace moesim::bench

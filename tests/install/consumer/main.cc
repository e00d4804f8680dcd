// Somebody else's program: two dispatchers compared through the installed library.
#include <base/input_error.h>
#include <replay/run/layer_comparison.h>

#include <cstdio>

int main() try {
  moesim::models::Scenario scenario;
  scenario.set_model("mixtral-8x7b");
  scenario.set_dispatchers("allgather,alltoall");
  scenario.parallel.ep = 8;
  const auto comparison = moesim::replay::compare_layer(scenario, {});
  for (const auto& forecast : comparison.forecasts)
    std::printf("%s %.1f us\n", forecast.dispatcher.c_str(), forecast.time_us.value);
  return 0;
} catch (const moesim::InputError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

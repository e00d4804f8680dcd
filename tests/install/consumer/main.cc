// A third-party program: two dispatchers compared through the installed library.
#include <base/input_error.h>
#include <models/answers/answer.h>

#include <cstdio>

int main() try {
  moesim::models::Scenario scenario;
  scenario.set_model("mixtral-8x7b");
  scenario.set_dispatchers("allgather,alltoall");
  scenario.parallel.ep = 8;
  const moesim::models::Comparison comparison = moesim::models::answer(scenario);
  for (const moesim::models::Answer& forecast : comparison.answers)
    std::printf("%s %.1f us\n", forecast.dispatcher.c_str(), forecast.time_us.value);
  return 0;
} catch (const moesim::InputError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

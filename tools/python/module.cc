// The Python module below the package `moesim`: runs a command as the program does and returns the text. The
// Python interface is in tools/python/moesim.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/workload/fields.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/verbs/command_line.h"

namespace py = pybind11;

namespace {

// Releases the interpreter lock for other threads.
std::pair<int, std::string> run(const std::vector<std::string>& words) {
  const py::gil_scoped_release released;
  moesim::tools::CommandOutput out = moesim::tools::run_command(words);
  return {out.exit_code, std::move(out.text)};
}

// Returns keyword, path and help of every field with an option.
std::vector<std::tuple<std::string, std::string, std::string>> keywords() {
  std::vector<std::tuple<std::string, std::string, std::string>> all;
  for (const moesim::models::Field& field : moesim::models::scenario_fields()) {
    if (field.flag.empty()) continue;
    std::string name(field.flag.substr(2));
    for (char& c : name)
      if (c == '-') c = '_';
    all.emplace_back(std::move(name), field.path, field.help);
  }
  return all;
}

}  // namespace

PYBIND11_MODULE(_moesim, m) {
  py::register_exception<moesim::InputError>(m, "InputError", PyExc_ValueError);
  m.def("run", &run, py::arg("words"));
  m.def("keywords", &keywords);
  m.attr("version") = std::string(moesim::tools::version());
}

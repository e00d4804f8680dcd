// The options of the command line: what the verbs use of CLI11, under its names. CLI11 compiles its parsers and
// validators anew in each source that includes it, so options.cc alone does.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace moesim::tools::CLI {

// What a value must be; `description`: what --help says of it, by default the values.
class Validator {
 public:
  explicit Validator(const ::CLI::Validator& validator);
  Validator description(const std::string& text) const;
  const ::CLI::Validator& get() const { return *validator_; }

 private:
  std::shared_ptr<const ::CLI::Validator> validator_;
};

template <typename T>
Validator Range(T low, T high);
Validator IsMember(const std::vector<std::string>& words);
Validator ExistingDirectory();

// A handle of an option, used like a pointer to it.
class Option {
 public:
  Option(::CLI::Option* option) : option_(option) {}  // NOLINT: as CLI11 returns them
  const Option* operator->() const { return this; }

  Option check(const Validator& validator) const;
  Option group(const std::string& name) const;  // empty: not in --help
  Option type_name(const std::string& name) const;
  Option capture_default_str() const;
  Option required() const;
  Option needs(Option other) const;
  Option expected(int values) const;
  Option allow_extra_args(bool allowed) const;
  Option take_all() const;

  std::size_t count() const;
  const std::vector<std::string>& results() const;
  std::string get_name(bool positional = false) const;
  bool check_name(const std::string& name) const;
  bool nonpositional() const;
  bool get_positional() const;
  bool takes_value() const;
  const std::vector<std::string>& get_lnames() const;  // without their dashes
  const std::vector<std::string>& get_snames() const;
  const std::string& get_description() const;
  std::string get_type_name() const;
  std::string get_default_str() const;

 private:
  ::CLI::Option* option_;
};

struct ParseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The program, a verb or a command of a verb.
class App {
 public:
  App() : App("", "") {}
  App(const std::string& description, const std::string& name);

  // For the types that options.cc lists.
  template <typename T>
  Option add_option(const std::string& names, T& value, const std::string& help = "");
  Option add_option_function(const std::string& names, std::function<void(const std::string&)> take,
                             const std::string& help);
  Option add_flag(const std::string& names, bool& value, const std::string& help);
  Option add_flag_callback(const std::string& names, std::function<void()> act, const std::string& help);
  void set_version_flag(const std::string& names, const std::string& text);
  void set_help_flag(const std::string& names, const std::string& help);
  App* add_subcommand(const std::string& name, const std::string& summary);
  void require_subcommand(std::size_t least, std::size_t most);
  void fallthrough();
  void allow_extras();
  void footer(const std::string& text);

  // Reads the words. Returns what writes the text that they ask for (--help, --version), empty where they ask
  // for none. Throws ParseError.
  std::function<std::string()> parse(std::vector<std::string> words);
  bool parsed() const;
  std::vector<std::string> remaining(bool of_all = false) const;
  std::string help() const;

  const std::string& get_name() const;
  std::string get_description() const;
  std::string get_footer() const;
  const App* get_parent() const { return parent_; }
  std::vector<App*> get_subcommands(bool all = false) const;  // without `all`: those that were parsed
  std::vector<Option> get_options() const;
  // Of an option by its name; none where there is no such option.
  std::vector<std::string> results(const std::string& name) const;
  std::size_t count(const std::string& name) const { return results(name).size(); }

 private:
  std::shared_ptr<::CLI::App> app_;
  const App* parent_ = nullptr;
  std::vector<std::unique_ptr<App>> subcommands_;
};

}  // namespace moesim::tools::CLI

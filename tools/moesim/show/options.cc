#include "tools/moesim/show/options.h"

#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>

namespace moesim::tools::CLI {

Validator::Validator(const ::CLI::Validator& validator)
    : validator_(std::make_shared<::CLI::Validator>(validator)) {}
Validator Validator::description(const std::string& text) const {
  return Validator(std::as_const(*validator_).description(text));
}

template <typename T>
Validator Range(T low, T high) {
  return Validator(::CLI::Range(low, high));
}
template Validator Range(int, int);
template Validator Range(std::int64_t, std::int64_t);
template Validator Range(double, double);
Validator IsMember(const std::vector<std::string>& words) { return Validator(::CLI::IsMember(words)); }
Validator ExistingDirectory() { return Validator(::CLI::ExistingDirectory); }

Option Option::check(const Validator& validator) const { return option_->check(validator.get()); }
Option Option::group(const std::string& name) const { return option_->group(name); }
Option Option::type_name(const std::string& name) const { return option_->type_name(name); }
Option Option::capture_default_str() const { return option_->capture_default_str(); }
Option Option::required() const { return option_->required(); }
Option Option::needs(Option other) const { return option_->needs(other.option_); }
Option Option::expected(int values) const { return option_->expected(values); }
Option Option::allow_extra_args(bool allowed) const { return option_->allow_extra_args(allowed); }
Option Option::take_all() const { return option_->take_all(); }

std::size_t Option::count() const { return option_->count(); }
const std::vector<std::string>& Option::results() const { return option_->results(); }
std::string Option::get_name(bool positional) const { return option_->get_name(positional); }
bool Option::check_name(const std::string& name) const { return option_->check_name(name); }
bool Option::nonpositional() const { return option_->nonpositional(); }
bool Option::get_positional() const { return option_->get_positional(); }
bool Option::takes_value() const { return option_->get_type_size_max() > 0; }
const std::vector<std::string>& Option::get_lnames() const { return option_->get_lnames(); }
const std::vector<std::string>& Option::get_snames() const { return option_->get_snames(); }
const std::string& Option::get_description() const { return option_->get_description(); }
std::string Option::get_type_name() const { return option_->get_type_name(); }
std::string Option::get_default_str() const { return option_->get_default_str(); }

App::App(const std::string& description, const std::string& name)
    : app_(std::make_shared<::CLI::App>(description, name)) {}

template <typename T>
Option App::add_option(const std::string& names, T& value, const std::string& help) {
  return app_->add_option(names, value, help);
}
template Option App::add_option(const std::string&, int&, const std::string&);
template Option App::add_option(const std::string&, std::int64_t&, const std::string&);
template Option App::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option App::add_option(const std::string&, double&, const std::string&);
template Option App::add_option(const std::string&, std::string&, const std::string&);
template Option App::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option App::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Option App::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);
template Option App::add_option(const std::string&, std::optional<std::string>&, const std::string&);

Option App::add_option_function(const std::string& names, std::function<void(const std::string&)> take,
                                const std::string& help) {
  return app_->add_option_function<std::string>(names, std::move(take), help);
}
Option App::add_flag(const std::string& names, bool& value, const std::string& help) {
  return app_->add_flag(names, value, help);
}
Option App::add_flag_callback(const std::string& names, std::function<void()> act, const std::string& help) {
  return app_->add_flag_callback(names, std::move(act), help);
}
void App::set_version_flag(const std::string& names, const std::string& text) {
  app_->set_version_flag(names, text);
}
void App::set_help_flag(const std::string& names, const std::string& help) {
  app_->set_help_flag(names, help);
}
App* App::add_subcommand(const std::string& name, const std::string& summary) {
  subcommands_.push_back(std::make_unique<App>());
  App& made = *subcommands_.back();
  made.app_ = app_->get_subcommand_ptr(app_->add_subcommand(name, summary));
  made.parent_ = this;
  return &made;
}
void App::require_subcommand(std::size_t least, std::size_t most) { app_->require_subcommand(least, most); }
void App::fallthrough() { app_->fallthrough(); }
void App::allow_extras() { app_->allow_extras(); }
void App::footer(const std::string& text) { app_->footer(text); }

std::function<std::string()> App::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(words));
    return {};
  } catch (const ::CLI::Success& asked) {
    return [app = app_, asked] {
      std::ostringstream out;
      app->exit(asked, out, out);
      return out.str();
    };
  } catch (const ::CLI::ParseError& error) {
    throw ParseError(error.what());
  }
}
bool App::parsed() const { return app_->parsed(); }
std::vector<std::string> App::remaining(bool of_all) const { return app_->remaining(of_all); }
std::string App::help() const { return app_->help(); }

const std::string& App::get_name() const { return app_->get_name(); }
std::string App::get_description() const { return app_->get_description(); }
std::string App::get_footer() const { return app_->get_footer(); }
std::vector<App*> App::get_subcommands(bool all) const {
  std::vector<App*> found;
  for (const std::unique_ptr<App>& one : subcommands_)
    if (all || one->parsed()) found.push_back(one.get());
  return found;
}
std::vector<Option> App::get_options() const {
  const std::vector<::CLI::Option*> all = app_->get_options();
  return {all.begin(), all.end()};
}
std::vector<std::string> App::results(const std::string& name) const {
  const ::CLI::Option* option = app_->get_option_no_throw(name);
  return option == nullptr ? std::vector<std::string>() : option->results();
}

}  // namespace moesim::tools::CLI

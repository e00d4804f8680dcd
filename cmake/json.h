// nlohmann/json.hpp to precompile, without its literals ("..."_json): an inline function that calls parse() makes every
// source compile a parser of its own, 0.6 s each. Here it is a template that is never instantiated.
#pragma once

#define JSON_USE_GLOBAL_UDLS 0
#define _json(text, size) \
  _json(text, size);      \
  template <class>        \
  nlohmann::json parsed_literal(text, size)
#include <nlohmann/json.hpp>
#undef _json

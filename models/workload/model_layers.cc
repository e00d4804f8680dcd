#include "models/workload/model_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace moesim::models {

namespace {

// DeepSeek-V4: tokens of a compressed key, with an indexer and without.
constexpr std::int64_t kChosenRatio = 4, kAllRatio = 128;

// Cuts the letters of a list to the layers; lists may continue with the layers of multi-token prediction.
std::string cut(const JsonNode& list, std::string letters, std::int64_t layers) {
  if (static_cast<std::int64_t>(letters.size()) < layers)
    list.fail(fmt::format("{} items", letters.size()), fmt::format("one for each of the {} layers", layers));
  letters.resize(static_cast<std::size_t>(layers));
  return letters;
}

// Returns one letter for each name in a list.
std::string letters_of(const JsonNode& list, std::int64_t layers, const LayerNames& known) {
  std::string letters;
  for (const JsonNode& item : list.items()) {
    const std::string name = item.string();
    const auto at = known.find(name);
    if (at == known.end()) {
      std::vector<std::string> names;
      for (const auto& [one, letter] : known) names.push_back(one);
      list.fail("with " + in_quotes(name),
                fmt::format("{}: other layers are not modelled here", join(names, ", ")));
    }
    letters += at->second;
  }
  return cut(list, std::move(letters), layers);
}

// Returns a letter for every item of a list of zeros and ones, or of switches.
std::string letters_of(const JsonNode& list, std::int64_t layers, char zero, char one) {
  std::string letters;
  for (const JsonNode& item : list.items())
    letters += (item.is_boolean() ? item.boolean() : item.integer(0, 1) == 1) ? one : zero;
  return cut(list, std::move(letters), layers);
}

// Returns positions from a list of numbers, or from a text "3,4,5".
std::vector<std::int64_t> places_of(const JsonNode& list, std::int64_t first, std::int64_t layers) {
  if (list.is_array()) return list.integers(first, first + layers - 1);
  std::vector<std::int64_t> places;
  const std::string text = list.string();
  for (const std::string_view part : split(text, ',')) {
    const auto number = parse_int(trim(part));
    if (!number || *number < first || *number >= first + layers)
      list.fail(list.describe(), fmt::format("numbers of layers, {} to {}", first, first + layers - 1));
    places.push_back(*number);
  }
  return places;
}

// Returns `there` for the layers, counted from 0, for which something holds, `other` elsewhere.
template <class Holds>
std::string letters_if(std::int64_t layers, char there, char other, const Holds& holds) {
  std::string letters;
  for (std::int64_t i = 0; i < layers; ++i) letters += holds(i) ? there : other;
  return letters;
}
std::string every(std::int64_t layers, std::int64_t period, char last, char other) {
  return letters_if(layers, last, other, [&](std::int64_t i) { return (i + 1) % period == 0; });
}
// For a list of positions, of which the first is 0 or 1.
std::string at_places(const JsonNode& list, std::int64_t first, std::int64_t layers, char there, char other) {
  const std::vector<std::int64_t> places = places_of(list, first, layers);
  return letters_if(layers, there, other,
                    [&](std::int64_t i) { return std::ranges::find(places, i + first) != places.end(); });
}

constexpr ModelConfig::Keys kPeriods{"sliding_window_pattern", "_sliding_window_pattern",
                                     "global_attn_every_n_layers", "global_attention_every_n_layers"};

// Returns the layers "first|turn|last", of which only the turn is repeated.
std::string in_turns(const std::string& text, std::int64_t layers) {
  std::vector<std::string_view> parts = split(text, '|');
  if (parts.size() == 1) parts.insert(parts.begin(), "");
  std::string letters(parts[0]);
  while (static_cast<std::int64_t>(letters.size()) < layers)
    letters += parts[1][(letters.size() - parts[0].size()) % parts[1].size()];
  letters.resize(static_cast<std::size_t>(layers));
  if (parts.size() > 2) letters.back() = parts[2].front();
  return letters;
}

// Returns the windowed layers where no list gives them.
std::string windows(const ModelConfig& config, std::int64_t layers) {
  // Llama 4: chunks in layers with rotary embeddings, three of four without a list of them.
  if (config.family().starts_with("llama4")) {
    if (const auto list = config.said({"no_rope_layers"}); list && list->is_array())
      return letters_of(*list, layers, '*', 'W');
    return every(layers, config.size({"no_rope_layer_interval"}, 4, 1), '*', 'W');
  }
  if (const auto pattern = config.said(kPeriods)) {
    if (!pattern->is_string()) return every(layers, pattern->integer(1, layers), '*', 'W');
    std::string turn = pattern->string();  // EXAONE 4: "LLLG"
    if (turn.find_first_not_of("LG") != std::string::npos)
      pattern->fail(pattern->describe(), "letters L (sliding window) and G (all tokens)");
    std::ranges::replace(turn, 'L', 'W');
    std::ranges::replace(turn, 'G', '*');
    return in_turns(turn, layers);
  }
  // Qwen: enabled by a flag, from a given layer on.
  const std::int64_t first = config.size({"max_window_layers"}, 0);
  return letters_if(layers, 'W', '*', [&](std::int64_t i) { return i >= first; });
}

bool has_windows(const ModelConfig& config) {
  if (config.family() == "smallthinker") return false;  // by its list alone
  return config.flag("use_sliding_window", true) && config_window(config) > 0;
}

// Returns the layers that a class makes without a list.
std::string class_layers(const ModelConfig& config, const std::string& usual, std::int64_t layers) {
  if (usual == "?")
    config.node().fail("no \"layer_types\"",
                       fmt::format("this list: {} makes the layers by a rule of its own", config.family()));
  std::string letters = in_turns(usual, layers);
  if (!has_windows(config)) std::ranges::replace(letters, 'W', '*');
  return letters;
}

}  // namespace

std::int64_t config_window(const ModelConfig& config) {
  const ModelConfig::Keys chunks{"attention_chunk_size"}, windows{"sliding_window", "sliding_window_size"};
  const ModelConfig::Keys& keys = config.family().starts_with("llama4") ? chunks : windows;
  const auto value = config.find(keys);
  return value && value->is_integer() && value->integer() < 0 ? 0 : config.size(keys, 0);
}

std::string config_pattern(const ModelConfig& config) {
  for (const char* key : {"hybrid_override_pattern", "hybrid_layer_pattern"})
    if (std::string pattern = config.text(key); !pattern.empty()) return pattern;
  const auto names = config.said({"layers_block_type"});
  if (!names || !names->is_array()) return "";
  return letters_of(*names, static_cast<std::int64_t>(names->size()), layer_names("layers_block_type"));
}

namespace {

// By the tokens of a compressed key of each layer: none, four with an indexer, more without. The list continues
// with the layers of prediction.
Compression by_ratios(const JsonNode& ratios, std::int64_t layers) {
  Compression c;
  for (const std::int64_t ratio : ratios.integers(0, 1 << 20)) {
    if (static_cast<std::int64_t>(c.mixers.size()) == layers) break;
    const bool chosen = ratio == kChosenRatio;
    std::int64_t& of = chosen ? c.chosen : c.all;
    if (ratio != 0 && of != 0 && ratio != of)
      ratios.fail(fmt::format("with {} and {}", of, ratio), "one ratio beside 0 and 4");
    if (ratio != 0) of = ratio;
    c.mixers += ratio == 0 ? 'W' : chosen ? 'S' : 'H';
  }
  c.mixers = cut(ratios, std::move(c.mixers), layers);
  return c;
}

bool names_compression(const JsonNode& types) {
  return std::ranges::any_of(types.items(), [](const JsonNode& item) {
    return item.is_string() && item.string().find("compressed") != std::string::npos;
  });
}

}  // namespace

std::optional<Compression> config_compression(const ModelConfig& config) {
  const std::int64_t layers = config.size({"num_hidden_layers", "n_layers"}, 0);
  if (const auto ratios = config.said({"compress_ratios"})) return by_ratios(*ratios, layers);
  const auto types = config.said({"layer_types"});
  const bool named = types && types->is_array() && names_compression(*types);
  if (!named && (types || !config.family().starts_with("deepseek_v4"))) return std::nullopt;
  Compression c;
  if (named) {
    c.mixers = letters_of(*types, layers, layer_names("compressed layer_types"));
  } else {  // transformers' DeepseekV4Config
    c.mixers = letters_if(layers, 'S', 'H', [](std::int64_t i) { return i >= 2 && i % 2 == 1; });
  }
  const auto rates = config.part("compress_rates");
  const auto tokens = [&](char letter, const char* name, std::int64_t usual) -> std::int64_t {
    if (c.mixers.find(letter) == std::string::npos) return 0;
    return rates ? rates->size({name}, usual, 2) : usual;
  };
  c.chosen = tokens('S', "compressed_sparse_attention", kChosenRatio);
  c.all = tokens('H', "heavily_compressed_attention", kAllRatio);
  return c;
}

namespace {

// Layers of sparse attention that reuse the choice of an earlier layer's indexer (GLM-5.2; DeepSeek's index
// cache): by a list, or all but every n-th from a position on.
void share_choices(const ModelConfig& config, std::string& letters) {
  const auto layers = static_cast<std::int64_t>(letters.size());
  const auto every = config.said({"index_topk_freq"});
  const auto offset = config.find({"index_skip_topk_offset"});
  std::string shared;
  if (const auto types = config.said({"indexer_types"}); types && types->is_array()) {
    shared = letters_of(*types, layers, layer_names("indexer_types"));
  } else if (const auto pattern = config.said({"index_topk_pattern"}); pattern && pattern->is_string()) {
    shared = pattern->string();
    if (static_cast<std::int64_t>(shared.size()) < layers ||
        shared.find_first_not_of("FS") != std::string::npos)
      pattern->fail(pattern->describe(), "a letter F (own indexer) or S (shared choice) for each layer");
    for (char& letter : shared) letter = letter == 'F' ? '*' : 'I';
  } else if (every && every->integer(1, layers) > 1) {
    if (!offset) every->fail(every->describe(), "\"index_skip_topk_offset\" or \"indexer_types\" beside it");
    shared = letters_if(layers, '*', 'I', [&](std::int64_t i) {
      return std::max<std::int64_t>(0, i - offset->integer(0, layers) + 1) % every->integer() == 0;
    });
  }
  for (std::size_t i = 0; i < letters.size() && !shared.empty(); ++i)
    if (letters[i] == '*' && shared[i] == 'I') letters[i] = 'I';
  if (const std::size_t first = letters.find_first_of("*I");
      first != std::string::npos && letters[first] == 'I')
    config.node().fail("a shared choice before any indexer",
                       "the first layer of sparse attention with its own");
}

std::string mixers_by_kind(const ModelConfig& config, std::int64_t layers) {
  if (auto compression = config_compression(config)) return std::move(compression->mixers);
  if (const auto types = config.said({"layer_types"}); types && types->is_array()) {
    std::string letters = letters_of(*types, layers, layer_names("layer_types"));
    config.has({"full_attn_idxs"});
    config.has({"sliding_window_pattern"});  // redundant (EXAONE)
    if (const auto all = config.said({"full_attention_interval"});
        all && letters != every(layers, all->integer(1, layers), '*', 'L'))
      all->fail(all->describe(), "what \"layer_types\" says");
    return letters;
  }
  if (const auto list = config.said({"full_attn_idxs"}))
    return at_places(*list, 0, layers, '*', 'C');  // LFM2
  if (const auto types = config.said({"attn_type_list"})) return letters_of(*types, layers, 'L', '*');
  if (const auto linear = config.part("linear_attn_config"); linear && linear->node().size() > 0) {
    // Kimi's lists of both kinds, numbered from one.
    const auto list = linear->find({"kda_layers"});
    linear->has({"full_attn_layers"});
    if (!list) linear->node().fail("no \"kda_layers\"", "the layers with linear attention");
    return at_places(*list, 1, layers, 'L', '*');
  }
  if (const auto all = config.said({"full_attention_interval"}))
    return every(layers, all->integer(1, layers), '*', 'L');
  if (const auto period = config.said({"attn_layer_period"}))
    return letters_if(layers, '*', 'M', [&, offset = config.size({"attn_layer_offset"}, 0)](std::int64_t i) {
      return i % period->integer(1, layers) == offset;
    });
  if (const auto list = config.said({"attn_layer_indices"}))  // Bamba
    return at_places(*list, 0, layers, '*', 'M');
  // Ling linear: layers after the last whole group also have a softmax.
  if (const auto group = config.said({"layer_group_size"})) {
    const std::int64_t size = group->integer(1, layers);
    return letters_if(layers, '*', 'L',
                      [&](std::int64_t i) { return (i + 1) % size == 0 || i >= layers / size * size; });
  }
  if (const auto sparse = config.part("sparse_attention_config"))
    if (const auto list = sparse->find({"sparse_attention_freq"}); list && list->is_array())
      return letters_of(*list, layers, 'F', '*');
  if (const auto windowed = config.said({"hybrid_layer_pattern", "sliding_window_layout"});
      windowed && windowed->is_array())
    return letters_of(*windowed, layers, '*', 'W');
  if (const auto usual = config.usual({"mixers"}); usual && !config.said(kPeriods))
    return class_layers(config, usual->string(), layers);
  return has_windows(config) ? windows(config, layers) : every(layers, 1, '*', '*');
}

}  // namespace

std::string config_mixers(const ModelConfig& config, std::int64_t layers) {
  std::string letters = mixers_by_kind(config, layers);
  if (config.said({"index_topk"})) share_choices(config, letters);
  return letters;
}

namespace {

// Returns whether a part of a block exists. Throws InputError for a description beyond Architecture.
bool part_is_there(const JsonNode& block, const char* part, std::initializer_list<std::string_view> read) {
  const auto node = block.find(part);
  if (!node || !node->is_object())
    block.fail(fmt::format("no \"{}\"", part), "an object for it in every block");
  for (const std::string& key : node->keys()) {
    const JsonNode value = *node->find(key);
    if (key != "no_op" && std::ranges::find(read, key) == read.end() && !says_nothing(value) &&
        !value.is_string())
      value.fail(fmt::format("({})", value.describe()),
                 "a block without it: such blocks are not modelled here");
  }
  const auto none = node->find("no_op");
  return !none || says_nothing(*none);
}

}  // namespace

std::optional<ConfigBlocks> config_blocks(const ModelConfig& config, std::int64_t hidden,
                                          std::int64_t layers) {
  const auto list = config.said({"block_configs"});
  if (!list) return std::nullopt;
  ConfigBlocks blocks;
  for (const JsonNode& block : list->items()) {
    const bool mixes = part_is_there(block, "attention", {"n_heads_in_group", "num_key_value_heads"});
    blocks.mixers += mixes ? '*' : '.';
    if (const auto group = block.find("attention")->find("n_heads_in_group");
        mixes && group && !group->is_null()) {
      const std::int64_t heads = group->integer(1, kMaxModelSize);
      if (blocks.heads_in_group > 0 && blocks.heads_in_group != heads)
        group->fail(fmt::format("{} after {}", heads, blocks.heads_in_group), "the same in all layers");
      blocks.heads_in_group = heads;
    }
    const bool ffn = part_is_there(block, "ffn", {"ffn_mult", "intermediate_size"});
    blocks.ffns += ffn ? '-' : '.';
    if (!ffn) continue;
    const JsonNode part = *block.find("ffn");
    if (const auto size = part.find("intermediate_size"); size && !size->is_null()) {
      blocks.sizes.push_back(size->integer(1, kMaxModelSize));
      continue;
    }
    const auto times = part.find("ffn_mult");
    if (!times || !times->is_number()) part.fail("no \"ffn_mult\"", "the size of the FFN");
    // DeciLM's: two thirds, rounded up to a multiple of 256.
    const double inner = 2.0 / 3 * times->number(0, 1024) * static_cast<double>(hidden);
    blocks.sizes.push_back(std::max<std::int64_t>(1, (static_cast<std::int64_t>(inner) + 255) / 256) * 256);
  }
  if (static_cast<std::int64_t>(blocks.mixers.size()) != layers)
    list->fail(fmt::format("{} blocks", blocks.mixers.size()),
               fmt::format("one for each of the {} layers", layers));
  return blocks;
}

std::string config_ffns(const ModelConfig& config, std::int64_t layers) {
  static constexpr ModelConfig::Keys kLeading{"first_k_dense_replace", "n_dense_layers", "num_dense_layers",
                                              "moe_layer_start_index", "moe_layer_num_skipped"};
  const auto whole = config.said({"mlp_layer_types", "is_moe_layer", "moe_layer_layout"});
  if (whole && whole->is_array()) {
    // Beside a list of all layers these keys are redundant.
    config.has(kLeading), config.has({"moe_layer_freq"});
    if (whole->size() > 0 && whole->items()[0].is_string())
      return letters_of(*whole, layers, layer_names("mlp_layer_types"));
    return letters_of(*whole, layers, '-', 'E');
  }
  std::string letters(static_cast<std::size_t>(layers), 'E');
  const auto only = [&](auto holds) {
    for (std::int64_t i = 0; i < layers; ++i)
      if (!holds(i)) letters[static_cast<std::size_t>(i)] = '-';
  };
  // The layers themselves: numbers (Llama 4, Step), or a one for each with experts.
  if (const auto list = config.said({"moe_layers", "moe_layers_enum"})) {
    const std::vector<std::int64_t> places = places_of(*list, 0, layers);
    config.has({"interleave_moe_layer_step"});  // from which the list was made
    only([&](std::int64_t i) { return std::ranges::find(places, i) != places.end(); });
  } else if (const auto step = config.said({"interleave_moe_layer_step", "decoder_sparse_step",
                                            "moe_layer_interval", "route_every_n"})) {
    // ERNIE, Llama 4, Qwen and Mistral: the last of every n.
    const std::int64_t n = step->integer(1, kMaxModelSize);
    only([&](std::int64_t i) { return (i + 1) % n == 0; });
  }
  if (const auto frequency = config.said({"moe_layer_freq"})) {
    if (frequency->is_array()) {
      config.has(kLeading);
      return letters_of(*frequency, layers, '-', 'E');
    }
    const std::int64_t n = frequency->integer(1, kMaxModelSize);  // DeepSeek: the first of every n
    only([&](std::int64_t i) { return i % n == 0; });
  }
  if (const auto period = config.said({"expert_layer_period"})) {
    const std::int64_t n = period->integer(1, kMaxModelSize),
                       offset = config.size({"expert_layer_offset"}, 0);
    only([&](std::int64_t i) { return i % n == offset; });
  }
  const auto end = config.find({"moe_layer_end_index"});  // -1: the last layer
  const std::int64_t first = config.size(kLeading, 0),
                     last = end && end->integer() != -1 ? end->integer(0, kMaxModelSize) : layers - 1;
  only([&](std::int64_t i) { return i >= first && i <= last; });
  if (const auto list = config.said({"mlp_only_layers"})) {
    const std::vector<std::int64_t> places = places_of(*list, 0, layers);
    only([&](std::int64_t i) { return std::ranges::find(places, i) == places.end(); });
  }
  return letters;
}

void set_mixers(Architecture& model, const std::string& letters) {
  const auto layers = static_cast<std::int64_t>(letters.size());
  if (letters.find_first_not_of('W') == std::string::npos) {
    model.mixers.clear();
    model.attention.window_every = 0;
    return;
  }
  const std::size_t full = letters.find('*');
  const std::int64_t period = full == std::string::npos ? 0 : static_cast<std::int64_t>(full) + 1;
  model.mixers.clear();
  model.attention.window_every = 1;  // none
  if (letters.find_first_not_of('*') == std::string::npos) return;
  model.attention.window_every = 0;
  if (period > 1 && letters == every(layers, period, '*', 'W'))
    model.attention.window_every = period;
  else
    model.mixers = letters;
}

void set_ffns(Architecture& model, const std::string& letters) {
  const auto layers = static_cast<std::int64_t>(letters.size());
  model.ffns.clear();
  model.dense_layers = 0;
  model.moe_every = 1;
  const std::size_t first = letters.find('E');
  if (first == std::string::npos) {
    model.dense_layers = layers;
    return;
  }
  const auto leading = static_cast<std::int64_t>(first);
  if (letters.find('-', first) == std::string::npos) {
    model.dense_layers = leading;
  } else if (letters == every(layers, leading + 1, 'E', '-')) {
    model.moe_every = leading + 1;
  } else {
    model.ffns = letters;
  }
}

}  // namespace moesim::models

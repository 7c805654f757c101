#include "data/jsonl.h"

#include <nlohmann/json.hpp>

namespace nsa {

JsonlText text_of_line(std::string_view line, const std::string& key) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return {.text = "", .problem = "is not valid JSON"};
  if (!object.is_object()) {
    return {.text = "",
            .problem = std::string("is a JSON ") + object.type_name() + ", wanted an object"};
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    std::string keys;
    for (const auto& item : object.items()) keys += (keys.empty() ? "" : ", ") + item.key();
    return {
        .text = "",
        .problem = "has no key \"" + key + "\" (its keys: " + keys + "; --text-key names another)"};
  }
  if (!found->is_string()) {
    const bool is_vowel = found->is_array() || found->is_object();
    return {.text = "",
            .problem = (is_vowel ? "holds an " : "holds a ") + std::string(found->type_name()) +
                       " under \"" + key + "\", wanted a string"};
  }
  return {.text = found->get<std::string>(), .problem = ""};
}

}  // namespace nsa

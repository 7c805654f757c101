#pragma once

// Text for tests, from a small seeded grammar: sentences about named things that come up again
// later, so that there is something to learn at short and at long range.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/philox.h"

namespace nsa::test {

/// The same seed gives the same text.
class TextGenerator {
 public:
  explicit TextGenerator(std::uint64_t seed) : seed_(seed) {}

  /// One document of about `words` words, in lines and paragraphs.
  std::string document(std::int64_t words) {
    const std::vector<std::string> names = {name(), name(), name()};
    std::string text = "About " + names[0] + " and " + names[1] + "\n\n";
    std::int64_t written = 0;
    for (std::int64_t sentence = 1; written < words; ++sentence) {
      text += pick(kOpenings);
      text += ' ' + names[number(names.size())] + ' ' + std::string(pick(kVerbs));
      text += " the " + std::string(pick(kNouns)) + " of " + names[number(names.size())];
      if (number(3) == 0) text += " in " + std::to_string(number(1000));
      text += number(4) == 0 ? "?" : ".";
      text += sentence % 7 == 0 ? "\n\n" : (sentence % 3 == 0 ? "\n" : " ");
      written += 7;
    }
    return text;
  }

 private:
  static constexpr std::array<std::string_view, 5> kOpenings = {"Then", "Later", "Once", "Today",
                                                                "Still"};
  static constexpr std::array<std::string_view, 6> kVerbs = {"opened",  "found",  "painted",
                                                             "carried", "mended", "forgot"};
  static constexpr std::array<std::string_view, 6> kNouns = {"door",   "letter", "garden",
                                                             "bridge", "lamp",   "window"};
  static constexpr std::array<std::string_view, 8> kSyllables = {"ka", "lo", "mi", "ren",
                                                                 "su", "ta", "vo", "zel"};

  std::uint64_t number(std::uint64_t below) { return philox(seed_, 0, count_++)[0] % below; }
  template <std::size_t kCount>
  std::string_view pick(const std::array<std::string_view, kCount>& words) {
    return words[number(kCount)];
  }
  std::string name() {
    std::string made;
    for (int i = 0; i < 3; ++i) made += pick(kSyllables);
    made[0] = static_cast<char>(made[0] - 'a' + 'A');
    return made;
  }

  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

}  // namespace nsa::test

// Texts where names belong, and a way to get them into a message that no encoder of ours would write.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.hpp"

namespace atl::test {

// What no string of this class (transport/control/messages.fbs) may be.
inline std::vector<std::string> hostile_strings(std::string_view kind) {
  using namespace std::string_literals;
  std::vector<std::string> all = {"nul\0l"s,
                                  "line\nbreak",
                                  "\x1b[2Jcleared",
                                  "bell\x07",
                                  "\xC2\x9b"
                                  "31mred",
                                  "\xff\xfe",
                                  "cut \xE2\x82",
                                  "abc\xE2\x80\xAE"
                                  "fed",
                                  "\xE2\x81\xA6"
                                  "isolated",
                                  "zero\xE2\x80\x8B"
                                  "width",
                                  "soft\xC2\xAD"
                                  "hyphen",
                                  "\xEF\xBB\xBF"
                                  "marked",
                                  "tag\xF3\xA0\x80\xA1",
                                  std::string(600, 'x')};
  if (kind == "line") {
    return all;
  }
  for (const char* path : {"/somewhere/else", "../../..",     "..",          ".",       "/",   "a/../b",      "a/b",  "./a",
                           "~/a b",           "a\\..\\b",     "a b",         " ",       "-rf", "caf\xC3\xA9", "r-1/", "%2e%2e/",
                           "$(id)",           "experts/../2", "experts/2/3", "/dev/shm"}) {
    all.emplace_back(path);
  }
  if (kind != "address") {
    all.push_back("tcp://here:1");
  }
  if (kind != "key") {
    all.push_back(std::string(65, 'x'));
  }
  return all;
}

// The frame with its one string `from` replaced: `to` is appended, and what refers to `from` refers to it. Nothing if there is no such
// string.
inline std::optional<Bytes> with_string(const Bytes& frame, std::string_view from, std::string_view to) {
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, frame.data() + at, sizeof value);
    return value;
  };
  const auto length = static_cast<std::uint32_t>(to.size());
  for (std::size_t at = 0; at + 4 + from.size() < frame.size(); at += 4) {
    if (word(at) != from.size() || std::memcmp(frame.data() + at + 4, from.data(), from.size()) != 0 ||
        frame[at + 4 + from.size()] != std::byte{0}) {
      continue;
    }
    Bytes changed = frame;
    changed.resize((frame.size() + 3) / 4 * 4);
    const std::size_t place = changed.size();
    changed.resize(place + 4 + to.size() + 1);
    std::memcpy(changed.data() + place, &length, sizeof length);
    std::memcpy(changed.data() + place + 4, to.data(), to.size());
    for (std::size_t slot = 0; slot < at; slot += 4) {
      if (slot + word(slot) == at) {
        const auto offset = static_cast<std::uint32_t>(place - slot);
        std::memcpy(changed.data() + slot, &offset, sizeof offset);
      }
    }
    return changed;
  }
  return std::nullopt;
}

}  // namespace atl::test

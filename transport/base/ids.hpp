// The names and numbers of things, as types that cannot be mixed up.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace atl {

// A text id. Tag makes the types distinct.
template <typename Tag>
struct TextId {
  std::string text;

  TextId() = default;
  explicit TextId(std::string value) : text(std::move(value)) {}
  [[nodiscard]] bool empty() const { return text.empty(); }
  // Ids are short and are compared in every step of both cores: a loop costs less than the call of memcmp that std::string makes of it.
  friend std::strong_ordering operator<=>(const TextId& a, const TextId& b) {
    const std::size_t common = std::min(a.text.size(), b.text.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (a.text[i] != b.text[i]) {
        return static_cast<unsigned char>(a.text[i]) <=> static_cast<unsigned char>(b.text[i]);
      }
    }
    return a.text.size() <=> b.text.size();
  }
  friend bool operator==(const TextId& a, const TextId& b) {
    return a.text.size() == b.text.size() && a <=> b == std::strong_ordering::equal;
  }
};

// A number that counts. Tag makes the types distinct.
template <typename Tag, typename Integer>
struct Number {
  Integer value = 0;

  constexpr Number() = default;
  constexpr explicit Number(Integer number) : value(number) {}
  // The largest number is its own successor: counting on never begins anew at 0.
  [[nodiscard]] constexpr Number next() const { return Number(value == std::numeric_limits<Integer>::max() ? value : value + 1); }
  friend constexpr auto operator<=>(const Number&, const Number&) = default;
};

using RunId = TextId<struct RunTag>;        // "r-7f3a9c12": chosen by the coordinator
using IslandId = TextId<struct IslandTag>;  // derived from the island's public key; stable over restarts

using Round = Number<struct RoundTag, std::uint64_t>;      // 1, 2, 3…; 0 is the state a run starts from
using Attempt = Number<struct AttemptTag, std::uint32_t>;  // 1, 2, 3… within a round
using Epoch = Number<struct EpochTag, std::uint64_t>;      // 1, 2, 3…; grows by one with every join or leave
using Step = Number<struct StepTag, std::uint64_t>;        // inner steps done

}  // namespace atl

template <typename Tag>
struct std::hash<atl::TextId<Tag>> {
  std::size_t operator()(const atl::TextId<Tag>& id) const noexcept { return std::hash<std::string>{}(id.text); }
};
template <typename Tag, typename Integer>
struct std::hash<atl::Number<Tag, Integer>> {
  std::size_t operator()(const atl::Number<Tag, Integer>& number) const noexcept { return std::hash<Integer>{}(number.value); }
};

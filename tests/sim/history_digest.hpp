// What a simulated cluster did, in 64 bits: each message that arrives at a core, each event and effect of an agent's core and each of the
// coordinator's records, with all of their fields and at its time.
//
// ATOLL_SIM_DIGEST=FILE adds a line for each world to FILE: "SEED DIGEST COUNT TEST", where COUNT is of what was digested. Two builds that
// do the same write the same lines, worlds of several threads in another order. Without the variable nothing is digested.
// Threads: each world has its own; worlds of several threads write whole lines.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tests/sim/fields.hpp"
#include "transport/base/time.hpp"

namespace atl::sim {

class HistoryDigest {
 public:
  explicit HistoryDigest(std::uint64_t seed) : seed_(seed) {}
  ~HistoryDigest();
  HistoryDigest(const HistoryDigest&) = delete;
  HistoryDigest& operator=(const HistoryDigest&) = delete;

  // `value` came to `whom`, or was decided there.
  template <typename T>
  void add(TimePoint now, const std::string& whom, const T& value) {
    if (wanted()) {
      ++count_;
      mix(now);
      mix(whom);
      mix(value);
    }
  }

 private:
  [[nodiscard]] static bool wanted();

  void number(std::uint64_t value) {  // FNV-1a, eight bytes at a time, and a shift: the high bits reach the low ones
    digest_ = (digest_ ^ value) * 0x100000001b3ULL;
    digest_ ^= digest_ >> 29;
  }
  template <typename T>
  void range(const T& values) {
    number(values.size());
    for (const auto& value : values) {
      mix(value);
    }
  }
  template <typename T>
  void mix(const std::optional<T>& value) {
    number(value ? 1 : 0);
    if (value) {
      mix(*value);
    }
  }
  template <typename... Ts>
  void mix(const std::variant<Ts...>& value) {
    number(value.index());
    std::visit([&](const auto& held) { mix(held); }, value);
  }
  template <typename A, typename B>
  void mix(const std::pair<A, B>& value) {
    mix(value.first);
    mix(value.second);
  }
  template <typename Rep, typename Period>
  void mix(const std::chrono::duration<Rep, Period>& value) {
    mix(value.count());
  }
  void mix(TimePoint value) { mix(value.time_since_epoch()); }
  template <typename T>
  void mix(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      number(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      number(static_cast<std::uint64_t>(value));
    } else if constexpr (requires {
                           value.begin();
                           value.size();
                         }) {
      range(value);
    } else {
      for_each_field(value, [&](const auto& field) { mix(field); });
    }
  }

  std::uint64_t seed_;
  std::uint64_t digest_ = 0xcbf29ce484222325ULL;
  std::uint64_t count_ = 0;
};

}  // namespace atl::sim

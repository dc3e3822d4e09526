// The arguments of a request: a JSON object from outside, read key by key.
//
// Every mistake is invalid_argument naming the key: a wrong type, a number out of range, a key that the verb does not know.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl::coordinator {

class Arguments {
 public:
  // `known` are the keys that the verb has. An empty text is an object without keys.
  static Result<Arguments> parse(std::string_view verb, std::string_view json, std::span<const std::string_view> known);
  Arguments(Arguments&&) noexcept;
  Arguments& operator=(Arguments&&) noexcept;
  ~Arguments();

  // The value of a key, the fallback when it is absent or null.
  Result<std::string> text(std::string_view key, std::optional<std::string> fallback = std::nullopt) const;
  Result<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most,
                               std::optional<std::int64_t> fallback = std::nullopt) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  // An object's JSON text.
  Result<std::string> object(std::string_view key) const;

 private:
  Arguments(std::string verb, nlohmann::json value);
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  [[nodiscard]] Error wrong(std::string_view key, std::string_view wanted) const;

  std::string verb_;
  std::unique_ptr<nlohmann::json> value_;
};

}  // namespace atl::coordinator

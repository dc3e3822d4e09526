#include "transport/base/result.hpp"

#include <array>

namespace atl {
namespace {

constexpr std::array<std::string_view, 10> kNames = {"invalid_argument", "not_found", "conflict", "unavailable", "timeout",
                                                     "unauthorized",     "corrupt",   "io",       "cancelled",   "internal"};

}  // namespace

std::string_view to_string(Code code) { return kNames[static_cast<std::size_t>(code)]; }

Code code_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<Code>(i);
    }
  }
  return Code::internal;
}

bool worth_retrying(Code code) { return code == Code::unavailable || code == Code::timeout; }

}  // namespace atl

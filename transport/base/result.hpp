// Result<T> and Status: an expected failure is a value. (The namespace is `atl`: `atoll` is a function of the C library.)
//
// A function that can fail for a reason outside the program (a network, a disk, a run file, a peer) returns
// Result<T> or Status. Context is added once per layer with `with_context`. Whether to try again is a property of
// the code, decided by `worth_retrying` alone.
// Threads: plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "transport/base/check.hpp"

namespace atl {

enum class Code {
  invalid_argument,  // the caller or the run file asked for something impossible
  not_found,         // a run, an island, a file, a token that does not exist
  conflict,          // it exists already, or somebody else holds it
  unavailable,       // nobody answers at the moment; trying again may help
  timeout,           // an answer did not come in time; trying again may help
  unauthorized,      // the key, the token or the owner's permission does not allow it
  corrupt,           // bytes that do not verify: a digest, a length, a number that is not finite
  io,                // the operating system refused: disk full, permission, a broken file
  cancelled,         // somebody asked to stop
  internal,          // a defect of Atoll
};

// The code's name as printed in JSON, logs and the protocol ("invalid_argument").
std::string_view to_string(Code code);
// The code a name stands for; `internal` for a name that is not known.
Code code_from_string(std::string_view name);
// True for `unavailable` and `timeout`.
bool worth_retrying(Code code);

// What went wrong, in one line for a person: what, which, why, what to do. Lower case, no full stop at the end.
struct Error {
  Code code = Code::internal;
  std::string why;

  friend bool operator==(const Error&, const Error&) = default;
};

// "context: why", the code unchanged.
[[nodiscard]] inline Error with_context(Error error, std::string_view context) {
  error.why = std::string(context) + ": " + error.why;
  return error;
}

// A value of T, or the Error that prevented it. Shaped like std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // The value; a broken invariant if there is none (check first).
  T& value() & {
    ATOLL_CHECK(has_value(), std::get<1>(state_).why);
    return std::get<0>(state_);
  }
  const T& value() const& {
    ATOLL_CHECK(has_value(), std::get<1>(state_).why);
    return std::get<0>(state_);
  }
  // By value from a temporary, so that `for (x : f().value())` does not dangle.
  T value() && {
    ATOLL_CHECK(has_value(), std::get<1>(state_).why);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const& {
    ATOLL_CHECK(!has_value(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  [[nodiscard]] Error error() && {
    ATOLL_CHECK(!has_value(), "error() of a Result that holds a value");
    return std::get<1>(std::move(state_));
  }
  [[nodiscard]] T value_or(T fallback) const& { return has_value() ? std::get<0>(state_) : std::move(fallback); }

 private:
  std::variant<T, Error> state_;
};

// Success, or the Error that prevented it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    ATOLL_CHECK(error_.has_value(), "error() of a Status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace atl

// Returns the error of a Status expression to the caller.
#define ATOLL_TRY(expression)                              \
  do {                                                     \
    if (auto atoll_status = (expression); !atoll_status) { \
      return atoll_status.error();                         \
    }                                                      \
  } while (false)

#define ATOLL_CONCAT_INNER(a, b) a##b
#define ATOLL_CONCAT(a, b) ATOLL_CONCAT_INNER(a, b)

// ATOLL_ASSIGN(auto x, expression): x is the value of a Result expression, or its error is returned to the caller.
#define ATOLL_ASSIGN(declaration, expression) ATOLL_ASSIGN_INNER(ATOLL_CONCAT(atoll_result_, __LINE__), declaration, expression)
#define ATOLL_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result) {                                            \
    return std::move(result).error();                       \
  }                                                         \
  declaration = *std::move(result)

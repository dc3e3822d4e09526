#include "coordinator/api/arguments.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace atl::coordinator {
namespace {

constexpr int kMaxDepth = 16;

// The parser of a hostile text: no exceptions, no deep recursion.
std::optional<nlohmann::json> parse_bounded(std::string_view text) {
  bool too_deep = false;
  const auto callback = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  nlohmann::json value = nlohmann::json::parse(text, callback, false);
  if (value.is_discarded() || too_deep) {
    return std::nullopt;
  }
  return value;
}

// Keys and texts go back into messages: cut, and printable.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 40));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

Arguments::Arguments(std::string verb, nlohmann::json value)
    : verb_(std::move(verb)), value_(std::make_unique<nlohmann::json>(std::move(value))) {}
Arguments::Arguments(Arguments&&) noexcept = default;
Arguments& Arguments::operator=(Arguments&&) noexcept = default;
Arguments::~Arguments() = default;

Result<Arguments> Arguments::parse(std::string_view verb, std::string_view json, std::span<const std::string_view> known) {
  auto value = json.empty() ? nlohmann::json::object() : parse_bounded(json);
  if (!value || !value->is_object()) {
    return Error{Code::invalid_argument, std::string(verb) + ": the arguments are not a JSON object"};
  }
  for (const auto& item : value->items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      std::string names;
      for (const std::string_view name : known) {
        names += (names.empty() ? "" : ", ") + std::string(name);
      }
      return Error{Code::invalid_argument, std::string(verb) + " has no argument '" + shown(item.key()) + "'" +
                                               (names.empty() ? "; it takes none" : "; it takes " + names)};
    }
  }
  return Arguments(std::string(verb), *std::move(value));
}

const nlohmann::json* Arguments::find(std::string_view key) const {
  const auto found = value_->find(std::string(key));
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

Error Arguments::wrong(std::string_view key, std::string_view wanted) const {
  return Error{Code::invalid_argument, verb_ + ": '" + std::string(key) + "' must be " + std::string(wanted)};
}

Result<std::string> Arguments::text(std::string_view key, std::optional<std::string> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr && fallback) {
    return *std::move(fallback);
  }
  if (value == nullptr || !value->is_string() || value->get_ref<const std::string&>().size() > 4096) {
    return wrong(key, "a text of at most 4096 bytes");
  }
  return value->get<std::string>();
}

Result<std::int64_t> Arguments::integer(std::string_view key, std::int64_t least, std::int64_t most,
                                        std::optional<std::int64_t> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  const bool fits = value != nullptr && value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
    return wrong(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value->get<std::int64_t>();
}

Result<bool> Arguments::boolean(std::string_view key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    return wrong(key, "true or false");
  }
  return value->get<bool>();
}

Result<std::string> Arguments::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_object()) {
    return wrong(key, "a JSON object");
  }
  return value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace atl::coordinator

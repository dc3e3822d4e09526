#include "agent/trainer/options.hpp"

#include <charconv>
#include <cmath>
#include <sstream>

namespace atl {

Result<Options> Options::parse(const std::vector<std::string>& arguments, std::map<std::string, std::string> defaults,
                               const std::set<std::string>& flags) {
  Options options;
  options.values_ = std::move(defaults);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (flags.contains(name)) {
      options.flags_.insert(name);
      continue;
    }
    const auto known = options.values_.find(name);
    if (known == options.values_.end() || i + 1 == arguments.size()) {
      return Error{Code::invalid_argument, "'" + name + "' is not an option, or lacks its value"};
    }
    known->second = arguments[++i];
  }
  return options;
}

Result<double> Options::number(const std::string& name, double least, double most) const {
  const std::string& value = text(name);
  double parsed = 0.0;
  const char* end = value.data() + value.size();
  const auto [stop, failure] = std::from_chars(value.data(), end, parsed);
  if (failure != std::errc() || stop != end || !(parsed >= least && parsed <= most)) {
    std::ostringstream bounds;
    bounds << least << " to " << most;
    return Error{Code::invalid_argument, name + " must be a number from " + bounds.str() + ", not '" + value + "'"};
  }
  return parsed;
}

Result<std::uint64_t> Options::integer(const std::string& name, std::uint64_t least, std::uint64_t most) const {
  const std::string& value = text(name);
  std::uint64_t parsed = 0;
  const char* end = value.data() + value.size();
  const auto [stop, failure] = std::from_chars(value.data(), end, parsed);
  if (failure != std::errc() || stop != end || parsed < least || parsed > most) {
    return Error{Code::invalid_argument,
                 name + " must be an integer from " + std::to_string(least) + " to " + std::to_string(most) + ", not '" + value + "'"};
  }
  return parsed;
}

int exit_status(Code code) {
  switch (code) {
    case Code::corrupt:
    case Code::io:
      return 1;
    case Code::invalid_argument:
      return 2;
    case Code::not_found:
      return 4;
    case Code::conflict:
      return 8;
    default:
      return 70;
  }
}

}  // namespace atl

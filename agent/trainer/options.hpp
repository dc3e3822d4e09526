// The few options of the module's commands: pairs of --name value.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

class Options {
 public:
  // `defaults` names every option that takes a value; `flags` those that do not.
  // Errors: invalid_argument for any other, or one without its value.
  static Result<Options> parse(const std::vector<std::string>& arguments, std::map<std::string, std::string> defaults,
                               const std::set<std::string>& flags);

  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }
  // Errors: invalid_argument unless the value is a number in [least, most].
  [[nodiscard]] Result<double> number(const std::string& name, double least, double most) const;
  [[nodiscard]] Result<std::uint64_t> integer(const std::string& name, std::uint64_t least, std::uint64_t most) const;
  [[nodiscard]] bool flag(const std::string& name) const { return flags_.contains(name); }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> flags_;
};

// What a process ends with that such an error ended.
int exit_status(Code code);

}  // namespace atl

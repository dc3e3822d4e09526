#include "cli/local/uplink.hpp"

#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"

namespace atl {

Result<double> parse_uplink(const std::string& text) {
  const Result<double> uplink = parse_bits_per_second(text);
  if (!uplink) {
    return with_context(uplink.error(), "--uplink");
  }
  if (*uplink < kLeastUplink) {
    return Error{Code::invalid_argument, "--uplink " + text + ": an island needs at least 500kbit to take part"};
  }
  return *uplink;
}

}  // namespace atl

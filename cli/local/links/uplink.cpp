#include "cli/local/links/uplink.hpp"

namespace atl {

Result<agent::UplinkCalendar> parse_uplink(const std::string& text) {
  Result<agent::UplinkCalendar> calendar = agent::UplinkCalendar::parse(text);
  return calendar ? calendar : with_context(calendar.error(), "--uplink");
}

}  // namespace atl

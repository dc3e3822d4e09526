#include "cli/planning/price.hpp"

#include <charconv>
#include <string_view>

namespace atl {

Result<std::optional<double>> parse_price(const std::string& text) {
  if (text.empty()) {
    return std::optional<double>();
  }
  double price = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), price);
  const std::string_view unit = std::string_view(text).substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc{} || unit != "/GB" || !(price >= 0 && price < 1e6)) {
    return Error{Code::invalid_argument, "--price is written like 0.09/GB, without a currency"};
  }
  return std::optional(price);
}

}  // namespace atl

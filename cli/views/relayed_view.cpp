#include "cli/views/relayed_view.hpp"

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {

std::vector<std::string> relayed_lines(const nlohmann::json& run) {
  constexpr std::size_t kMostLines = 8;
  std::vector<std::string> lines;
  const auto add = [&](const nlohmann::json& pairs, bool punched) {
    for (std::size_t i = 0; i < pairs.size() && i < kMostLines; ++i) {
      const nlohmann::json& islands = list_at(pairs[i], "islands");
      if (islands.size() == 2 && islands[0].is_string() && islands[1].is_string()) {
        const auto rate = number_at(pairs[i], "bits_per_second");
        const std::string how = punched ? "through punched holes" : "over relay " + printable(text_at(pairs[i], "relay"), 60);
        lines.push_back(printable(islands[0].get<std::string>(), 60) + " and " + printable(islands[1].get<std::string>(), 60) +
                        " exchange " + how + (rate ? ", " + bits_text(rate) : ""));
      }
    }
    if (pairs.size() > kMostLines) {
      lines.push_back(std::to_string(pairs.size() - kMostLines) + " more pairs exchange " +
                      (punched ? "through punched holes" : "over relays"));
    }
  };
  add(list_at(run, "punched"), true);
  add(list_at(run, "relayed"), false);
  return lines;
}

}  // namespace atl

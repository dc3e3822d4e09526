#include "cli/views/relayed_view.hpp"

#include <algorithm>
#include <map>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 8;

std::string line_of(const std::string& a, const std::string& b, const std::string& way, const std::string& rate, const json& row) {
  const std::string why = text_at(row, "why_indirect");
  return printable(a, 60) + " and " + printable(b, 60) + " exchange " +
         (way == "punched" ? "through punched holes" : "over " + printable(way, 70)) + rate +
         (why.empty() ? "" : ": " + printable(why, 300));
}

}  // namespace

std::vector<std::string> relayed_lines(const json& run) {
  std::vector<std::string> lines;
  const auto add = [&](const json& pairs, bool punched) {
    for (std::size_t i = 0; i < pairs.size() && i < kMostLines; ++i) {
      const json& islands = list_at(pairs[i], "islands");
      if (islands.size() == 2 && islands[0].is_string() && islands[1].is_string()) {
        const auto rate = number_at(pairs[i], "bits_per_second");
        lines.push_back(line_of(islands[0].get<std::string>(), islands[1].get<std::string>(),
                                punched ? "punched" : "relay " + text_at(pairs[i], "relay"), rate ? ", " + bits_text(rate) : "", pairs[i]));
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

std::vector<std::string> indirect_lines(const json& islands) {
  std::map<std::pair<std::string, std::string>, std::string> pairs;  // both say it
  for (const json& island : list_at(islands, "islands")) {
    for (const json& path : flag_at(island, "connected") ? list_at(island, "paths") : json::array()) {
      const std::string way = text_at(path, "way");
      if (way == "punched" || way.starts_with("relay ")) {
        const std::pair<std::string, std::string> ends = std::minmax(text_at(island, "name"), text_at(path, "from"));
        pairs.try_emplace(ends, line_of(ends.first, ends.second, way, "", path));
      }
    }
  }
  std::vector<std::string> lines;
  for (const auto& [ends, line] : pairs) {
    if (lines.size() < kMostLines) {
      lines.push_back(line);
    }
  }
  if (pairs.size() > kMostLines) {
    lines.push_back(std::to_string(pairs.size() - kMostLines) + " more pairs do not exchange directly");
  }
  return lines;
}

}  // namespace atl

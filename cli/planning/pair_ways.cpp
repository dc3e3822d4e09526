#include "cli/planning/pair_ways.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::string_view kRelay = "relay ";

// What `reader` says of its path from `from`; an empty object: nothing.
json path_of(const json& islands, const std::string& reader, const std::string& from) {
  for (const json& island : list_at(islands, "islands")) {
    for (const json& path : text_at(island, "name") == reader ? list_at(island, "paths") : json::array()) {
      if (text_at(path, "from") == from) {
        return path;
      }
    }
  }
  return json::object();
}

double rate_of(const json& pair) { return number_at(pair, "bits_per_second").value_or(std::numeric_limits<double>::max()); }

}  // namespace

std::vector<std::string> island_names(const json& islands) {
  std::vector<std::string> names;
  for (const json& island : list_at(islands, "islands")) {
    names.push_back(text_at(island, "name"));
  }
  return names;
}

json pair_ways(const json& islands, const std::vector<std::string>& members) {
  std::vector<json> pairs;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t k = i + 1; k < members.size(); ++k) {
      const auto& [a, b] = std::minmax(members[i], members[k]);
      const json there = path_of(islands, b, a);
      const json back = path_of(islands, a, b);
      const auto text = [&](const char* key) { return text_at(there, key).empty() ? text_at(back, key) : text_at(there, key); };
      const auto rate = number_at(object_at(there, "measured"), "bits_per_second");
      const auto other = number_at(object_at(back, "measured"), "bits_per_second");
      const std::string way = text("way");
      const std::string why = text("why_indirect");
      pairs.push_back({{"islands", {a, b}},
                       {"way", way.empty() ? json() : json(way)},
                       {"bits_per_second", rate && other ? json(std::min(*rate, *other)) : json()},
                       {"why_indirect", why.empty() ? json() : json(why)}});
    }
  }
  std::ranges::stable_sort(pairs, {}, rate_of);
  return pairs;
}

json relay_loads(const json& pairs, const json& plan) {
  std::map<std::string, double> sent;
  for (const json& island : list_at(plan, "islands")) {
    sent[text_at(island, "name")] = number_at(island, "bytes_sent").value_or(0);
  }
  const double others = std::max<double>(1, static_cast<double>(sent.size()) - 1);
  struct Load {
    std::size_t pairs = 0;
    double bytes = 0;
  };
  std::map<std::string, Load> loads;
  for (const json& pair : pairs) {
    if (const std::string way = text_at(pair, "way"); way.starts_with(kRelay)) {
      Load& load = loads[way.substr(kRelay.size())];
      ++load.pairs;
      for (const json& island : list_at(pair, "islands")) {
        load.bytes += sent[island.is_string() ? island.get<std::string>() : ""] / others;
      }
    }
  }
  json list = json::array();
  for (const auto& [relay, load] : loads) {
    list.push_back({{"relay", relay},
                    {"pairs", load.pairs},
                    {"bytes_per_round", 2 * static_cast<double>(load.pairs) * number_at(plan, "bytes_per_round").value_or(0) / others},
                    {"bytes", load.bytes}});
  }
  return list;
}

}  // namespace atl

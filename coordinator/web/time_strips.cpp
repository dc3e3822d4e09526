#include "coordinator/web/time_strips.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "coordinator/web/json_fields.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kLatestNs = INT64_MAX / 4;  // the year 2043; sums of two do not overflow
constexpr std::size_t kMostNames = 10'000;
constexpr std::array kLaneNames = {"computing", "waiting", "encoding", "exchanging", "storing"};

}  // namespace

struct TimeStrips::Window {
  std::int64_t from_ns = 0;
  std::int64_t to_ns = 1;
  [[nodiscard]] double bin_ns() const { return static_cast<double>(to_ns - from_ns) / kBins; }
};

std::uint32_t TimeStrips::number_of(std::map<std::string, std::uint32_t>& numbers, std::vector<std::string>& names,
                                    const std::string& name) const {
  if (const auto found = numbers.find(name); found != numbers.end()) {
    return found->second;
  }
  if (names.size() >= kMostNames) {
    return 0;
  }
  const auto number = static_cast<std::uint32_t>(names.size());
  names.push_back(name);
  numbers.emplace(name, number);
  return number;
}

void TimeStrips::take_span(const json& span) {
  static const std::map<std::string, Lane> kLanes = {{"steps", computing},    {"wait", waiting},        {"encode", encoding},
                                                     {"reduce", encoding},    {"outer_step", encoding}, {"send", exchanging},
                                                     {"receive", exchanging}, {"checkpoint", storing},  {"catch_up", storing}};
  const auto lane = kLanes.find(text_of(span, "activity"));
  const std::string island = text_of(span, "island");
  const Piece piece{integer_of(span, "start_unix_ns"), integer_of(span, "length_ns"),
                    number_of(causes_, cause_texts_, text_of(span, "cause")),
                    static_cast<std::uint16_t>(number_of(islands_, island_names_, island)), lane == kLanes.end() ? lanes : lane->second};
  if (piece.lane == lanes || piece.start_ns <= 0 || piece.length_ns <= 0 || piece.start_ns > kLatestNs || piece.length_ns > kLatestNs) {
    return;
  }
  pieces_.push_back(piece);
  const std::string peer = text_of(span, "peer");
  if (lane->first == "receive" && !peer.empty() && links_.size() < kMostNames) {
    Link& link = links_[{peer, island}];
    link.bytes += static_cast<std::uint64_t>(std::max<std::int64_t>(integer_of(span, "amount"), 0));
    link.length_ns += piece.length_ns;
  }
}

void TimeStrips::take(const json& document) {
  const auto spans = document.find("spans");
  if (spans == document.end() || !spans->is_array()) {
    return;
  }
  for (const json& span : *spans) {
    take_span(span);
  }
  next_ = std::max(next_, static_cast<std::uint64_t>(integer_of(document, "next")));
  if (pieces_.size() > kMostSpans) {
    pieces_.erase(pieces_.begin(), pieces_.end() - static_cast<std::ptrdiff_t>(kMostSpans));
  }
}

std::vector<std::uint16_t> TimeStrips::shown_islands() const {
  std::vector<std::int64_t> waited(island_names_.size());
  for (const Piece& piece : pieces_) {
    waited[piece.island] += piece.lane == waiting ? piece.length_ns : 0;
  }
  std::vector<std::uint16_t> shown(island_names_.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    shown[i] = static_cast<std::uint16_t>(i);
  }
  std::ranges::stable_sort(shown, {}, [&](std::uint16_t island) { return waited[island]; });
  shown.resize(std::min(shown.size(), kMostIslands));
  std::ranges::sort(shown, {}, [&](std::uint16_t island) { return island_names_[island]; });
  return shown;
}

json TimeStrips::island_strip(std::uint16_t island, const Window& window) const {
  std::array<std::array<double, kBins>, lanes> share{};
  std::array<bool, lanes> any{};
  std::array<std::map<std::uint32_t, double>, kBins> causes;
  const double bin_ns = window.bin_ns();
  for (const Piece& piece : pieces_) {
    const std::int64_t begin = std::max(piece.start_ns, window.from_ns);
    const std::int64_t end = std::min(piece.start_ns + piece.length_ns, window.to_ns);
    if (piece.island != island || begin >= end) {
      continue;
    }
    any[piece.lane] = true;
    for (auto bin = static_cast<std::size_t>(static_cast<double>(begin - window.from_ns) / bin_ns); bin < kBins; ++bin) {
      const double from = static_cast<double>(window.from_ns) + static_cast<double>(bin) * bin_ns;
      if (from >= static_cast<double>(end)) {
        break;
      }
      const double inside = std::min(static_cast<double>(end), from + bin_ns) - std::max(static_cast<double>(begin), from);
      share[piece.lane][bin] += std::max(inside, 0.0) / bin_ns;
      if (piece.cause != 0) {
        causes[bin][piece.cause] += inside;
      }
    }
  }
  json strip = {{"name", island_names_[island]}, {"waits", json::array()}};
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t bin = 0; any[lane] && bin < kBins; ++bin) {
      strip[kLaneNames[lane]].push_back(static_cast<int>(std::min(share[lane][bin], 1.0) * 100 + 0.5));
    }
  }
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    if (!causes[bin].empty()) {
      const auto longest = std::ranges::max_element(causes[bin], {}, [](const auto& item) { return item.second; });
      strip["waits"].push_back({{"bin", bin}, {"text", cause_texts_[longest->first]}, {"seconds", longest->second * 1e-9}});
    }
  }
  return strip;
}

json TimeStrips::strips(std::int64_t from_ms, std::int64_t to_ms) const {
  Window window{INT64_MAX, 0};
  if (from_ms > 0 && to_ms > from_ms && to_ms < INT64_MAX / kNsPerMs) {
    window = {from_ms * kNsPerMs, to_ms * kNsPerMs};
  } else {
    for (const Piece& piece : pieces_) {
      window.from_ns = std::min(window.from_ns, piece.start_ns);
      window.to_ns = std::max(window.to_ns, piece.start_ns + piece.length_ns);
    }
    window = pieces_.empty() ? Window{} : window;
  }
  json islands = json::array();
  for (const std::uint16_t island : shown_islands()) {
    islands.push_back(island_strip(island, window));
  }
  json links = json::array();
  for (const auto& [ends, link] : links_) {
    links.push_back(
        {{"from", ends.first}, {"to", ends.second}, {"bytes", link.bytes}, {"seconds", static_cast<double>(link.length_ns) / 1e9}});
  }
  return {{"from_unix_ms", window.from_ns / kNsPerMs}, {"to_unix_ms", window.to_ns / kNsPerMs}, {"bins", kBins},
          {"islands_known", island_names_.size()},     {"islands", std::move(islands)},         {"links", std::move(links)}};
}

}  // namespace atl::coordinator

// TimeStrips: how the islands of a run spent their time, thinned to what a screen can show.
//
// A run has up to 200,000 spans (coordinator/api/documents.md, "spans"): too many for a browser, and for a coordinator to send again and
// again. So they are read once, page by page, and kept here; a browser gets, for a stretch of time cut into bins, which part of each bin an
// island spent on what. Trainer and agent work at the same time, so an island has more than one lane: bins of different lanes may overlap.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace atl::coordinator {

class TimeStrips {
 public:
  // Takes the document of a page of spans. What is not as it should be is left out.
  void take(const nlohmann::json& document);
  // Of the page to ask for next.
  [[nodiscard]] std::uint64_t next() const { return next_; }

  // From `from_ms` to `to_ms` of Unix time; 0: from the first span, to the end of the last.
  //   {"from_unix_ms", "to_unix_ms", "bins", "islands_known",
  //    "islands": [{"name", "computing": [percent of each bin], "waiting": […], "encoding": […], "exchanging": […], "storing": […],
  //                 "waits": [{"bin", "text", "seconds"}]}],
  //    "links": [{"from", "to", "bytes", "seconds"}]}
  // `waits` has for each bin in which an island waited for something that is known the cause that took longest. Of many islands the
  // kMostIslands are there that waited least: for those the others wait. `links` is what was received, over the whole run, and for how long
  // it was waited for, from the exchange's beginning to its last piece. A lane without anything is left out.
  [[nodiscard]] nlohmann::json strips(std::int64_t from_ms, std::int64_t to_ms) const;

  static constexpr std::size_t kBins = 240;
  static constexpr std::size_t kMostIslands = 40;
  static constexpr std::size_t kMostSpans = 200'000;  // the oldest go

 private:
  enum Lane : std::uint8_t { computing, waiting, encoding, exchanging, storing, lanes };
  struct Piece {
    std::int64_t start_ns = 0;
    std::int64_t length_ns = 0;
    std::uint32_t cause = 0;  // of a wait; 0: not known
    std::uint16_t island = 0;
    Lane lane = computing;
  };
  struct Link {
    std::uint64_t bytes = 0;
    std::int64_t length_ns = 0;
  };
  struct Window;

  void take_span(const nlohmann::json& span);
  std::uint32_t number_of(std::map<std::string, std::uint32_t>& numbers, std::vector<std::string>& names, const std::string& name) const;
  [[nodiscard]] std::vector<std::uint16_t> shown_islands() const;
  [[nodiscard]] nlohmann::json island_strip(std::uint16_t island, const Window& window) const;

  std::uint64_t next_ = 0;
  std::vector<Piece> pieces_;
  std::map<std::string, std::uint32_t> islands_;
  std::vector<std::string> island_names_;
  std::map<std::string, std::uint32_t> causes_ = {{"", 0}};
  std::vector<std::string> cause_texts_ = {""};
  std::map<std::pair<std::string, std::string>, Link> links_;
};

}  // namespace atl::coordinator

#include "transport/emulated/link_terms.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <vector>

#include "transport/base/bytes.hpp"

namespace atl {
namespace {

constexpr Duration kLongestRoundTrip = std::chrono::seconds(10);
constexpr double kLeastRate = 500e3;
constexpr double kMostLoss = 0.2;

Error wrong(std::string_view text, const std::string& why) {
  return Error{Code::invalid_argument, "\"" + std::string(text) + "\": " + why + "; a link is RTT,RATE,LOSS, like 100ms,1gbit,0"};
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') {
      part.remove_prefix(1);
    }
    while (!part.empty() && part.back() == ' ') {
      part.remove_suffix(1);
    }
    parts.push_back(part);
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

Result<double> parse_loss(std::string_view text) {
  if (text == "0") {
    return 0.0;
  }
  if (text.empty() || text.back() != '%') {
    return Error{Code::invalid_argument, "the loss \"" + std::string(text) + "\" is neither 0 nor a percentage like 0.1%"};
  }
  double percent = 0;
  const std::string_view number = text.substr(0, text.size() - 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc{} || end != number.data() + number.size() || !(percent >= 0 && percent <= 100 * kMostLoss)) {
    return Error{Code::invalid_argument, "the loss \"" + std::string(text) + "\" is not a percentage from 0% to 20%"};
  }
  return percent / 100;
}

std::string format(const char* pattern, double number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, number);
  return text.data();
}

}  // namespace

Result<LinkTerms> parse_link(std::string_view text) {
  const std::vector<std::string_view> parts = parts_of(text);
  if (parts.size() != 3) {
    return wrong(text, "these are " + std::to_string(parts.size()) + " parts and not three");
  }
  LinkTerms terms;
  const Result<Duration> round_trip = parts[0] == "0" ? Result<Duration>(Duration{}) : parse_duration(parts[0]);
  if (!round_trip) {
    return wrong(text, "the round trip " + round_trip.error().why);
  }
  if (*round_trip > kLongestRoundTrip) {
    return wrong(text, "a round trip of " + human_duration(*round_trip) + " is longer than 10 s");
  }
  terms.round_trip = *round_trip;
  if (parts[1] != "max") {
    const Result<double> rate = parse_bits_per_second(parts[1]);
    if (!rate) {
      return wrong(text, "the rate " + rate.error().why + ", or \"max\"");
    }
    if (*rate < kLeastRate) {
      return wrong(text, "an island needs at least 500kbit to take part");
    }
    terms.bits_per_second = *rate;
  }
  const Result<double> loss = parse_loss(parts[2]);
  if (!loss) {
    return wrong(text, loss.error().why);
  }
  terms.loss = *loss;
  return terms;
}

std::string to_string(const LinkTerms& terms) {
  const double rate = terms.bits_per_second;
  const std::string each_way = rate <= 0     ? "as fast as this machine goes"
                               : rate >= 1e9 ? format("%.4g Gbit/s each way", rate / 1e9)
                               : rate >= 1e6 ? format("%.4g Mbit/s each way", rate / 1e6)
                                             : format("%.4g kbit/s each way", rate / 1e3);
  return "round trip " + format("%.4g ms", seconds(terms.round_trip) * 1e3) + ", " + each_way + ", " +
         (terms.loss > 0 ? format("%.3g %% of the segments lost", terms.loss * 100) : "no loss");
}

}  // namespace atl

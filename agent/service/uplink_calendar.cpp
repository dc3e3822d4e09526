#include "agent/service/uplink_calendar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <optional>

#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"

namespace atl::agent {
namespace {

constexpr int kDay = 24 * 60;
constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

Error wrong(const std::string& why) { return Error{Code::invalid_argument, why}; }

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find_first_of(separators);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words = split(text, " \t");
  std::erase(words, std::string_view());
  return words;
}

Result<double> parse_rate(std::string_view text) {
  if (text == "max") {
    return 0.0;
  }
  ATOLL_ASSIGN(const double rate, parse_bits_per_second(text));
  if (rate < kLeastUplink) {
    return wrong(std::string(text) + ": an island needs at least 500kbit to take part");
  }
  return rate;
}

std::optional<int> number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && text.size() == 2;
  return whole && value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

// Minutes of the day.
Result<int> parse_time(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ":");
  const std::optional<int> hour = parts.size() == 2 ? number(parts[0], 24) : std::nullopt;
  const std::optional<int> minute = parts.size() == 2 ? number(parts[1], 59) : std::nullopt;
  if (!hour || !minute || *hour * 60 + *minute > kDay) {
    return wrong(in_quotes(text) + " is not a time of day from 00:00 to 24:00");
  }
  return *hour * 60 + *minute;
}

Result<int> parse_day(std::string_view text) {
  const auto* const day = std::ranges::find(kDays, text);
  if (day == kDays.end()) {
    return wrong(in_quotes(text) + " is not a day: mon, tue, wed, thu, fri, sat or sun");
  }
  return static_cast<int>(day - kDays.begin());
}

}  // namespace

Result<UplinkCalendar::Entry> UplinkCalendar::parse_entry(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 2 || words.size() > 3) {
    return wrong(in_quotes(text) + " is not a rate with a span, like \"50mbit 08:00-18:00\" or \"50mbit mon-fri 08:00-18:00\"");
  }
  Entry entry;
  ATOLL_ASSIGN(entry.bits_per_second, parse_rate(words[0]));
  if (words.size() == 3) {
    const std::vector<std::string_view> days = split(words[1], "-");
    if (days.size() > 2) {
      return wrong(in_quotes(words[1]) + " is not a day, or two with - between, like mon-fri");
    }
    ATOLL_ASSIGN(entry.first_day, parse_day(days.front()));
    ATOLL_ASSIGN(entry.last_day, parse_day(days.back()));
  }
  const std::vector<std::string_view> times = split(words.back(), "-");
  if (times.size() != 2) {
    return wrong(in_quotes(words.back()) + " is not a span of the day, like 08:00-18:00");
  }
  ATOLL_ASSIGN(entry.from, parse_time(times[0]));
  ATOLL_ASSIGN(entry.until, parse_time(times[1]));
  if (entry.from == kDay) {
    return wrong(in_quotes(words.back()) + " begins at the end of a day: write 00:00");
  }
  if (entry.from == entry.until) {
    return wrong(in_quotes(words.back()) + " is no time at all; a whole day is 00:00-24:00");
  }
  return entry;
}

Result<UplinkCalendar> UplinkCalendar::parse(std::string_view text) {
  UplinkCalendar calendar;
  const std::vector<std::string_view> parts = split(text, ",");
  if (const std::vector<std::string_view> words = words_of(text); parts.size() == 1 && words.size() <= 1) {
    ATOLL_ASSIGN(calendar.otherwise_, parse_rate(words.empty() ? text : words.front()));
    return calendar;
  }
  std::optional<double> otherwise;
  for (const std::string_view part : parts) {
    const std::vector<std::string_view> words = words_of(part);
    if (words.size() == 2 && words[1] == "otherwise") {
      if (otherwise) {
        return wrong(in_quotes(text) + " says twice what holds otherwise");
      }
      ATOLL_ASSIGN(otherwise, parse_rate(words[0]));
      continue;
    }
    if (otherwise) {
      return wrong(in_quotes(part) + " comes after what holds otherwise, which is the last");
    }
    ATOLL_ASSIGN(Entry entry, parse_entry(part));
    calendar.entries_.push_back(entry);
  }
  if (!otherwise) {
    return wrong(in_quotes(text) + " does not say what holds at other times: add \", 500mbit otherwise\" (or max otherwise)");
  }
  calendar.otherwise_ = *otherwise;
  return calendar;
}

double UplinkCalendar::rate_at(WeekTime time) const {
  const auto on = [](const Entry& entry, int day) {
    return entry.first_day <= entry.last_day ? day >= entry.first_day && day <= entry.last_day
                                             : day >= entry.first_day || day <= entry.last_day;
  };
  for (const Entry& entry : entries_) {
    const bool over_midnight = entry.until <= entry.from;
    const bool today = on(entry, time.day) && time.minute >= entry.from && (over_midnight || time.minute < entry.until);
    const bool since_yesterday = over_midnight && on(entry, (time.day + 6) % 7) && time.minute < entry.until;
    if (today || since_yesterday) {
      return entry.bits_per_second;
    }
  }
  return otherwise_;
}

std::string uplink_text(double bits_per_second) {
  if (bits_per_second <= 0) {
    return "as much as the line bears";
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "at most %.4g Mbit/s", bits_per_second / 1e6);
  return text.data();
}

// The system's clock, which may be set while the agent runs.
WeekTime local_week_time() {
  const std::time_t present = std::time(nullptr);
  std::tm here{};
  ::localtime_r(&present, &here);
  return {(here.tm_wday + 6) % 7, here.tm_hour * 60 + here.tm_min};
}

}  // namespace atl::agent

#include "coordinator/ledger/running_totals.hpp"

#include <algorithm>
#include <cmath>

#include "coordinator/core/bounded_sum.hpp"

namespace atl::coordinator {
namespace {

// What is counted tells a new beginning. Seconds alone do only where most of them are gone: a clock that is set back takes some away.
bool mostly_gone(double before, double after) { return after < before / 2 - 1e-3; }

// What an island says of itself may be anything: no sum wraps, or is endless.
constexpr double kMostSeconds = 1e12;
double sensible(double seconds) { return std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMostSeconds) : 0; }
std::uint64_t sum(std::uint64_t a, std::uint64_t b) { return bounded_sum(a, b, kMaxCount); }

Counters counters_of(const IslandReport& report) {
  return {report.tokens, sensible(report.compute_seconds), sensible(report.wait_seconds), report.bytes_sent, report.bytes_received};
}

Counters operator+(const Counters& a, const Counters& b) {
  return {sum(a.tokens, b.tokens), std::min(a.compute_seconds + b.compute_seconds, kMostSeconds),
          std::min(a.wait_seconds + b.wait_seconds, kMostSeconds), sum(a.bytes_sent, b.bytes_sent),
          sum(a.bytes_received, b.bytes_received)};
}

Counters operator-(const Counters& a, const Counters& b) {
  const auto less = [](auto x, auto y) { return x > y ? x - y : decltype(x){}; };
  return {less(a.tokens, b.tokens), less(a.compute_seconds, b.compute_seconds), less(a.wait_seconds, b.wait_seconds),
          less(a.bytes_sent, b.bytes_sent), less(a.bytes_received, b.bytes_received)};
}

bool began_again(const Counters& before, const Counters& after) {
  return after.tokens < before.tokens || after.bytes_sent < before.bytes_sent || after.bytes_received < before.bytes_received ||
         mostly_gone(before.compute_seconds, after.compute_seconds) || mostly_gone(before.wait_seconds, after.wait_seconds);
}

}  // namespace

void RunningTotals::restore(const RunId& run, const IslandId& island, const Counters& carried, const IslandReport& total) {
  entries_[{run, island}] = {carried, counters_of(total) - carried};
}

IslandReport RunningTotals::add(const IslandId& island, IslandReport report) {
  Entry& entry = entries_[{report.run, island}];
  const Counters reported = counters_of(report);
  if (began_again(entry.newest, reported)) {
    entry.carried = entry.carried + entry.newest;
  }
  entry.newest = reported;
  const Counters total = entry.carried + reported;
  report.tokens = total.tokens;
  report.compute_seconds = total.compute_seconds;
  report.wait_seconds = total.wait_seconds;
  report.bytes_sent = total.bytes_sent;
  report.bytes_received = total.bytes_received;
  return report;
}

Counters RunningTotals::carried(const RunId& run, const IslandId& island) const {
  const auto found = entries_.find({run, island});
  return found == entries_.end() ? Counters{} : found->second.carried;
}

}  // namespace atl::coordinator

// One message of every kind with fields drawn from a seed, for round trips and as seeds of fuzzing.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "transport/base/rng.hpp"
#include "transport/control/message.hpp"

namespace atl::test {

// Draws fields; all of them differ with overwhelming probability, so that a swapped pair shows.
class MessageSampler {
 public:
  explicit MessageSampler(std::uint64_t seed) : rng_(seed, stream_of("message-samples")) {}

  // Every kind once, in the order of the variant.
  std::vector<Message> all() {
    return {
        hello(),
        Heartbeat{number(), {report(), report()}},
        Ready{run(), epoch(), round(), digest(),
              ContributionFacts{number(), number(), real(), std::abs(real()), half(), range(), number(), round(), half(), number(),
                                number()}},
        Exchanged{run(), epoch(), round(), attempt(), digest(), number(), number(), real(), IslandId(word()), real(), {digest(), digest()}},
        ExchangeFailed{run(), epoch(), round(), attempt(), island(), error(), {island(), island()}},
        PathReport{island(), rng_.chance(0.5), text(), half(), number(), number(), available()},
        Neighbours{members(), half(), half()},
        Withdrawn{run(),
                  epoch(),
                  round(),
                  error(),
                  Fate::too_stale,
                  {.tokens = number(), .fragment = half(), .data = range(), .overwritten = number()}},
        Merged{run(), round(), Step(number()), real(), real(), real(), island(), {0.5F, -2.0F}, {OwnMetric{word(), real()}}},
        Checkpointed{run(), round(), digest(), digest(), number(), maybe_error()},
        Copied{run(), round(), digest(), number(), number(), 0.5, text(), maybe_error()},
        CaughtUp{run(), epoch(), round(), digest(), maybe_error(), number()},
        IslandEvent{run(), word(), word(), text()},
        Timeline{run(), {span(), span()}},
        RunEnded{run(), round(), digest(), maybe_error()},
        Leave{text(), rng_.chance(0.5)},
        Holds{{run(), run()}},
        Over{{{run(), rng_.chance(0.5), number(), epoch(), round()}, {run(), rng_.chance(0.5), number(), epoch(), round()}}},
        Relays{{{word(), word(), word(), true}, {word(), word(), word(), false}}},
        Ways{{{island(), {word(), false, NotPunched::own_router}},
              {island(), {"", true, NotPunched::not_tried}},
              {island(), {"", false, NotPunched::not_tried, "tcp://10.0.0.1:4401"}}}},
        OwnRelay{"tcp://relay.example.org:4402", digest()},
        Drain{text()},
        Cut{run(), epoch(), round()},
        Welcome{word(), island(), milliseconds(), milliseconds(), milliseconds()},
        Refused{error()},
        Invite{run(),
               json(),
               epoch(),
               half(),
               static_cast<StartFrom>(rng_.below(4)),
               round(),
               digest(),
               members(2),
               number(),
               number(),
               share(),
               {{0, 1}}},
        NewEpoch{run(),
                 epoch(),
                 round(),
                 members(2),
                 rng_.chance(0.5) ? std::optional(Round(number() | 1)) : std::nullopt,
                 number(),
                 rng_.chance(0.5) ? std::optional(share()) : std::nullopt,
                 {{0, 1}}},
        Exchange{run(),
                 epoch(),
                 round(),
                 attempt(),
                 {island(), island()},
                 {{number(), number()}, {1, 0}, {number(), number()}, {real(), real()}},
                 half(),
                 rng_.chance(0.5)},
        Commit{run(),
               epoch(),
               round(),
               attempt(),
               digest(),
               rng_.chance(0.5),
               rng_.chance(0.5),
               number(),
               rng_.chance(0.5),
               {range(), range()}},
        Abort{run(), epoch(), round(), attempt(), text()},
        Offer{run(), rng_.chance(0.5)},
        CatchUp{run(), epoch(), round(), digest(), number(), round(), digest(), members(), half(), number()},
        Serve{run(), word(), round(), rng_.chance(0.5), word()},
        Release{run(), static_cast<Code>(rng_.below(10)), rng_.chance(0.5), text(), Epoch(rng_.below(100)),
                static_cast<std::uint32_t>(rng_.below(9))},
        Enrol{kProtocolVersion, word(), word()},
        Enrolled{word(), island(), word()},
        Request{kProtocolVersion, number(), word(), json()},
        Reply{number(), maybe_error(), json()},
        PairQuery{run(), epoch(), round(), island(), island(), epoch()},
        PairAnswer{run(), epoch(), round(), island(), island(), static_cast<PairWord>(rng_.below(4)), epoch()},
        Assignment{run(),
                   number(),
                   json(),
                   members(),
                   word(),
                   {{word(), content()}, {word(), content()}},
                   content(),
                   {content(), content()},
                   {content()},
                   run(),
                   Round(number())},
        AssignmentReport{run(),
                         number(),
                         word(),
                         word(),
                         number(),
                         number(),
                         real(),
                         real(),
                         real(),
                         content(),
                         json(),
                         content(),
                         number(),
                         {content()},
                         maybe_error(),
                         number(),
                         number()},
        TaskImages{run(), word(), number(), {std::byte{1}, std::byte{2}, std::byte{0}}}};
  }

 private:
  DataShare share() {
    const std::uint64_t from = rng_.below(1'000'000);
    return {64, {{from, {{3, rng_.below(1'000)}, {63, 0}}}, {from + 1 + rng_.below(1'000), {{0, rng_.below(1'000)}}}}, 1, 3};
  }
  // Small, large and zero, within what every number may be.
  std::uint64_t number() { return rng_.next_u64() >> (16 + rng_.below(48)); }
  std::uint64_t milliseconds() { return number() >> 16; }
  Availability available() {
    const auto within = [&](Duration most) {
      return std::chrono::milliseconds(rng_.below(static_cast<std::uint64_t>(most.count()) / 1'000'000 + 1));
    };
    const Duration watched = rng_.chance(0.5) ? within(kAvailabilityWindow) : Duration();
    return {watched, within(watched), half() % (kMaxPathChanges + 1), within(kAvailabilityWindow)};
  }
  std::uint32_t half() { return rng_.next_u32() >> rng_.below(32); }
  double real() { return rng_.chance(0.05) ? std::numeric_limits<double>::infinity() : rng_.normal() * 1e3; }
  std::string word() {
    std::string letters;
    for (std::uint64_t left = rng_.below(12); left > 0; --left) {
      letters += static_cast<char>('a' + rng_.below(26));
    }
    return letters;
  }
  std::string text() { return word() + "\n\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8F\x9D " + word(); }
  std::string json() { return "{\"" + word() + "\": [1, \"" + word() + "\"]}"; }
  RunId run() { return RunId("r-" + word()); }
  IslandId island() { return IslandId("i-" + word()); }
  Epoch epoch() { return Epoch(number()); }
  Round round() { return Round(number()); }
  Attempt attempt() { return Attempt(half()); }
  Error error() { return Error{static_cast<Code>(rng_.below(10)), text()}; }
  std::optional<Error> maybe_error() { return rng_.chance(0.5) ? std::optional<Error>(error()) : std::nullopt; }
  Digest digest() {
    Digest digest;
    if (rng_.chance(0.9)) {
      for (std::byte& byte : digest.bytes) {
        byte = static_cast<std::byte>(rng_.below(256));
      }
    }
    return digest;
  }
  Content content() { return Content{digest(), number(), {island(), island()}}; }
  DataRange range() { return DataRange{half(), number(), number()}; }
  Member member() {
    std::string addresses = "tcp://" + word() + ":1";
    for (std::uint64_t others = rng_.below(8); others > 0; --others) {
      addresses += " tcp://10.0.0." + std::to_string(others) + ":4401";
    }
    return Member{island(), word(), word(), addresses};
  }
  std::vector<Member> members(std::size_t least = 0) {
    std::vector<Member> members(least + rng_.below(4));
    for (Member& one : members) {
      one = member();
    }
    return members;
  }
  IslandReport report() {
    return IslandReport{run(),    word(),   text(),   Step(number()), number(),
                        real(),   real(),   real(),   real(),         number(),
                        number(), number(), number(), number(),       {OwnMetric{word(), real()}},
                        text()};
  }
  Span span() {
    return Span{static_cast<SpanKind>(rng_.below(9)),
                round(),
                half(),
                island(),
                TimePoint(Duration(static_cast<std::int64_t>(number() >> 2U))),
                Duration(static_cast<std::int64_t>(number() >> 2U)),
                number()};
  }
  Hello hello() {
    HeldRun held{run(),  epoch(), rng_.chance(0.5), round(), digest(), {{round(), digest(), epoch()}, {round(), digest(), epoch()}},
                 half(), number()};
    return Hello{kProtocolVersion,
                 word(),
                 word(),
                 number(),
                 word(),
                 word(),
                 {word(), word()},
                 {held, HeldRun{}},
                 static_cast<std::uint32_t>(rng_.below(1000)),
                 real(),
                 text(),
                 {word(), word()},
                 Generation{},
                 number(),
                 {word(), word()}};
  }

  Rng rng_;
};

}  // namespace atl::test

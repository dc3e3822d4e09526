#include "tests/process/history.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace atl_test {
namespace {

bool has_ended(const std::string& state) { return state == "completed" || state == "failed" || state == "cancelled"; }

std::string at(const Answer& answer) {
  return answer.verb + " of " + answer.name + " [" + std::to_string(answer.begin) + " s, " + std::to_string(answer.end) + " s]";
}

// What held at `before` may be void at `after`: the store was put back meanwhile.
bool may_be_void(const Answer& before, const Answer& after, const std::vector<Restore>& restores) {
  return std::ranges::any_of(restores, [&](const Restore& restore) {
    return restore.begin < after.end && restore.copied < before.end && before.begin < restore.end;
  });
}

constexpr double kEver = std::numeric_limits<double>::infinity();

// How many stores were put back by then that knew nothing of the run, or nothing of its end: its islands were free of it, and may have
// fewer rounds of it than the store has. That is seen once they are back, which may be long afterwards.
std::size_t rebirths(const std::vector<Answer>& answers, const std::vector<Restore>& restores, const std::string& run, double by = kEver) {
  return static_cast<std::size_t>(std::ranges::count_if(restores, [&](const Restore& restore) {
    return by > restore.begin && std::ranges::any_of(answers, [&](const Answer& order) {
             return order.run == run && (order.verb == "submit" || order.verb == "cancel") && order.end > restore.copied &&
                    order.begin < restore.end;
           });
  }));
}

// Between two reads rounds were lost.
struct Loss {
  const Answer* before;
  const Answer* after;
};

bool within(const Loss& inner, const Loss& outer) {
  return outer.before->begin <= inner.before->begin && inner.after->end <= outer.after->end;
}

// Of the losses that a run's reads show, one that no store that was put back explains: each explains one, at one instant after it.
std::optional<Loss> unexplained(std::vector<Loss> losses, const std::vector<Answer>& answers, const std::vector<Restore>& restores) {
  std::ranges::sort(losses, {}, [](const Loss& loss) { return loss.after->end; });
  std::size_t instants = 0;
  double last = -kEver;
  for (const Loss& loss : losses) {
    if (loss.before->begin > last) {
      last = loss.after->end;
      if (++instants > rebirths(answers, restores, loss.after->run, last)) {
        return loss;
      }
    }
  }
  return std::nullopt;
}

// A name stands for one run until that may have been cancelled, and a run for one name.
std::string find_two_runs(const std::vector<Answer>& answers, const std::vector<Restore>& restores) {
  std::map<std::string, std::string> name_of;
  for (const Answer& after : answers) {
    if (after.done && name_of.try_emplace(after.run, after.name).first->second != after.name) {
      return at(after) + " is of run " + after.run + ", which has another name";
    }
    for (const Answer& before : answers) {
      const bool ordered = before.verb == "submit" && after.verb == "submit" && before.done && after.done && before.name == after.name &&
                           before.end < after.begin && before.run != after.run && !may_be_void(before, after, restores);
      const bool ended = std::ranges::any_of(
          answers, [&](const Answer& other) { return other.verb == "cancel" && other.run == before.run && other.begin < after.end; });
      if (ordered && !ended) {
        return at(after) + " is of run " + after.run + ", and before it was " + before.run;
      }
    }
  }
  return "";
}

// What was read once is not unread: rounds only grow, and an end is the end.
std::string find_stale_read(const std::vector<Answer>& answers, const std::vector<Restore>& restores) {
  std::map<std::string, std::vector<Loss>> losses;  // by run
  for (const Answer& before : answers) {
    for (const Answer& after : answers) {
      const bool ordered = before.verb == "status" && after.verb == "status" && before.done && after.done && before.run == after.run &&
                           before.end < after.begin && !may_be_void(before, after, restores);
      if (ordered && after.round < before.round) {
        // A loss around another one says no more than that one.
        std::vector<Loss>& of = losses[after.run];
        const Loss loss{&before, &after};
        if (std::ranges::none_of(of, [&](const Loss& known) { return within(known, loss); })) {
          std::erase_if(of, [&](const Loss& known) { return within(loss, known); });
          of.push_back(loss);
        }
      }
      if (ordered && has_ended(before.state) && after.state != before.state) {
        return "a stale read: " + at(after) + " is " + after.state + " after " + at(before) + " was " + before.state;
      }
    }
  }
  for (const auto& [run, of] : losses) {
    if (const std::optional<Loss> loss = unexplained(of, answers, restores)) {
      return "a stale read: " + at(*loss->after) + " shows round " + std::to_string(loss->after->round) + " after " + at(*loss->before) +
             " showed round " + std::to_string(loss->before->round);
    }
  }
  return "";
}

// What was granted is so from then on, until somebody may have undone it.
std::string find_lost_order(const std::vector<Answer>& answers, const std::vector<Restore>& restores) {
  for (const Answer& order : answers) {
    if (!order.done || (order.verb != "cancel" && order.verb != "pause" && order.verb != "submit")) {
      continue;
    }
    for (const Answer& read : answers) {
      if (read.verb != "status" || read.run != order.run || read.begin <= order.end || may_be_void(order, read, restores)) {
        continue;
      }
      if (order.verb == "submit" && read.state == "unknown") {
        return "a lost order: " + at(read) + " knows no such run after " + at(order);
      }
      if (!read.done) {
        continue;
      }
      if (order.verb == "cancel" && !has_ended(read.state)) {
        return "a lost order: " + at(read) + " is " + read.state + " after " + at(order);
      }
      const bool undone = std::ranges::any_of(answers, [&](const Answer& other) {
        return other.verb == "resume" && other.run == order.run && other.begin < read.end && other.end > order.begin;
      });
      if (order.verb == "pause" && !undone && !has_ended(read.state) && !read.pausing && read.state != "paused") {
        return "a lost order: " + at(read) + " is " + read.state + " after " + at(order);
      }
    }
  }
  return "";
}

// Whatever a reader saw is in the coordinator's events in the end, each round once and without a gap, and is seen again in the end.
std::string find_lost_commit(const std::vector<Answer>& answers, const std::vector<CommittedRound>& committed,
                             const std::vector<Restore>& restores) {
  std::map<std::pair<std::string, std::string>, std::set<std::uint64_t>> rounds;  // of a run, by a coordinator
  for (const CommittedRound& round : committed) {
    if (!rounds[{round.run, round.coordinator}].insert(round.round).second) {
      return "round " + std::to_string(round.round) + " of run " + round.run + " was committed twice";
    }
  }
  std::map<std::string, std::uint64_t> newest;
  for (const auto& [of, numbers] : rounds) {
    newest[of.first] = std::max(newest[of.first], *numbers.rbegin());
    if (numbers.size() != *numbers.rbegin() - *numbers.begin() + 1) {
      return "a lost commit: the events of run " + of.first + " miss a round before round " + std::to_string(*numbers.rbegin());
    }
  }
  for (const Answer& end : answers) {
    if (end.verb == "end") {
      newest[end.run] = std::min(newest[end.run], end.round);
    }
  }
  for (const Answer& read : answers) {
    if ((read.verb == "status" || read.verb == "export") && read.done && read.round > newest[read.run] &&
        rebirths(answers, restores, read.run) == 0) {
      return "a lost commit: " + at(read) + " showed round " + std::to_string(read.round) + ", and the newest is round " +
             std::to_string(newest[read.run]);
    }
  }
  return "";
}

// Models of one round are one model.
std::string find_two_models(const std::vector<Answer>& answers, const std::vector<Restore>& restores) {
  std::map<std::pair<std::string, std::uint64_t>, const Answer*> first;
  for (const Answer& answer : answers) {
    if (answer.verb != "export" || !answer.done || rebirths(answers, restores, answer.run) > 0) {
      continue;
    }
    const Answer* other = first.try_emplace({answer.run, answer.round}, &answer).first->second;
    if (other->bytes != answer.bytes) {
      return "two models: " + at(*other) + " and " + at(answer) + " differ, both of round " + std::to_string(answer.round);
    }
  }
  return "";
}

// A round has one result, whoever committed it.
std::string find_second_leader(const std::vector<Answer>& answers, const std::vector<CommittedRound>& committed,
                               const std::vector<Restore>& restores) {
  std::map<std::pair<std::string, std::uint64_t>, const CommittedRound*> first;
  for (const CommittedRound& round : committed) {
    const CommittedRound* other = first.try_emplace({round.run, round.round}, &round).first->second;
    if (other->digest != round.digest && rebirths(answers, restores, round.run) == 0) {
      return "a second leader: round " + std::to_string(round.round) + " of run " + round.run + " was committed by " + other->coordinator +
             " and with another result by " + round.coordinator;
    }
  }
  return "";
}

}  // namespace

std::string find_violation(const std::vector<Answer>& answers, const std::vector<CommittedRound>& committed,
                           const std::vector<Restore>& restores) {
  for (std::string found : {find_two_runs(answers, restores), find_stale_read(answers, restores), find_lost_order(answers, restores),
                            find_lost_commit(answers, committed, restores), find_two_models(answers, restores),
                            find_second_leader(answers, committed, restores)}) {
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

}  // namespace atl_test

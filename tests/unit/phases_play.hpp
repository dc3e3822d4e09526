// A run of phases on the coordinator's core, with islands that do what their assignment says when the test tells them to.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"

namespace atl_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

inline RunSpec spec_of(std::uint32_t experts, std::uint32_t max = 4) {
  RunSpec spec;
  spec.name = "images";
  spec.data.set = "digits";
  spec.data.format = "idx";
  spec.training.steps = 100;
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.diffusion.experts = experts;
  spec.islands.max = max;
  spec.islands.deadline = 60s;
  spec.rounds = experts;
  return spec;
}

inline Digest digest(std::uint64_t value) {
  Digest d;
  std::memcpy(d.bytes.data(), &value, sizeof value);
  return d;
}

// Islands that do what their assignment says when the test tells them to.
struct Play {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  RunId run{"r-1"};
  std::map<std::string, Assignment> assignments;
  std::map<std::string, std::map<Digest, std::uint64_t>> held;
  std::vector<std::string> connected;
  std::vector<coordinator::Record> records;
  std::set<std::string> released;
  std::map<std::string, Invite> assigned;  // in the run of a group
  std::uint64_t next_digest = 1;

  void join(const std::string& name, std::uint64_t boot = 1, const std::vector<std::string>& sets = {"digits"}) {
    core.admit(now, IslandId(name), name, "key-" + name);
    Hello hello;
    hello.name = name;
    hello.boot = boot;
    hello.data_sets = sets;
    core.step(now, IslandId(name), boot, hello);
    connected.push_back(name);
    take();
  }
  void submit(const RunSpec& spec) {
    REQUIRE(core.submit(now, run, spec, "", ""));
    wait(3s);
  }
  void lose(const std::string& name) {
    std::erase(connected, name);
    wait(6s);
    assignments.erase(name);  // what it was sent before it counted as lost it never got
  }
  // Time passes, with heartbeats of those that are connected.
  void wait(Duration time) {
    for (const TimePoint until = now + time; now < until;) {
      now += 500ms;
      for (const std::string& name : connected) {
        core.step(now, IslandId(name), 1, Heartbeat{1, {}});
      }
      core.tick(now);
      take();
    }
  }
  void take() {
    coordinator::Ready ready = core.take_ready();
    std::vector<std::string> idle;
    records.insert(records.end(), ready.records.begin(), ready.records.end());
    for (const Outgoing& out : ready.messages) {
      if (const auto* assignment = std::get_if<Assignment>(&out.message);
          assignment != nullptr && assignment->number > assignments[out.island.text].number) {
        assignments[out.island.text] = *assignment;
        if (assignment->task.empty()) {
          idle.push_back(out.island.text);
        }
      } else if (const auto* release = std::get_if<Release>(&out.message)) {
        released.insert(out.island.text);
        if (assigned.contains(out.island.text) && assigned[out.island.text].run == release->run) {
          assigned.erase(out.island.text);
        }
      } else if (const auto* invite = std::get_if<Invite>(&out.message)) {
        assigned[out.island.text] = *invite;
      } else if (const auto* membership = std::get_if<NewEpoch>(&out.message);
                 membership != nullptr && assigned.contains(out.island.text)) {
        assigned[out.island.text].epoch = std::max(assigned[out.island.text].epoch, membership->epoch);
      } else if (const auto* exchange = std::get_if<Exchange>(&out.message)) {
        answers.emplace_back(out.island.text, Exchanged{exchange->run, exchange->epoch, exchange->round, exchange->attempt,
                                                        digest(900 + exchange->round.value), 10, 10, 0.1});
      } else if (const auto* commit = std::get_if<Commit>(&out.message)) {
        if (commit->round.value < 2) {
          answers.emplace_back(out.island.text, ready_for(out.island.text, commit->round.next(), commit->digest));
        } else {
          answers.emplace_back(out.island.text, Checkpointed{commit->run, commit->round, commit->digest, digest(77), 100, std::nullopt});
          answers.emplace_back(out.island.text, RunEnded{commit->run, commit->round, commit->digest, std::nullopt});
        }
      }
    }
    for (const std::string& name : idle) {
      say(name, report(name, "idle"));
    }
  }
  // An island trains with its group: it answers what it was told, until nothing is told any more.
  atl::Ready ready_for(const std::string& name, Round round, const Digest& digest) {
    const Invite& invite = assigned[name];
    return atl::Ready{invite.run, invite.epoch, round, digest, {10, 5, 2.0, 0.1}};
  }
  // `on`: to their end, and not only until all have begun with the same.
  void begin_rounds(const std::vector<std::string>& names, bool on = true) {
    for (const std::string& name : names) {
      core.step(now, IslandId(name), 1, ready_for(name, Round(0), digest(900)));
    }
    take();
    if (on) {
      answer();
    }
    answers.clear();
  }
  void answer() {
    while (!answers.empty()) {
      const auto [name, message] = answers.front();
      answers.erase(answers.begin());
      core.step(now, IslandId(name), 1, message);
      take();
    }
  }
  std::vector<std::pair<std::string, Message>> answers;
  // All that the assignment names is there: it can take part in its group's rounds.
  void prepare(const std::string& name) {
    fetch(name);
    say(name, report(name, "ready"));
  }

  AssignmentReport report(const std::string& name, const std::string& state) {
    const Assignment& assignment = assignments[name];
    AssignmentReport message;
    message.run = run;
    message.number = assignment.number;
    message.task = assignment.task;
    message.state = state;
    for (const auto& [its, bytes] : held[name]) {
      message.held.push_back(Content{its, bytes, {}});
    }
    return message;
  }
  void say(const std::string& name, AssignmentReport message) {
    core.step(now, IslandId(name), 1, message);
    take();
  }
  // Fetches all that the assignment names.
  void fetch(const std::string& name) {
    std::vector<Content> wanted = assignments[name].keep;
    for (const TaskInput& input : assignments[name].inputs) {
      wanted.push_back(input.content);
    }
    for (const Content& content : wanted) {
      CHECK_FALSE(content.digest.empty());
      held[name][content.digest] = content.bytes;
    }
    say(name, report(name, assignments[name].task.empty() ? "idle" : "running"));
  }
  Digest finish(const std::string& name, const std::string& facts = "{}") { return finish_as(name, digest(next_digest++), facts); }
  Digest finish_as(const std::string& name, const Digest& its, const std::string& facts = "{}") {
    fetch(name);
    AssignmentReport message = report(name, "done");
    message.result = Content{its, 100, {}};
    message.facts = facts;
    held[name][message.result.digest] = 100;
    message.held.push_back(message.result);
    say(name, message);
    return message.result.digest;
  }
  Digest save(const std::string& name, std::uint64_t step) {
    AssignmentReport message = report(name, "running");
    message.checkpoint = Content{digest(next_digest++), 50, {}};
    message.checkpoint_step = step;
    held[name][message.checkpoint.digest] = 50;
    message.held.push_back(message.checkpoint);
    say(name, message);
    return message.checkpoint.digest;
  }
  [[nodiscard]] std::string who(const std::string& task) const {
    for (const auto& [name, assignment] : assignments) {
      if (assignment.task == task) {
        return name;
      }
    }
    return "";
  }
  [[nodiscard]] TaskView view(const std::string& task) const {
    const std::optional<RunView> whole = core.run(now, run);
    for (const TaskView& view : whole->tasks) {
      if (view.task == task) {
        return view;
      }
    }
    FAIL("no task " << task);
    return {};
  }
};

// What a ledger that was given these has for the next coordinator.
inline Recovered recovered_from(const std::vector<coordinator::Record>& records) {
  std::map<RunId, RunRecord> runs;
  std::map<std::pair<RunId, std::string>, TaskRecord> tasks;
  std::map<std::pair<RunId, IslandId>, MembershipRecord> memberships;
  std::map<RunId, EpochRecord> epochs;
  std::map<IslandId, IslandRecord> islands;
  for (const coordinator::Record& record : records) {
    if (const auto* run = std::get_if<RunRecord>(&record)) {
      runs[run->id] = *run;
    } else if (const auto* task = std::get_if<TaskRecord>(&record)) {
      tasks[{task->run, task->task}] = *task;
    } else if (const auto* membership = std::get_if<MembershipRecord>(&record)) {
      memberships[{membership->run, membership->island}] = *membership;
    } else if (const auto* epoch = std::get_if<EpochRecord>(&record)) {
      epochs[epoch->run] = *epoch;
    } else if (const auto* island = std::get_if<IslandRecord>(&record)) {
      islands[island->id] = *island;
    }
  }
  Recovered recovered;
  std::ranges::copy(std::views::values(runs), std::back_inserter(recovered.runs));
  std::ranges::copy(std::views::values(tasks), std::back_inserter(recovered.tasks));
  std::ranges::copy(std::views::values(memberships), std::back_inserter(recovered.memberships));
  std::ranges::copy(std::views::values(epochs), std::back_inserter(recovered.epochs));
  std::ranges::copy(std::views::values(islands), std::back_inserter(recovered.islands));
  return recovered;
}

inline bool keeps(const Assignment& assignment, const Digest& its) {
  return std::any_of(assignment.keep.begin(), assignment.keep.end(), [&](const Content& content) { return content.digest == its; });
}

}  // namespace atl_test

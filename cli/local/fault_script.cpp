#include "cli/local/fault_script.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

bool counts(const json& event, const std::string& island) {
  const json& members = list_at(object_at(event, "fields"), "members");
  return std::find(members.begin(), members.end(), json(island)) != members.end();
}

// What the run did from one strike to the island's next: the next commit, the rounds without the island, and what was said meanwhile.
void add_what_followed(json& entry, const json& events, const std::string& island, std::int64_t struck_ms, std::int64_t until_ms) {
  std::uint64_t without = 0;
  json said = json::array();
  for (const json& event : events) {
    const auto at = static_cast<std::int64_t>(number_at(event, "time_unix_ms").value_or(0));
    if (at < struck_ms || at >= until_ms || entry.contains("back_round")) {
      continue;
    }
    if (text_at(event, "kind") == "round_committed") {
      if (!entry.contains("next_commit_round")) {
        entry["next_commit_round"] = event.at("round");
        entry["next_commit_ms"] = at - struck_ms;
        entry["next_commit_attempt"] = object_at(event, "fields").value("attempt", 1);
        entry["next_commit_with_island"] = counts(event, island);
      }
      if (!counts(event, island)) {
        ++without;
      } else if (without > 0) {
        entry["back_round"] = event.at("round");
        entry["back_ms"] = at - struck_ms;
      }
    } else if (text_at(event, "level") == "warning" || text_at(event, "level") == "error") {
      said.push_back(text_at(event, "text"));
    }
  }
  entry["rounds_without_island"] = without;
  entry["said"] = std::move(said);
}

}  // namespace

FaultScript::FaultScript(std::vector<ScriptedFault> faults) {
  for (ScriptedFault& fault : faults) {
    entries_.push_back({std::move(fault), {}, {}});
  }
}

std::map<std::string, std::string> FaultScript::environment_of(const std::string& island) const {
  std::vector<agent::Fault> faults;
  for (const Entry& entry : entries_) {
    if (entry.scripted.island == island && !entry.struck) {
      faults.push_back(entry.scripted.fault);
    }
  }
  return {{agent::kRehearsalVariable, agent::faults_text(faults)}};
}

bool FaultScript::take_line(std::string_view line, TimePoint now) {
  const std::optional<agent::Strike> strike = agent::parse_strike(line);
  if (!strike || strike->number < 1 || strike->number > entries_.size()) {
    return false;
  }
  Entry& entry = entries_[strike->number - 1];
  entry.struck = *strike;
  if (entry.scripted.fault.action == agent::FaultAction::kill || entry.scripted.fault.action == agent::FaultAction::pause) {
    entry.ends = now + entry.scripted.fault.length;
  }
  return true;
}

const FaultScript::Entry* FaultScript::lasting(const std::string& island, agent::FaultAction action) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.ends && entry.scripted.island == island && entry.scripted.fault.action == action;
  });
  return found == entries_.end() ? nullptr : &*found;
}

bool FaultScript::killed(const std::string& island) const { return lasting(island, agent::FaultAction::kill) != nullptr; }
bool FaultScript::paused(const std::string& island) const { return lasting(island, agent::FaultAction::pause) != nullptr; }

bool FaultScript::end(const std::string& island, agent::FaultAction action, TimePoint now) {
  for (Entry& entry : entries_) {
    if (&entry == lasting(island, action) && now >= *entry.ends) {
      entry.ends.reset();
      return true;
    }
  }
  return false;
}

bool FaultScript::starts_now(const std::string& island, TimePoint now) { return end(island, agent::FaultAction::kill, now); }
bool FaultScript::goes_on_now(const std::string& island, TimePoint now) { return end(island, agent::FaultAction::pause, now); }

// When this island was struck next; the end of time if it was not.
std::int64_t FaultScript::next_strike_after(const Entry& entry) const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (const Entry& other : entries_) {
    if (other.scripted.island == entry.scripted.island && other.struck && other.struck->unix_ms > entry.struck->unix_ms) {
      next = std::min(next, other.struck->unix_ms);
    }
  }
  return next;
}

json FaultScript::report(const json& events, std::optional<double> started_unix_ms) const {
  json all = json::array();
  for (const Entry& entry : entries_) {
    const agent::Fault& fault = entry.scripted.fault;
    json told = {{"island", entry.scripted.island},
                 {"round", fault.round.value},
                 {"phase", std::string(agent::kRoundPhases[static_cast<std::size_t>(fault.phase)])},
                 {"do", std::string(agent::kFaultActions[static_cast<std::size_t>(fault.action)])},
                 {"struck", entry.struck.has_value()}};
    if (fault.action != agent::FaultAction::corrupt) {
      told["for_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(fault.length).count();
    }
    if (entry.struck) {
      told["struck_round"] = entry.struck->round.value;
      told["struck_unix_ms"] = entry.struck->unix_ms;
      if (started_unix_ms) {
        told["struck_after_ms"] = entry.struck->unix_ms - static_cast<std::int64_t>(*started_unix_ms);
      }
      add_what_followed(told, events, entry.scripted.island, entry.struck->unix_ms, next_strike_after(entry));
    }
    all.push_back(std::move(told));
  }
  return all;
}

}  // namespace atl

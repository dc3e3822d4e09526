#include "cli/recorded/run_tape.hpp"

#include <set>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::uint64_t count_at(const json& object, const char* key) { return static_cast<std::uint64_t>(number_at(object, key).value_or(0)); }

RoundDecided round_of(const json& event, const json& fields) {
  RoundDecided round;
  round.digest = text_at(fields, "digest");
  round.attempt = count_at(fields, "attempt");
  round.time_unix_ms = number_at(event, "time_unix_ms").value_or(0);
  for (const json& member : list_at(fields, "members")) {
    round.members.push_back(member.is_string() ? member.get<std::string>() : "");
  }
  for (const json& tokens : list_at(fields, "member_tokens")) {
    round.member_tokens.push_back(tokens.is_number_unsigned() ? tokens.get<std::uint64_t>() : 0);
  }
  return round;
}

json to_json(const RoundDecided& round) {
  return {{"digest", round.digest},
          {"attempt", round.attempt},
          {"members", round.members},
          {"member_tokens", round.member_tokens},
          {"time_unix_ms", round.time_unix_ms}};
}

// Every value of a spec by its dotted name.
void flatten(const json& value, const std::string& name, std::map<std::string, json>& into) {
  if (!value.is_object()) {
    into[name] = value;
    return;
  }
  for (const auto& [key, part] : value.items()) {
    flatten(part, name.empty() ? key : name + "." + key, into);
  }
}

json differing_settings(const json& first, const json& second) {
  std::map<std::string, json> a;
  std::map<std::string, json> b;
  flatten(first, "", a);
  flatten(second, "", b);
  std::set<std::string> keys;
  for (const auto* side : {&a, &b}) {
    for (const auto& [key, value] : *side) {
      keys.insert(key);
    }
  }
  json differing = json::array();
  for (const std::string& key : keys) {
    const json left = a.contains(key) ? a.at(key) : json();
    const json right = b.contains(key) ? b.at(key) : json();
    if (left != right && key != "run.name") {
      differing.push_back({{"key", key}, {"first", left}, {"second", right}});
    }
  }
  return differing;
}

const char* why_parted(std::uint64_t number, const RoundDecided& a, const RoundDecided& b) {
  if (number == 0) {
    return "initial-state";
  }
  return a.members != b.members ? "members" : a.member_tokens != b.member_tokens ? "tokens" : "contributions";
}

// After the newest round that the runs share: of older rounds few are kept.
json told_before(const RunTape& tape, const std::optional<std::uint64_t>& shared, std::uint64_t round) {
  json told = json::array();
  for (auto each = tape.told.lower_bound(shared ? *shared + 1 : 0); each != tape.told.upper_bound(round); ++each) {
    for (const std::string& text : each->second) {
      told.push_back(text);
    }
  }
  return told;
}

}  // namespace

void take_event(RunTape& tape, const json& event) {
  const std::string kind = text_at(event, "kind");
  const json& fields = object_at(event, "fields");
  const std::uint64_t next = tape.rounds.empty() ? 0 : tape.rounds.rbegin()->first + 1;
  if (kind == "run_submitted") {
    const json spec = json::parse(text_at(fields, "spec"), nullptr, false);
    tape.spec = spec.is_object() ? spec : json::object();
  } else if (kind == "round_committed") {
    tape.rounds[count_at(fields, "round")] = round_of(event, fields);
  } else if (kind == "rolled_back") {
    const std::uint64_t to = count_at(fields, "to");
    // Without a digest even the initial state is lost.
    tape.rounds.erase(text_at(fields, "digest").empty() ? tape.rounds.begin() : tape.rounds.upper_bound(to), tape.rounds.end());
    tape.told[tape.rounds.empty() ? 0 : to + 1].push_back(text_at(event, "text"));
  } else if (kind == "island_left" || kind == "island_joined" || kind == "round_retried" || kind == "round_skipped" ||
             kind == "contribution_rejected") {
    tape.told[next].push_back(text_at(event, "text"));
  }
}

json diff_document(const RunTape& first, const RunTape& second) {
  json document = {{"schema", 1},
                   {"parted", false},
                   {"at", json()},
                   {"why", json()},
                   {"same_until", json()},
                   {"first", {{"rounds", first.rounds.empty() ? json() : json(first.rounds.rbegin()->first)}}},
                   {"second", {{"rounds", second.rounds.empty() ? json() : json(second.rounds.rbegin()->first)}}},
                   {"settings", differing_settings(first.spec, second.spec)}};
  std::optional<std::uint64_t> shared;
  for (const auto& [number, a] : first.rounds) {
    const auto found = second.rounds.find(number);
    if (found == second.rounds.end()) {
      continue;  // the second has not come so far, or it is one of the older rounds of which few are kept
    }
    const RoundDecided& b = found->second;
    if (a.digest == b.digest) {
      document["same_until"] = number;
      shared = number;
      document["digest"] = a.digest;
      continue;
    }
    document["parted"] = true;
    document["at"] = number;
    document["why"] = why_parted(number, a, b);
    document["first"]["round"] = to_json(a);
    document["first"]["before"] = told_before(first, shared, number);
    document["second"]["round"] = to_json(b);
    document["second"]["before"] = told_before(second, shared, number);
    break;
  }
  return document;
}

}  // namespace atl

// RunTape: what a run's events say was decided, round by round, and where two runs parted.
//
// Equal digests mean equal histories, so the first round whose digests differ is where two runs parted; what was decided
// for that round (who took part, with how many tokens) or the run files say why.
// Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace atl {

// A committed round.
struct RoundDecided {
  std::string digest;  // of all rounds up to this one; 64 hex digits
  std::vector<std::string> members;
  std::vector<std::uint64_t> member_tokens;  // in the order of members; empty for round 0
  std::uint64_t attempt = 0;
  double time_unix_ms = 0;
};

struct RunTape {
  nlohmann::json spec = nlohmann::json::object();
  std::map<std::uint64_t, RoundDecided> rounds;  // of the lineage that stands: rounds that were lost later are taken out
  // Members that left or came, and attempts that were given up, since the round before (by the round they preceded).
  std::map<std::uint64_t, std::vector<std::string>> told;
};

// Reads events (coordinator/api/documents.md, level debug) in order. What is no event, or of a kind it does not need, is passed over.
void take_event(RunTape& tape, const nlohmann::json& event);

// The document of `atoll diff`: see render_diff.
//  parted: the runs differ in a round that both committed; at: the first such round; same_until: the newest round before it.
//  why: "initial-state" | "members" | "tokens" | "contributions" (the same islands gave as many tokens, and other values).
nlohmann::json diff_document(const RunTape& first, const RunTape& second);

}  // namespace atl

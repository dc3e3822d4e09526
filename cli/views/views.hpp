// The text views of the coordinator's documents (coordinator/api/documents.md): pure functions, one for each.
//
// Lists fit the terminal; what does not fit is cut in the columns that can bear it. Texts end with a line end.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/views/parts/terminal.hpp"

namespace atl {

std::string render_runs(const nlohmann::json& document, const Terminal& terminal);
std::string render_status(const nlohmann::json& document, const Terminal& terminal);
std::string render_islands(const nlohmann::json& document, const Terminal& terminal);
// One line an event.
std::string render_events(const nlohmann::json& document, const Terminal& terminal);
// Where two runs parted: the document of `atoll diff`.
std::string render_diff(const nlohmann::json& document, const Terminal& terminal);
// Two runs side by side: the document of `atoll compare`.
std::string render_comparison(const nlohmann::json& document, const Terminal& terminal);
// The parts of a run's data, and whether they add up.
std::string render_data(const nlohmann::json& document, const Terminal& terminal);
// How much of a run's data was trained on: "12.4 % of it was trained on", "2.41 passes over it"; empty where that is not known, or nothing.
std::string data_passes_text(std::optional<double> passes);
// The mean of the islands' newest training losses; nothing if none has told one.
std::optional<double> training_loss_of(const nlohmann::json& document);
// Of an ended run's copies in a store: "of round 5; then the checkpoint of round 7 was not copied by …". Empty of a run without copies.
// `local` adds to the document what is open when it waits no longer ("copies_open").
std::string copies_text(const nlohmann::json& document);
// Whether there is nothing more to be heard of the copy of a run's newest checkpoint: it is there, or it failed for good.
bool copies_are_settled(const nlohmann::json& document);
std::string render_tokens(const nlohmann::json& document, const Terminal& terminal);
// What an ended run came to, from its status document: loss, rounds, bytes each island sent and how many times fewer than
// data-parallel would have, time computing, absences; of a rehearsal (`atoll local --faults`) each fault and what followed.
std::string render_summary(const nlohmann::json& document, const Terminal& terminal);
// One line that replaces itself while a run goes on, from its status document; no line end.
std::string render_progress(const nlohmann::json& document, const Terminal& terminal);

// The planner's documents (cli/planning/planner.hpp).
std::string render_plan(const nlohmann::json& document, const Terminal& terminal);
// Of a document with `pairs` (cli/planning/pair_ways.hpp): over what islands exchange, the slowest first, and why not directly.
std::string pairs_text(const nlohmann::json& document, const Terminal& terminal);
std::string render_plan_sweep(const nlohmann::json& document, const Terminal& terminal);
std::string render_plan_table_4(const nlohmann::json& document, const Terminal& terminal);
std::string render_gossip_timing(const nlohmann::json& document, const Terminal& terminal);
std::string render_goodput(const nlohmann::json& document, const Terminal& terminal);

}  // namespace atl

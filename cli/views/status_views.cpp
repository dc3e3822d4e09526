// Views of one run's status document: the page, the summary at its end, the progress line.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/parts/sparkline.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/relayed_view.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::string ms_text(std::optional<double> ms) { return seconds_text(ms ? std::optional(*ms / 1000) : ms); }

// "34 %" of 1.
std::string part_text(std::optional<double> part) { return part ? share_text(part, 1 - *part) : "-"; }

std::string field(std::string_view name, const std::string& value, const Terminal& terminal) {
  constexpr std::size_t kIndent = 10;
  const std::string head = std::string(name) + std::string(name.size() < kIndent ? kIndent - name.size() : 1, ' ');
  return wrapped(styled(head, Style::dim, terminal) + value, kIndent, terminal) + "\n";
}

std::string loss_curve(const json& run, std::size_t width) {
  std::vector<double> losses;
  for (const json& point : list_at(run, "losses")) {
    if (point.is_array() && point.size() == 2 && point[1].is_number()) {
      losses.push_back(point[1].get<double>());
    }
  }
  return sparkline(losses, width);
}

// "for 10.0 s, at most 9m50s more"
std::string since_until(const json& document, const json& run) {
  const auto now = number_at(document, "now_unix_ms");
  const auto since = number_at(run, "reason_since_unix_ms");
  const auto until = number_at(run, "reason_until_unix_ms");
  std::string text;
  if (since && now) {
    text += " (for " + age_text(now, since);
    text += until && *until > *now ? ", at most " + age_text(until, now) + " more)" : ")";
  }
  return text;
}

std::string state_line(const json& document, const json& run, const Terminal& terminal) {
  const std::string state = text_at(run, "state");
  std::string reason = printable(text_at(run, "reason"), 500);
  if (reason.starts_with(state + ": ")) {
    reason.erase(0, state.size() + 2);  // an ended run's reason may begin with the code, which is the state's word
  }
  std::string line = styled(state, run_state_style(state), terminal);
  if (!reason.empty()) {
    line += ": " + reason + (run_has_ended(state) ? "" : since_until(document, run));
  }
  return line;
}

std::string round_line(const json& run) {
  std::string line = rounds_done_text(run) + ", epoch " + count_text(number_at(run, "epoch"));
  if (const auto attempt = number_at(run, "attempt"); attempt && *attempt > 0) {
    line += ", attempt " + count_text(attempt);
  }
  if (const auto checkpoint = number_at(run, "checkpoint_round"); checkpoint) {
    line += ", checkpoint of round " + count_text(checkpoint);
  }
  if (const auto copied = number_at(run, "copied_round"); copied) {
    line += ", copy of round " + count_text(copied);
  }
  return line;
}

// "███████▏            35 %, 9m57s so far, about 18m29s left, until 00:18 UTC": at the mean speed of the run so far. Empty for a run
// that is not under way.
std::string progress_text(const json& document, const json& run) {
  constexpr std::size_t kWidth = 20;
  const auto now = number_at(document, "now_unix_ms");
  const auto started = number_at(run, "started_unix_ms");
  if (run_has_ended(text_at(run, "state")) || number_at(run, "rounds").value_or(0) <= 0 || !now || !started) {
    return "";
  }
  const double part = run_share_done(run);
  const auto full = static_cast<std::size_t>(part * kWidth);
  std::string text;
  for (std::size_t i = 0; i < kWidth; ++i) {
    text += i < full ? "█" : "░";
  }
  text += " " + part_text(part) + ", " + age_text(now, started) + " so far";
  if (text_at(run, "state") == "running" && part > 0 && part < 1) {
    const double left_ms = (*now - *started) / part * (1 - part);
    const std::string end = time_text(*now + left_ms);
    text += ", about " + ms_text(left_ms) + " left, until " +
            (left_ms < 86'400'000 ? end.substr(std::min<std::size_t>(11, end.size()), 5) : end.substr(0, 16)) + " UTC";
  }
  return text;
}

// What is counted, and what the loss is, of a language model or of one of images.
std::string counted(const json& run) { return flag_at(run, "images") ? "images" : "tokens"; }
// With what stands before it; nothing of a trainer of one's own, whose loss is its affair.
std::string loss_unit(const json& run, const std::string& before) {
  const bool own = !object_at(run, "trainer").empty();
  return own ? "" : before + (flag_at(run, "images") ? "squared error of the flow" : "nats per token");
}

std::string loss_line(const json& document) {
  const json& run = object_at(document, "run");
  if (const auto training = training_loss_of(document); training && !number_at(run, "outer_loss")) {
    return loss_text(training) + " in training, none on held-out data";
  }
  const std::string curve = loss_curve(run, 24);
  std::string line = loss_text(number_at(run, "outer_loss")) + loss_unit(run, " ");
  if (number_at(run, "initial_loss")) {
    line += ", from " + loss_text(number_at(run, "initial_loss"));
  }
  return line + (curve.empty() ? "" : "  " + curve);
}

// "0.0123 from the islands to their mean, estimated after round 7": of runs whose islands meet in pairs.
std::string spread_line(const json& run) {
  const auto distance = number_at(run, "consensus_distance");
  if (!distance) {
    return "";
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", *distance);
  return std::string(text.data()) + " from the islands to their mean, estimated after round " +
         count_text(number_at(run, "consensus_round"));
}

// "1.831 (a) to 1.862 (c), each island's own parameters": of runs whose islands have outer states of their own.
std::string own_losses_line(const json& document) {
  const json* best = nullptr;
  const json* worst = nullptr;
  for (const json& island : list_at(document, "islands")) {
    const auto loss = number_at(island, "own_loss");
    if (loss && text_at(island, "state") != "absent") {
      best = best == nullptr || *loss < *number_at(*best, "own_loss") ? &island : best;
      worst = worst == nullptr || *loss > *number_at(*worst, "own_loss") ? &island : worst;
    }
  }
  if (best == nullptr) {
    return "";
  }
  const auto of = [](const json& island) {
    return loss_text(number_at(island, "own_loss")) + " (" + printable(text_at(island, "name"), 60) + ")";
  };
  return of(*best) + " to " + of(*worst) + ", each island's own parameters";
}

// "5.550 at the start, ", or of the earliest round there is.
std::string first_loss(const json& run) {
  if (const auto initial = number_at(run, "initial_loss")) {
    return loss_text(initial) + " at the start, ";
  }
  const json& losses = list_at(run, "losses");
  if (losses.empty() || !losses[0].is_array() || losses[0].size() != 2 || !losses[0][0].is_number() || !losses[0][1].is_number()) {
    return "";
  }
  return loss_text(losses[0][1].get<double>()) + " after round " + count_text(losses[0][0].get<double>()) + ", ";
}

std::string islands_table(const json& document, const Terminal& terminal) {
  const auto now = number_at(document, "now_unix_ms");
  Table table({{"ISLAND", false, true},
               {"STATE"},
               {"STEP", true},
               {"TOKENS/S", true},
               {"SHARE", true, false, 1},
               {"COMPUTING", true},
               {"SENT", true},
               {"RECEIVED", true, false, 3},
               {"SEEN", true, false, 2},
               {"REASON", false, true}});
  for (const json& island : list_at(document, "islands")) {
    const std::string state = text_at(island, "state");
    const Style style = state == "absent" ? Style::bad : state == "training" ? Style::good : Style::plain;
    table.add({{text_at(island, "name")},
               {state, style},
               {count_text(number_at(island, "step"))},
               {count_text(number_at(island, "tokens_per_second"))},
               {part_text(number_at(island, "share"))},
               {share_text(number_at(island, "compute_seconds"), number_at(island, "wait_seconds"))},
               {bytes_text(number_at(island, "bytes_sent"))},
               {bytes_text(number_at(island, "bytes_received"))},
               {age_text(now, number_at(island, "last_seen_unix_ms"))},
               {text_at(island, "reason")}});
  }
  return table.empty() ? std::string() : "\n" + table.text(terminal);
}

// For whom each island waited: "  b: 12.0 s for the link a → b, 3.0 s for c to be ready".
std::string waits_text(const json& document, const Terminal& terminal) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (const json& island : list_at(document, "islands")) {
    std::string causes;
    std::size_t shown = 0;
    for (const json& wait : list_at(island, "waits")) {
      if (number_at(wait, "seconds").value_or(0) >= 0.1 && shown++ < kShown) {
        causes += (causes.empty() ? "" : ", ") + seconds_text(number_at(wait, "seconds")) + " for " + printable(text_at(wait, "text"), 140);
      }
    }
    if (!causes.empty()) {
      text += wrapped("  " + printable(text_at(island, "name"), 60) + ": " + causes, 4, terminal) + "\n";
    }
  }
  return text.empty() ? text : styled("waits", Style::bold, terminal) + "\n" + text;
}

// What the islands' built-in trainers compute with, once where it is the same: "LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor".
std::string kernels_line(const json& document) {
  std::vector<std::pair<std::string, std::string>> said;  // kernels, islands
  for (const json& island : list_at(document, "islands")) {
    const std::string kernels = printable(text_at(island, "kernels"), 300);
    if (kernels.empty() || text_at(island, "state") == "absent") {
      continue;
    }
    const std::string name = printable(text_at(island, "name"), 60);
    const auto same = std::find_if(said.begin(), said.end(), [&](const auto& one) { return one.first == kernels; });
    if (same == said.end()) {
      said.emplace_back(kernels, name);
    } else {
      same->second += ", " + name;
    }
  }
  std::string line;
  for (const auto& [kernels, islands] : said) {
    line += (line.empty() ? "" : "; ") + (said.size() > 1 ? islands + ": " : "") + kernels;
  }
  return line;
}

// The tasks of a run of phases are its rows; a run of rounds has none.
bool has_tasks(const json& document) {
  const json& phases = list_at(document, "phases");
  return std::any_of(phases.begin(), phases.end(), [](const json& phase) { return !list_at(phase, "tasks").empty(); });
}

std::string phases_line(const json& document) {
  std::string line;
  for (const json& phase : list_at(document, "phases")) {
    const std::size_t tasks = list_at(phase, "tasks").size();
    line += (line.empty() ? "" : " → ") + printable(text_at(phase, "name"), 60) + " " + printable(text_at(phase, "state"), 20);
    if (tasks > 1) {
      line += " (" + count_text(number_at(phase, "done")) + " of " + std::to_string(tasks) + ")";
    }
  }
  return line;
}

// How the images were clustered: "2.26 k, 1.15 k, 3.14 k and 2.45 k images by features (256 fine clusters, inertia 4.95e+05)"; empty before
// that.
std::string clusters_line(const json& document) {
  constexpr std::size_t kMostSizes = 12;  // of more the smallest and the largest
  for (const json& phase : list_at(document, "phases")) {
    for (const json& task : list_at(phase, "tasks")) {
      const json& facts = object_at(task, "facts");
      std::vector<double> sizes;
      for (const json& size : list_at(facts, "sizes")) {
        sizes.push_back(size.is_number() ? size.get<double>() : 0.0);
      }
      if (text_at(task, "task") != "clustering" || sizes.size() < 2) {
        continue;
      }
      std::string line;
      if (sizes.size() > kMostSizes) {
        const auto [least, most] = std::ranges::minmax(sizes);
        line = std::to_string(sizes.size()) + " of " + count_text(least) + " to " + count_text(most);
      } else {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          line += (i == 0 ? "" : i + 1 == sizes.size() ? " and " : ", ") + count_text(sizes[i]);
        }
      }
      line += " images by " + printable(text_at(facts, "by"), 20);
      if (const auto inertia = number_at(facts, "fine_inertia")) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.3g", *inertia);
        line += " (" + count_text(number_at(facts, "fine_clusters")) + " fine clusters, inertia " + text.data() + ")";
      }
      return line;
    }
  }
  return "";
}

// Who works on a task: an island, or a group of them in a round of theirs.
std::string workers_text(const json& task) {
  const json& group = object_at(task, "group");
  std::string names;
  for (const json& island : list_at(group, "islands")) {
    names += (names.empty() ? "" : "+") + (island.is_string() ? island.get<std::string>() : "");
  }
  return names.empty() ? text_at(task, "island")
                       : names + " (round " + count_text(number_at(group, "round")) + "/" + count_text(number_at(group, "rounds")) + ")";
}

std::string tasks_table(const json& document, const Terminal& terminal) {
  const auto now = number_at(document, "now_unix_ms");
  Table table({{"TASK", false, true},
               {"STATE"},
               {"ISLAND", false, true},
               {"STEP", true},
               {"LOSS", true},
               {"SAVED", true, false, 2},
               {"COPIES", true, false, 1},
               {"RESULT", true, false, 3},
               {"TIME", true, false, 4}});
  for (const json& phase : list_at(document, "phases")) {
    for (const json& task : list_at(phase, "tasks")) {
      const std::string state = text_at(task, "state");
      const Style style = state == "failed" ? Style::bad : state == "running" ? Style::good : Style::plain;
      const double steps = number_at(task, "steps").value_or(0);
      const auto ended = number_at(task, "ended_unix_ms");
      table.add(
          {{text_at(task, "task")},
           {state, style},
           {workers_text(task)},
           {steps > 0 ? count_text(number_at(task, "step")) + "/" + count_text(steps) : "-"},
           {loss_text(number_at(task, "loss"))},
           {number_at(task, "checkpoint_step").value_or(0) > 0 && state != "done" ? count_text(number_at(task, "checkpoint_step")) : "-"},
           {number_at(task, "copies").value_or(0) > 0 ? count_text(number_at(task, "copies")) : "-"},
           {state == "done" ? bytes_text(number_at(task, "result_bytes")) : "-"},
           {number_at(task, "started_unix_ms") ? age_text(ended ? ended : now, number_at(task, "started_unix_ms")) : "-"}});
    }
  }
  return table.empty() ? std::string() : "\n" + table.text(terminal);
}

// What the last task measured on the images that are held out.
std::string validation_line(const json& document) {
  const json& phases = list_at(document, "phases");
  if (phases.empty() || list_at(phases.back(), "tasks").empty()) {
    return "-";
  }
  const json& facts = object_at(list_at(phases.back(), "tasks")[0], "facts");
  if (!number_at(facts, "top_1")) {
    return "-";
  }
  std::string line = "top-1 " + loss_text(number_at(facts, "top_1")) + ", full " + loss_text(number_at(facts, "full")) +
                     ", expert of the image's cluster " + loss_text(number_at(facts, "expert_of_cluster"));
  if (const auto accuracy = number_at(facts, "router_accuracy")) {
    line += "; router right " + std::to_string(static_cast<int>(*accuracy * 100 + 0.5)) + " %";
  }
  if (const auto dense = number_at(facts, "dense")) {
    line += "; dense model " + loss_text(dense);
  }
  return line;
}

std::string absences_text(const json& document, const Terminal& terminal) {
  std::string text;
  for (const json& absence : list_at(document, "absences")) {
    const auto until = number_at(absence, "to_round");
    const std::string line = "  " + printable(text_at(absence, "island"), 60) + ": from round " +
                             count_text(number_at(absence, "from_round")) + (until ? " to " + count_text(until) : " on") + ": " +
                             printable(text_at(absence, "cause"), 300);
    text += wrapped(line, 4, terminal) + "\n";
  }
  return text.empty() ? text : styled("absences", Style::attention, terminal) + "\n" + text;
}

std::string warnings_text(const json& document, const Terminal& terminal) {
  std::string text;
  for (const json& warning : list_at(document, "warnings")) {
    const std::string island = printable(text_at(warning, "island"), 60);
    const std::string line = "  " + time_text(number_at(warning, "time_unix_ms")) + " " + (island.empty() ? "" : island + ": ") +
                             printable(text_at(warning, "text"), 300);
    text += wrapped(line, 4, terminal) + "\n";
  }
  return text.empty() ? text : styled("warnings", Style::attention, terminal) + "\n" + text;
}

// One rehearsed fault: when it struck and what followed.
std::string fault_line(const json& fault) {
  std::string line = printable(text_at(fault, "do")) + " of " + printable(text_at(fault, "island"), 60) + " at " +
                     printable(text_at(fault, "phase")) + " of round ";
  if (!flag_at(fault, "struck")) {
    return line + count_text(number_at(fault, "round")) + ": did not strike; the island did not come to this phase in that round or later";
  }
  line += count_text(number_at(fault, "struck_round"));
  const auto after = number_at(fault, "struck_after_ms");
  line += after ? ", " + ms_text(after) + " after the start: " : ": ";
  const auto next = number_at(fault, "next_commit_round");
  if (!next) {
    return line + "no round was committed after it";
  }
  line += "round " + count_text(next) + " committed " + ms_text(number_at(fault, "next_commit_ms")) + " later";
  line += flag_at(fault, "next_commit_with_island") ? "" : " by the others";
  if (const auto attempt = number_at(fault, "next_commit_attempt"); attempt && *attempt > 1) {
    line += ", attempt " + count_text(attempt);
  }
  if (const auto without = number_at(fault, "rounds_without_island");
      without && *without > 0 && flag_at(fault, "next_commit_with_island")) {
    line += "; then left out";
  }
  if (const auto back = number_at(fault, "back_round")) {
    line += "; counted again in round " + count_text(back) + ", " + ms_text(number_at(fault, "back_ms")) + " after it";
  } else if (number_at(fault, "rounds_without_island").value_or(0) > 0) {
    line += "; it was not counted again";
  }
  return line;
}

std::string faults_text(const json& document, const Terminal& terminal) {
  std::string text;
  for (const json& fault : list_at(document, "faults")) {
    text += wrapped("  " + fault_line(fault), 4, terminal) + "\n";
  }
  return text.empty() ? text : styled("faults", Style::attention, terminal) + "\n" + text;
}

double largest_step(const json& document) {
  double most = 0;
  for (const json& island : list_at(document, "islands")) {
    most = std::max(most, number_at(island, "step").value_or(0));
  }
  return most;
}

// Of a trainer of one's own, whose settings no one else understands: "gpt  {"layers":6}" and "84.5 k parameters, 338 kB".
std::string trainer_lines(const json& run, const Terminal& terminal) {
  const json& trainer = object_at(run, "trainer");
  const std::string settings = object_at(trainer, "settings").dump(-1, ' ', false, json::error_handler_t::replace);
  const auto parameters = number_at(run, "parameters");
  return field("trainer", printable(text_at(trainer, "name")) + (settings == "{}" ? "" : "  " + printable(settings)), terminal) +
         (parameters ? field("model", count_text(parameters) + " parameters, " + bytes_text(*parameters * 4), terminal) : "");
}

// Numbers of the trainers' own: "accuracy 0.2500, perplexity 12.30".
std::string metrics_line(const json& run) {
  std::string line;
  for (const auto& [name, value] : object_at(run, "metrics").items()) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g", value.is_number() ? value.get<double>() : 0.0);
    line += (line.empty() ? "" : ", ") + printable(name, 64) + " " + text.data();
  }
  return line;
}

std::string times_text(double factor) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), factor < 9.95 ? "%.1f" : "%.0f", factor);
  return text.data();
}

// "29.4 MB by each island; data-parallel would have sent 880 MB, 30 times more"
std::string sent_line(const json& document, const json& run) {
  const auto islands = static_cast<double>(list_at(document, "islands").size());
  const auto sent = number_at(run, "bytes_sent");
  if (!sent || islands == 0) {
    return "-";
  }
  const double each = *sent / islands;
  std::string line = bytes_text(each) + " by each island";
  const double parameters = number_at(run, "parameters").value_or(0);
  if (parameters > 0 && islands > 1 && each > 0) {
    // The same exchange, in float32, before every inner step: two members send all of it, more send 2·(P−1)/P of it.
    const double per_step = 4.0 * parameters * (islands == 2 ? 1.0 : 2.0 * (islands - 1) / islands);
    const double parallel = per_step * largest_step(document);
    line += parallel <= 0
                ? ""
                : "; data-parallel would have sent " + bytes_text(parallel) + ", " + times_text(parallel / each) + " times as much";
  }
  return line;
}

}  // namespace

std::string render_status(const json& document, const Terminal& terminal) {
  const json& run = object_at(document, "run");
  std::string text = field("run",
                           styled(printable(text_at(run, "id")), Style::bold, terminal) + "  " + printable(text_at(run, "name")) + "  (" +
                               printable(text_at(run, "strategy")) + ")",
                           terminal);
  text += field("state", state_line(document, run, terminal), terminal);
  if (!object_at(run, "trainer").empty()) {
    text += trainer_lines(run, terminal);
  }
  const bool tasks = has_tasks(document);
  text += tasks ? field("phases", phases_line(document), terminal) : field("round", round_line(run), terminal);
  const std::string progress = tasks ? "" : progress_text(document, run);
  text += progress.empty() ? "" : field("progress", progress, terminal);
  text += field("islands",
                count_text(number_at(run, "members")) + " active (min " + count_text(number_at(run, "min")) + ", max " +
                    count_text(number_at(run, "max")) + ")",
                terminal);
  const std::string share = data_passes_text(number_at(run, "data_passes"));
  text += share.empty() ? "" : field("data", share, terminal);
  if (tasks) {
    text += clusters_line(document).empty() ? "" : field("clusters", clusters_line(document), terminal);
    text += field("images", count_text(number_at(run, "tokens_per_second")) + "/s", terminal);
    text += field("loss", validation_line(document), terminal);
  } else {
    text +=
        field(counted(run), count_text(number_at(run, "tokens")) + ", " + count_text(number_at(run, "tokens_per_second")) + "/s", terminal);
    text += field("loss", loss_line(document), terminal);
    text += metrics_line(run).empty() ? "" : field("metrics", metrics_line(run), terminal);
    text += own_losses_line(document).empty() ? "" : field("losses", own_losses_line(document), terminal);
    text += spread_line(run).empty() ? "" : field("spread", spread_line(run), terminal);
  }
  text += field("sent", bytes_text(number_at(run, "bytes_sent")) + " by all islands", terminal);
  text += field("computing",
                share_text(number_at(run, "compute_seconds"), number_at(run, "wait_seconds")) + " of the islands' time, " +
                    seconds_text(number_at(run, "wait_seconds")) + " waiting",
                terminal);
  if (!run_has_ended(text_at(run, "state"))) {
    for (const json& note : list_at(run, "notes")) {
      text += note.is_string() ? field("note", printable(note.get<std::string>(), 500), terminal) : "";
    }
  }
  for (const std::string& line : relayed_lines(run)) {
    text += field("way", line, terminal);
  }
  for (const json& path : list_at(run, "unsteady")) {
    text += field("unsteady", printable(text_at(path, "text"), 300), terminal);
  }
  text += kernels_line(document).empty() ? "" : field("kernels", kernels_line(document), terminal);
  text += tasks_table(document, terminal);
  text += islands_table(document, terminal);
  const std::string waits = waits_text(document, terminal);
  text += waits.empty() ? "" : "\n" + waits;
  const std::string absences = absences_text(document, terminal);
  const std::string warnings = warnings_text(document, terminal);
  return text + (absences.empty() ? "" : "\n" + absences) + (warnings.empty() ? "" : "\n" + warnings);
}

std::string render_summary(const json& document, const Terminal& terminal) {
  const json& run = object_at(document, "run");
  const auto started = number_at(run, "started_unix_ms");
  const auto ended = number_at(run, "ended_unix_ms");
  std::string text = field(
      "run", printable(text_at(run, "id")) + "  " + printable(text_at(run, "name")) + "  " + state_line(document, run, terminal), terminal);
  if (has_tasks(document)) {
    text += field("loss", validation_line(document) + ", on held-out images", terminal);
    text +=
        field("phases", phases_line(document) + " in " + age_text(ended ? ended : number_at(document, "now_unix_ms"), started), terminal);
    text += clusters_line(document).empty() ? "" : field("clusters", clusters_line(document), terminal);
    text += field("sent", bytes_text(number_at(run, "bytes_sent")) + " by all islands", terminal);
    return text + tasks_table(document, terminal) + absences_text(document, terminal);
  }
  const bool held_out = number_at(run, "outer_loss") || !training_loss_of(document);
  text += field("loss",
                !held_out ? loss_line(document)
                          : first_loss(run) + loss_text(number_at(run, "outer_loss")) + " at the end" + loss_unit(run, ", ") +
                                " on held-out data  " + loss_curve(run, 24),
                terminal);
  text += own_losses_line(document).empty() ? "" : field("losses", own_losses_line(document), terminal);
  text += field("rounds",
                (number_at(run, "token_limit") ? count_text(number_at(run, "round")) : rounds_done_text(run)) + " in " +
                    age_text(ended ? ended : number_at(document, "now_unix_ms"), started) + ", " + count_text(number_at(run, "tokens")) +
                    " " + counted(run),
                terminal);
  const std::string share = data_passes_text(number_at(run, "data_passes"));
  text += share.empty() ? "" : field("data", share, terminal);
  const std::string copies = copies_text(document);
  text += copies.empty() ? "" : field("copies", copies, terminal);
  text += field("sent", sent_line(document, run), terminal);
  text += field("computing",
                share_text(number_at(run, "compute_seconds"), number_at(run, "wait_seconds")) + " of the islands' time (" +
                    seconds_text(number_at(run, "compute_seconds")) + " computing, " + seconds_text(number_at(run, "wait_seconds")) +
                    " waiting)",
                terminal);
  return text + absences_text(document, terminal) + faults_text(document, terminal);
}

std::string render_progress(const json& document, const Terminal& terminal) {
  const json& run = object_at(document, "run");
  const std::string state = text_at(run, "state");
  if (has_tasks(document)) {
    const std::string line =
        state + "  " + count_text(number_at(run, "tokens_per_second")) + " images/s  " + printable(text_at(run, "reason"), 300);
    return std::string(first_columns(line, terminal.columns > 1 ? terminal.columns - 1 : 1));
  }
  std::string line = state + "  round " + rounds_done_cell(run) + "  loss " +
                     loss_text(number_at(run, "outer_loss") ? number_at(run, "outer_loss") : training_loss_of(document)) + "  " +
                     loss_curve(run, 16) + "  " + count_text(number_at(run, "tokens_per_second")) + " " + counted(run) + "/s  " +
                     count_text(number_at(run, "members")) + " islands";
  if (const std::string reason = printable(text_at(run, "reason"), 200); !reason.empty()) {
    line += "  " + reason;
  }
  return std::string(first_columns(line, terminal.columns > 1 ? terminal.columns - 1 : 1));
}

}  // namespace atl

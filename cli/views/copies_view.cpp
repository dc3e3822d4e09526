// What became of the copies of a run's checkpoints in a store, from its status document.
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

// The newest warning of a copy that failed; null if there is none.
const json* last_failure(const json& document) {
  const json* failed = nullptr;
  for (const json& warning : list_at(document, "warnings")) {
    failed = text_at(warning, "kind") == "checkpoint_not_copied" ? &warning : failed;
  }
  return failed;
}

}  // namespace

std::string copies_text(const json& document) {
  static constexpr std::string_view kMeanwhile = "; the run goes on";  // it has ended
  const auto copied = number_at(object_at(document, "run"), "copied_round");
  const json* failed = last_failure(document);
  const std::string there = copied ? "of round " + count_text(copied) : "none";
  if (failed == nullptr || (copied && number_at(*failed, "round").value_or(*copied + 1) <= *copied)) {
    const std::string open = text_at(document, "copies_open");
    return open.empty() ? (copied ? there : "") : there + (copied ? "; " : ": ") + printable(open, 500);
  }
  std::string why = printable(text_at(*failed, "text"), 500);
  if (why.ends_with(kMeanwhile)) {
    why.resize(why.size() - kMeanwhile.size());
  }
  return there + (copied ? "; then " : ": ") + why;
}

bool copies_are_settled(const json& document) {
  const json& run = object_at(document, "run");
  const double newest = number_at(run, "checkpoint_round").value_or(0);
  if (number_at(run, "copied_round").value_or(0) >= newest) {
    return true;
  }
  const json* failed = last_failure(document);
  return failed != nullptr && number_at(*failed, "round").value_or(newest) >= newest &&
         text_at(*failed, "text").find("tried again in") == std::string::npos;
}

}  // namespace atl

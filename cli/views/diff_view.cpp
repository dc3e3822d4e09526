// The view of `atoll diff`.
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::size_t kShownDigits = 12;  // of a digest
constexpr std::size_t kShownLines = 8;    // of what came before

std::string round_text(const json& side) {
  const json& round = object_at(side, "round");
  const json& members = list_at(round, "members");
  const json& tokens = list_at(round, "member_tokens");
  std::string text = printable(text_at(side, "id")) + ": digest " + printable(text_at(round, "digest")).substr(0, kShownDigits);
  for (std::size_t i = 0; i < members.size(); ++i) {
    text += (i == 0 ? "; " : ", ") + printable(members[i].is_string() ? members[i].get<std::string>() : "");
    if (i < tokens.size() && tokens[i].is_number()) {
      text += tokens[i] == 0 ? " (contributes nothing)" : " " + tokens[i].dump() + " tokens";
    }
  }
  return text + "\n";
}

std::string before_text(const json& side) {
  const json& before = list_at(side, "before");
  std::string text;
  const std::size_t begin = before.size() > kShownLines ? before.size() - kShownLines : 0;
  for (std::size_t i = begin; i < before.size(); ++i) {
    text += "    " + printable(before[i].is_string() ? before[i].get<std::string>() : "", 500) + "\n";
  }
  return text;
}

std::string why_text(const std::string& why) {
  if (why == "initial-state") {
    return "the initial states differ (seed or model)";
  }
  if (why == "members") {
    return "other islands took part";
  }
  if (why == "tokens") {
    return "the islands contributed other numbers of tokens";
  }
  return "the same islands contributed other values (data, settings, or hardware)";
}

}  // namespace

std::string render_diff(const json& document, const Terminal& terminal) {
  const json& first = object_at(document, "first");
  const json& second = object_at(document, "second");
  const std::string both = printable(text_at(first, "id")) + " and " + printable(text_at(second, "id"));
  const auto same = number_at(document, "same_until");
  std::string text;
  if (same) {
    text = both + " are the same up to round " + count_text(same) + ", digest " +
           printable(text_at(document, "digest")).substr(0, kShownDigits) + "\n";
  }
  if (flag_at(document, "parted")) {
    text += styled("round " + count_text(number_at(document, "at")) + " parts them: " + why_text(text_at(document, "why")),
                   Style::attention, terminal) +
            "\n";
    for (const json* side : {&first, &second}) {
      text += "  " + round_text(*side) + before_text(*side);
    }
  } else {
    const auto a = number_at(first, "rounds");
    const auto b = number_at(second, "rounds");
    const bool differ = a && b && *a != *b;
    text += !a || !b  ? both + " have no round in common yet\n"
            : !differ ? "they never parted\n"
                      : "they have not parted; " + printable(text_at(*a > *b ? first : second, "id")) + " goes on to round " +
                            count_text(std::max(*a, *b)) + "\n";
  }
  for (const json& setting : list_at(document, "settings")) {
    text += "  setting " + printable(text_at(setting, "key")) + ": " + printable(setting.value("first", json()).dump(), 200) + " / " +
            printable(setting.value("second", json()).dump(), 200) + "\n";
  }
  return text;
}

}  // namespace atl

#include "agent/host/command_words.hpp"

#include <utility>

namespace atl {

Result<std::vector<std::string>> split_command(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? '\0' : c;
      open = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (std::exchange(open, false)) {
        words.push_back(std::exchange(word, {}));
      }
    } else {
      word += c;
      open = true;
    }
  }
  if (quote != 0) {
    return Error{Code::invalid_argument, "the command '" + std::string(text) + "' has a quote that does not end"};
  }
  if (open) {
    words.push_back(std::move(word));
  }
  if (words.empty() || words.front().empty()) {
    return Error{Code::invalid_argument, "the command '" + std::string(text) + "' names no program"};
  }
  return words;
}

}  // namespace atl

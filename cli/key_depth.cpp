#include "cli/key_depth.hpp"

namespace atl {
namespace {

// Walks over strings and comments, so that only dots of keys and numbers are counted.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  std::optional<DeepKey> find() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        skip_to_line_end();
        continue;
      }
      if (c == '.') {
        if (++dots_ >= kMostKeyParts) {
          return DeepKey{line_, static_cast<std::uint32_t>(at_ - line_begin_ + 1)};
        }
      } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
        dots_ = 0;  // a key ends here
      }
      step();
    }
    return std::nullopt;
  }

 private:
  void step() {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }
  [[nodiscard]] bool is_next(char quote, std::size_t times) const {
    return text_.substr(at_, times) == std::string_view(quote == '"' ? "\"\"\"" : "'''").substr(0, times);
  }
  void skip_to_line_end() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      ++at_;
    }
  }
  // One that is not closed ends with its line, or as a block with the text: the parser stops there as well.
  void skip_string(char quote) {
    const bool block = is_next(quote, 3);
    at_ += block ? 3 : 1;
    while (at_ < text_.size() && (block || text_[at_] != '\n')) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        step();
        step();
      } else if (is_next(quote, block ? 3 : 1)) {
        at_ += block ? 3 : 1;
        for (int more = 0; block && more < 2 && is_next(quote, 1); ++more) {
          ++at_;  // a block may end with two quotes of its own
        }
        return;
      } else {
        step();
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t dots_ = 0;
  std::uint32_t line_ = 1;
  std::size_t line_begin_ = 0;
};

}  // namespace

std::optional<DeepKey> find_deep_key(std::string_view toml) { return Walk(toml).find(); }

}  // namespace atl

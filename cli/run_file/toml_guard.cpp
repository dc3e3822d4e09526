#include "cli/run_file/toml_guard.hpp"

#include <utility>

namespace atl {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of an editor; the parser skips it

// Walks over strings and comments, so that only what stands outside of them is looked at. A quote begins a string only where a key or a
// value may begin: the parser reads on from `1"` as from a number. What follows a mistake does not matter: the parser ends there.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

  std::optional<TomlFault> find() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if ((c == '"' || c == '\'') && may_begin()) {
        skip_string(c);
        before_ = c;
        continue;
      }
      if (c == '#') {
        skip_to_line_end();
        continue;
      }
      if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
        return fault("a letter beyond ASCII outside of quotes and comments; put the text that it belongs to in quotes");
      }
      if (c == '.') {
        if (++dots_ >= kMostKeyParts) {
          return fault("a key of more than " + std::to_string(kMostKeyParts) + " parts; a section and a key in it are two");
        }
      } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
        dots_ = 0;  // a key ends here
      }
      note(c);
      step();
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool in_array() const { return !open_.empty() && open_.back() == '['; }
  [[nodiscard]] bool may_begin() const {
    return (value_ ? std::string_view("=[,") : std::string_view("\n[{,.")).find(before_) != std::string_view::npos;
  }
  void note(char c) {
    if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && in_array())) {
      return;
    }
    if (value_ && (c == '=' || ((c == '[' || c == '{') && !may_begin()))) {
      before_ = 'a';  // in the middle of a value it is like any letter
      return;
    }
    if (c == '[' || c == '{') {
      if (value_) {
        open_ += c;  // else the head of a table
        value_ = c == '[';
      }
    } else if (c == ']' || c == '}') {
      if (!open_.empty()) {
        open_.pop_back();
        value_ = true;
      }
    } else if (c == '=') {
      value_ = true;
    } else if (c == ',') {
      value_ = in_array();
    } else if (c == '\n') {
      value_ = false;
    }
    before_ = c;
  }
  [[nodiscard]] TomlFault fault(std::string why) const {
    return {line_, static_cast<std::uint32_t>(at_ - line_begin_ + 1), std::move(why)};
  }
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
  std::size_t at_;
  char before_ = '\n';  // the last one that is no space
  bool value_ = false;  // a value stands here, not a key
  std::string open_;    // arrays and inline tables around this place
  std::size_t dots_ = 0;
  std::uint32_t line_ = 1;
  std::size_t line_begin_ = 0;
};

}  // namespace

std::optional<TomlFault> find_toml_fault(std::string_view toml) { return Walk(toml).find(); }

}  // namespace atl

// Plain text: which bytes other machines may put into names, texts and documents.
#include "transport/base/plain_text.hpp"

#include "tests/catch.hpp"

namespace of_plain_text_test {

using namespace atl;

TEST_CASE("utf-8 is recognised exactly") {
  for (const char* good :
       {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_plain(good, TextRule::json));
  }
  // stray continuation, overlong, surrogate, above U+10FFFF, cut short
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC1\x81", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xC2", "\xE2\x82", "\xF0\x9F\x8F", "\xFF", "a\xE2\x82z"}) {
    CHECK_FALSE(is_plain(bad, TextRule::json));
  }
}

TEST_CASE("control characters are kept out of what reaches a terminal") {
  CHECK(is_plain("two\nlines\t.", TextRule::text));
  CHECK_FALSE(is_plain("two\nlines", TextRule::name));
  CHECK_FALSE(is_plain("\x1b[2J", TextRule::text));
  CHECK_FALSE(is_plain("\x7f", TextRule::text));
  CHECK_FALSE(is_plain("\xC2\x9b", TextRule::text));  // the one-character form of ESC [
  CHECK(is_plain("\xC2\xA0", TextRule::name));
  CHECK_FALSE(is_plain(std::string_view("a\0b", 3), TextRule::name));
}

TEST_CASE("make_plain keeps what is plain, replaces what is not and cuts between characters") {
  CHECK(make_plain("caf\xC3\xA9", TextRule::name, 100) == "caf\xC3\xA9");
  CHECK(make_plain("a\x01z", TextRule::name, 100) == "a\xEF\xBF\xBDz");
  CHECK(make_plain("abcdef", TextRule::name, 6) == "abcdef");
  CHECK(make_plain("abcdefg", TextRule::name, 6) == "abc\xE2\x80\xA6");
  CHECK(make_plain("ab\xE2\x82\xAC\xE2\x82\xAC", TextRule::name, 7) == "ab\xE2\x80\xA6");
  for (std::size_t most = 0; most < 40; ++most) {
    const std::string plain = make_plain("\xff\xE2\x82\xAC one \x02 two \xF0\x9F\x8F\x9D three", TextRule::name, most);
    CHECK(plain.size() <= most);
    CHECK(is_plain(plain, TextRule::name));
  }
}

}  // namespace of_plain_text_test

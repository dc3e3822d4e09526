// Join tokens: there and back; mistyped, cut and made-up ones are told apart from good ones.
#include "transport/identity/join_token.hpp"

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/identity.hpp"

namespace of_join_token_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

JoinToken sample() {
  return JoinToken{"tcp://coordinator.example.org:4400", make_key_pair().value().public_key, make_token_secret(), "island",
                   from_unix_ms(1767225600000)};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a join token comes back equal, also when a terminal wrapped it") {
  JoinToken token = sample();
  for (const char* role : {"island", "operator"}) {
    token.role = role;
    const std::string text = to_text(token).value();
    CHECK(text.starts_with("atoll1-"));
    CHECK(text.size() < 200);
    CHECK(join_token_from_text(text).value() == token);
    CHECK(join_token_from_text("  " + text.substr(0, 80) + "\r\n  " + text.substr(80) + "\n").value() == token);
  }
}

TEST_CASE("every secret is new, long and printable") {
  const std::string secret = make_token_secret();
  CHECK(secret.size() == 32);
  CHECK(secret != make_token_secret());
}

TEST_CASE("a mistyped or cut join token is recognised") {
  const std::string text = to_text(sample()).value();
  for (std::size_t at = 7; at < text.size(); ++at) {
    std::string typo = text;
    typo[at] = typo[at] == 'A' ? 'B' : 'A';
    REQUIRE(join_token_from_text(typo).error().code == Code::invalid_argument);
    CHECK(contains(join_token_from_text(typo).error().why, "damaged"));
    CHECK_FALSE(join_token_from_text(text.substr(0, at)).has_value());
  }
  CHECK(contains(join_token_from_text(text + "A").error().why, "damaged"));
  CHECK(contains(join_token_from_text("sk-123456").error().why, "atoll token create"));
  CHECK(contains(join_token_from_text("").error().why, "atoll1-"));
}

TEST_CASE("random words are no join tokens") {
  Rng rng(5);
  for (int i = 0; i < 20000; ++i) {
    std::string text = "atoll1-";
    for (std::uint64_t left = rng.below(200); left > 0; --left) {
      text += static_cast<char>(rng.below(256));
    }
    REQUIRE(join_token_from_text(text).error().code == Code::invalid_argument);
  }
}

TEST_CASE("a token that cannot be is not written") {
  JoinToken token = sample();
  token.role = "god";
  CHECK(contains(to_text(token).error().why, "role"));
  token = sample();
  token.coordinator_key = "short";
  CHECK(contains(to_text(token).error().why, "key"));
  token = sample();
  token.coordinator_address = "nowhere";
  CHECK(contains(to_text(token).error().why, "nowhere"));
  token = sample();
  token.secret = "";
  CHECK(contains(to_text(token).error().why, "secret"));
}

TEST_CASE("an expired token says since when") {
  const JoinToken token = sample();
  CHECK(check_expiry(token, token.expires - 1ms).ok());
  const Status expired = check_expiry(token, token.expires);
  REQUIRE_FALSE(expired.ok());
  CHECK(expired.error().code == Code::unauthorized);
  CHECK(contains(expired.error().why, "2026-01-01T00:00:00.000Z"));
}

}  // namespace of_join_token_test

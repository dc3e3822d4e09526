// Admission: one-time expiring tokens, names, revocation; and the lock on the state directory.
#include "coordinator/ledger/admission.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/state_lock.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/identity/identity.hpp"

namespace of_admission_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'767'225'600'000);

std::string new_key() { return make_key_pair().value().public_key; }

Token token(std::string id, Role role = Role::island, std::string name = "") {
  return Token{std::move(id), role, std::move(name), kStart, kStart + 1h, "", {}, false};
}

Enrol ask(std::string secret, std::string name) { return Enrol{kProtocolVersion, std::move(secret), std::move(name)}; }

struct Fixture {
  atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  Admission admission = Admission::load(ledger.database()).value();
};

}  // namespace

TEST_CASE("a token enrols one key once, and repeating the request changes nothing") {
  Fixture f;
  const std::string key = new_key();
  REQUIRE(f.admission.create_token(token("t-1"), "secret-1").ok());
  CHECK(f.admission.find(key) == nullptr);

  const auto enrolled = f.admission.enrol(key, ask("secret-1", "cloud-a"), kStart);
  REQUIRE(enrolled.has_value());
  CHECK(enrolled->role == Role::island);
  CHECK(enrolled->name == "cloud-a");
  CHECK(enrolled->island == island_of(key));
  CHECK(f.admission.enrol(key, ask("secret-1", "cloud-a"), kStart + 2h).value() == *enrolled);

  const auto reused = f.admission.enrol(new_key(), ask("secret-1", "cloud-b"), kStart);
  REQUIRE_FALSE(reused.has_value());
  CHECK(reused.error().code == Code::unauthorized);
  CHECK(reused.error().why.find("t-1 was used at 2026") != std::string::npos);

  // All of it is on disk.
  const Admission again = Admission::load(f.ledger.database()).value();
  REQUIRE(again.find(key) != nullptr);
  CHECK(*again.find(key) == *enrolled);
}

TEST_CASE("expired, revoked and forged tokens are refused, each with its reason") {
  Fixture f;
  REQUIRE(f.admission.create_token(token("t-aa01"), "one").ok());
  REQUIRE(f.admission.create_token(token("t-aa02"), "two").ok());
  const auto expired = f.admission.enrol(new_key(), ask("one", "x"), kStart + 1h);
  REQUIRE_FALSE(expired.has_value());
  CHECK(expired.error().code == Code::unauthorized);
  CHECK(expired.error().why.find("expired") != std::string::npos);

  CHECK(f.admission.revoke_token("t-aa").error().code == Code::conflict);
  CHECK(f.admission.revoke_token("t-b").error().code == Code::not_found);
  CHECK(f.admission.revoke_token("").error().code == Code::not_found);
  REQUIRE(f.admission.revoke_token("t-aa02").has_value());
  const auto revoked = f.admission.enrol(new_key(), ask("two", "x"), kStart);
  REQUIRE_FALSE(revoked.has_value());
  CHECK(revoked.error().why.find("revoked") != std::string::npos);

  const auto forged = f.admission.enrol(new_key(), ask("on", "x"), kStart);
  REQUIRE_FALSE(forged.has_value());
  CHECK(forged.error().code == Code::unauthorized);
  Enrol old = ask("one", "x");
  old.protocol = 99;
  const auto other = f.admission.enrol(new_key(), old, kStart);
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().why.find("99") != std::string::npos);
}

TEST_CASE("names are unique within a role, checked, and a free one is proposed") {
  Fixture f;
  for (const char* id : {"t-1", "t-2", "t-3"}) {
    REQUIRE(f.admission.create_token(token(id), id).ok());
  }
  REQUIRE(f.admission.create_token(token("t-4", Role::operator_, "ops"), "t-4").ok());
  CHECK(f.admission.create_token(token("t-4"), "again").error().code == Code::conflict);
  REQUIRE(f.admission.enrol(new_key(), ask("t-1", "cloud"), kStart).has_value());
  const auto taken = f.admission.enrol(new_key(), ask("t-2", "cloud"), kStart);
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().code == Code::conflict);
  CHECK(taken.error().why.find("--name cloud-2") != std::string::npos);
  REQUIRE(f.admission.enrol(new_key(), ask("t-2", "cloud-2"), kStart).has_value());
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("-x"), std::string(65, 'a'), std::string("a\nb"), std::string("a\0b", 3)}) {
    const auto answer = f.admission.enrol(new_key(), ask("t-3", bad), kStart);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().code == Code::invalid_argument);
  }
  // A token that names the joiner wins over what it asks for.
  CHECK(f.admission.enrol(new_key(), ask("t-4", "cloud"), kStart)->name == "ops");
}

TEST_CASE("a revoked key is revoked on disk too, and a new token admits it again") {
  Fixture f;
  const std::string key = new_key();
  REQUIRE(f.admission.create_token(token("t-1"), "one").ok());
  REQUIRE(f.admission.create_token(token("t-2"), "two").ok());
  REQUIRE(f.admission.enrol(key, ask("one", "a"), kStart).has_value());
  REQUIRE(f.admission.revoke_key(key).ok());
  CHECK(f.admission.find(key)->revoked);
  CHECK(Admission::load(f.ledger.database())->find(key)->revoked);
  CHECK(f.admission.enrol(key, ask("one", "a"), kStart).error().code == Code::unauthorized);
  REQUIRE(f.admission.enrol(key, ask("two", "a"), kStart).has_value());
  CHECK_FALSE(Admission::load(f.ledger.database())->find(key)->revoked);
}

TEST_CASE("a second process on a state directory is told who has it") {
  const atl_test::TemporaryFolder directory;
  const auto lock = StateLock::take(directory.path());
  REQUIRE(lock.has_value());
  const pid_t owner = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = StateLock::take(directory.path());
    const bool refused = !second && second.error().code == Code::conflict &&
                         second.error().why.find("pid " + std::to_string(owner) + ")") != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace of_admission_test

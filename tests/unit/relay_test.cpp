// What a relay decides without a socket: passes, tickets, SOCKS, who is joined with whom and who is not served.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"
#include "transport/relay/relay_book.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/relay/relay_ticket.hpp"
#include "transport/relay/socks_door.hpp"

namespace of_relay_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const IslandId kReef("i-00112233445566aa");
const IslandId kShoal("i-ffeeddccbbaa9988");
const TimePoint kStart = from_unix_ms(1'767'225'600'000);
const Bytes kSecret = relay_secret("a secret key");

Bytes bytes_of(std::initializer_list<int> values, const std::string& text = "") {
  Bytes bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  const ByteView more = as_bytes(text);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

Bytes request_of(const std::string& name) {
  Bytes bytes = bytes_of({5, 1, 0, 3, static_cast<int>(name.size())}, name);
  bytes.push_back(std::byte{0});
  bytes.push_back(std::byte{1});
  return bytes;
}

}  // namespace

TEST_CASE("a pass lets its island ask for any peer until it is over, and with the relay's own secret only") {
  const std::string request = request_with(make_pass(kSecret, kReef, kStart), kShoal);
  CHECK(request.size() <= kMaxRequestBytes);
  CHECK(read_request(kSecret, request, kStart).value() == MeetingRequest{kReef, kShoal});
  CHECK(read_request(kSecret, request, kStart + kPassLifetime - 1s));
  CHECK(read_request(kSecret, request, kStart + kPassLifetime).error().code == Code::unauthorized);
  CHECK(read_request(relay_secret("another"), request, kStart).error().code == Code::unauthorized);
}

TEST_CASE("a pass of another island, or with a later end, is refused, and so is whatever is no request") {
  const std::string pass = make_pass(kSecret, kReef, kStart);
  const std::string request = request_with(pass, kShoal);
  std::string foreign = request;
  foreign.replace(0, kReef.text.size(), "i-1111111111111111");
  CHECK(read_request(kSecret, foreign, kStart).error().code == Code::unauthorized);
  std::string later = request;
  later[kReef.text.size() + 1] = '9';
  CHECK(read_request(kSecret, later, kStart + 2h).error().code == Code::unauthorized);
  CHECK(read_request(kSecret, request_with(pass, kReef), kStart).error().code == Code::corrupt);
  for (const std::string& none : {std::string(), std::string("a"), std::string("..."), std::string("a.b.c.d.e"), pass, pass + ".",
                                  pass + ".A", pass + ".a b", std::string(300, 'a'), request + ".x", std::string("relay.example.org")}) {
    INFO(none);
    CHECK(read_request(kSecret, none, kStart).error().code == Code::corrupt);
  }
}

TEST_CASE("a ticket is read as it was written, by its owner alone, and what is none says what one is") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "relay.ticket";
  const RelayTicket ticket{"frankfurt", "tcp://relay.example.org:4402", kSecret};
  REQUIRE(write_ticket(file, ticket));
  REQUIRE(write_ticket(file, ticket));
  CHECK(read_ticket(file).value() == ticket);
  std::filesystem::permissions(file, std::filesystem::perms(0644));
  CHECK(read_ticket(file).error().code == Code::unauthorized);
  CHECK(read_ticket(folder.path() / "none").error().code == Code::not_found);
  const std::string text = to_text(ticket);
  for (const std::string& none :
       {std::string(), text + text, text.substr(0, text.size() - 3), "x" + text, std::string("atoll-relay a b c"),
        std::string("atoll-relay ../a tcp://h:1 ") + to_hex(kSecret), std::string("atoll-relay a tcp://*:1 ") + to_hex(kSecret)}) {
    INFO(none);
    CHECK(ticket_from_text(none).error().why.find("atoll-relay NAME tcp://HOST:PORT SECRET") != std::string::npos);
  }
}

TEST_CASE("SOCKS is heard byte by byte as in one piece, and nothing but a name is asked for") {
  const std::string name = request_with(make_pass(kSecret, kReef, kStart), kShoal);
  SocksDoor whole;
  CHECK(whole.take(bytes_of({5, 1, 0})) == SocksDoor::Step::greet);
  CHECK(whole.take(request_of(name)) == SocksDoor::Step::asks);
  CHECK(whole.name() == name);
  CHECK(whole.take(bytes_of({1})) == SocksDoor::Step::wrong);

  SocksDoor slow;
  const Bytes greeting = bytes_of({5, 2, 2, 0});
  for (std::size_t i = 0; i < greeting.size(); ++i) {
    CHECK(slow.take(ByteView(greeting).subspan(i, 1)) == (i + 1 < greeting.size() ? SocksDoor::Step::more : SocksDoor::Step::greet));
  }
  const Bytes request = request_of(name);
  for (std::size_t i = 0; i < request.size(); ++i) {
    CHECK(slow.take(ByteView(request).subspan(i, 1)) == (i + 1 < request.size() ? SocksDoor::Step::more : SocksDoor::Step::asks));
  }
  CHECK(slow.name() == name);
  CHECK(slow.command() == SocksCommand::connect);

  SocksDoor binds;
  CHECK(binds.take(bytes_of({5, 1, 0})) == SocksDoor::Step::greet);
  CHECK(binds.take(socks_request(name, SocksCommand::bind)) == SocksDoor::Step::asks);
  CHECK(binds.name() == name);
  CHECK(binds.command() == SocksCommand::bind);

  const std::vector<std::vector<Bytes>> wrong = {
      {bytes_of({4})},                                                    // an older SOCKS
      {bytes_of({}, "GET / HTTP/1.1\r\n")},                               // a browser
      {bytes_of({5, 1, 2})},                                              // with a password only
      {bytes_of({5, 1, 0, 5})},                                           // it does not wait for an answer
      {bytes_of({5, 1, 0}), bytes_of({5, 3})},                            // UDP ASSOCIATE
      {bytes_of({5, 1, 0}), bytes_of({5, 1, 0, 1, 127, 0, 0, 1, 0, 1})},  // an address
      {bytes_of({5, 1, 0}), bytes_of({5, 1, 0, 3, 0, 0, 1})},             // an empty name
  };
  for (const std::vector<Bytes>& says : wrong) {
    SocksDoor door;
    SocksDoor::Step last = SocksDoor::Step::more;
    for (const Bytes& bytes : says) {
      last = door.take(bytes);
    }
    CHECK(last == SocksDoor::Step::wrong);
  }
}

TEST_CASE("two islands are joined once each has asked for the other, those that wait longest first") {
  RelayBook book{RelayLimits{}};
  CHECK_FALSE(book.admit(1, {kReef, kShoal}, kStart).partner);
  CHECK_FALSE(book.admit(2, {kReef, kShoal}, kStart).partner);
  CHECK_FALSE(book.admit(3, {IslandId("i-3"), kReef}, kStart).partner);  // whom nobody asked for
  CHECK(book.waiting() == 3);
  const RelayBook::Admission joined = book.admit(4, {kShoal, kReef}, kStart);
  CHECK(joined.partner == RelayBook::Connection(1));
  CHECK(joined.new_island);
  CHECK(book.admit(5, {kShoal, kReef}, kStart).partner == RelayBook::Connection(2));
  CHECK_FALSE(book.admit(6, {kShoal, kReef}, kStart).partner);
  CHECK(book.connections() == 6);
  book.gone(6, kStart);
  CHECK_FALSE(book.admit(7, {kReef, kShoal}, kStart).partner);  // who is gone waits no more
  CHECK(book.islands() == 3);
}

TEST_CASE("a relay has limits for an island, for all, and for how often one comes") {
  RelayLimits limits;
  limits.connections = 5;
  limits.connections_of_an_island = 3;
  limits.opened_in_a_window = 6;
  RelayBook book(limits);
  for (RelayBook::Connection i = 1; i <= 3; ++i) {
    CHECK(book.admit(i, {kReef, kShoal}, kStart).refused.empty());
  }
  CHECK(book.admit(4, {kReef, kShoal}, kStart).refused.find("may have no more") != std::string::npos);
  CHECK(book.admit(5, {kShoal, kReef}, kStart).partner == RelayBook::Connection(1));  // it costs others nothing
  CHECK(book.admit(6, {IslandId("i-6"), kReef}, kStart).refused.empty());
  CHECK(book.admit(7, {IslandId("i-7"), kReef}, kStart).refused.find("all the connections") != std::string::npos);
  for (RelayBook::Connection i = 10; i < 13; ++i) {
    book.gone(i - 9, kStart);
    const std::string refused = book.admit(i, {kReef, kShoal}, kStart).refused;
    CHECK(refused.empty());
  }
  book.gone(10, kStart);
  CHECK(book.admit(20, {kReef, kShoal}, kStart).refused.find("opened more than 6") != std::string::npos);
  CHECK(book.admit(21, {kReef, kShoal}, kStart + kOpeningWindow).refused.empty());
}

TEST_CASE("who waits in vain is let go and may ask again, and an island without a connection is gone after a while") {
  RelayLimits limits;
  RelayBook book(limits);
  book.admit(1, {kReef, kShoal}, kStart);
  CHECK(book.sweep(kStart + limits.patience - 1s).waited.empty());
  const RelayBook::Sweep swept = book.sweep(kStart + limits.patience);
  CHECK(swept.waited == std::vector<RelayBook::Connection>{1});
  CHECK(swept.left.empty());
  CHECK(book.connections() == 0);
  CHECK(book.sweep(kStart + limits.patience + kIslandGone).left == std::vector<IslandId>{kReef});
  CHECK(book.admit(2, {kReef, kShoal}, kStart + 10min).new_island);
}

}  // namespace of_relay_test

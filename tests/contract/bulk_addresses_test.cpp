// A bulk link whose peers are reached at several addresses, of which some are dead, a stranger's or another island's.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "tests/contract/bulk_link_fields.hpp"
#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"

namespace of_bulk_addresses_test {

using namespace atl_test;

namespace {

const RunId kRun("r");
const BlobId kBlob{kRun, Epoch(), Round(3), Attempt(), BlobKind::checkpoint_file, 0};

// Takes connections and answers with something else than an island would, as a web server does. Or never answers.
class Stranger {
 public:
  explicit Stranger(bool answers) : answers_(answers) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof name;
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
    REQUIRE(::listen(listener_.get(), 64) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  // Looks at who came. Those that came before are gone then.
  void attend() {
    while (true) {
      FileDescriptor one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!one.is_open()) {
        return;
      }
      ++dialled;
      if (answers_) {
        static constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
        (void)::send(one.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
      } else {
        held_.push_back(std::move(one));
      }
    }
  }
  int dialled = 0;

 private:
  bool answers_;
  FileDescriptor listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  std::vector<FileDescriptor> held_;
  std::string address_;
};

void check_serves(Field& field, FieldIsland& reader, FieldIsland& owner) {
  owner.store->set_readers(kRun, {reader.id});
  const auto bytes = std::make_shared<Bytes>(1000);
  owner.store->put(kBlob, Payload{*bytes, bytes});
  REQUIRE(field.until([&] { return field.connected(reader, owner); }));
  const std::uint64_t before = reader.basket.bytes;
  REQUIRE(reader.link->want({owner.id, Want{kBlob, 0, 10}}));
  REQUIRE(field.until([&] { return reader.basket.bytes == before + 10; }));
}

// The reader listens nowhere: what connects the two is what it dials.
FieldIsland& hidden_in(SealedField& field) {
  FieldIsland& island = field.add();
  island.link.reset();
  ZmqBulkSettings settings;
  settings.island = island.id;
  settings.public_key = island.keys.public_key;
  settings.secret_key = island.keys.secret_key;
  settings.bind = "";
  island.link = ZmqBulkLink::open(settings, island.store).value();
  island.member.bulk_address = "";
  return island;
}

// Nobody listens there.
constexpr const char* kClosed = "tcp://127.0.0.1:1";

}  // namespace

TEST_CASE("of several addresses those that are dead or a stranger's cost a moment, and the one that answers is named") {
  SealedField field;
  FieldIsland& reader = hidden_in(field);
  FieldIsland& owner = field.add();
  FieldIsland& other = field.add();
  Stranger web(true);
  Stranger silent(false);
  const std::string own = owner.member.bulk_address;
  // Another island of the same place knows neither of the two, and does not answer.
  REQUIRE(other.link->set_peers({}));
  owner.member.bulk_address =
      std::string(kClosed) + " " + web.address() + " " + silent.address() + " " + other.member.bulk_address + " " + own;
  const std::vector<Member> both = {reader.member, owner.member};
  REQUIRE(reader.link->set_peers(both));
  REQUIRE(owner.link->set_peers(both));
  const TimePoint begun = now();
  REQUIRE(field.until([&] {
    web.attend();
    silent.attend();
    return reader.basket.ways.contains(owner.id);
  }));
  CHECK(now() - begun < 5s);
  CHECK(reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, own});
  check_serves(field, reader, owner);
  CHECK(field.until([&] {
    web.attend();
    return web.dialled > 0;
  }));
  CHECK(web.dialled <= 2);
  CHECK_FALSE(field.connected(reader, other));
}

TEST_CASE("of several addresses at which a peer answers the first is taken, and one connection after the other goes there") {
  SealedField field;
  FieldIsland& reader = hidden_in(field);
  FieldIsland& owner = field.add();
  const std::string first = owner.member.bulk_address;
  const std::string port = first.substr(first.rfind(':'));
  owner.member.bulk_address = first + " tcp://localhost" + port;
  field.introduce();
  check_serves(field, reader, owner);
  CHECK(reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, first});
  // The order is what its list says.
  owner.member.bulk_address = "tcp://localhost" + port + " " + kClosed;
  field.introduce();
  REQUIRE(field.until([&] { return reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, "tcp://localhost" + port}; }));
  check_serves(field, reader, owner);
  // What stays in the list stays in use, without a break.
  const int connections = reader.basket.connections[owner.id];
  owner.member.bulk_address = "tcp://localhost" + port + " tcp://127.0.0.1:2";
  field.introduce();
  check_serves(field, reader, owner);
  CHECK(reader.basket.connections[owner.id] == connections);
}

// Its hellos come before the owner knows it: none of its addresses may lose by the moment in which one of them came.
TEST_CASE("the best of several addresses is taken whenever an owner hears of who dials it") {
  for (const Duration later : {0ms, 5ms, 10ms, 15ms, 20ms, 30ms, 40ms, 60ms}) {
    SealedField field;
    FieldIsland& reader = hidden_in(field);
    FieldIsland& owner = field.add();
    const std::string first = owner.member.bulk_address;
    owner.member.bulk_address = first + " tcp://localhost" + first.substr(first.rfind(':'));
    const std::vector<Member> both = {reader.member, owner.member};
    REQUIRE(reader.link->set_peers(both));
    const TimePoint told = now() + later;
    REQUIRE(field.until([&] { return now() >= told; }));
    REQUIRE(owner.link->set_peers(both));
    REQUIRE(field.until([&] { return reader.basket.ways.contains(owner.id); }));
    CHECK(reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, first});
  }
}

TEST_CASE("a better address that answers only later is found while another one is in use") {
  SealedField field;
  FieldIsland& reader = hidden_in(field);
  FieldIsland& owner = field.add();
  FieldIsland& away = field.add();
  const std::string first = away.member.bulk_address;
  const std::string second = owner.member.bulk_address;
  away.link.reset();
  owner.member.bulk_address = first + " " + second;
  const std::vector<Member> both = {reader.member, owner.member};
  REQUIRE(reader.link->set_peers(both));
  REQUIRE(owner.link->set_peers(both));
  check_serves(field, reader, owner);
  CHECK(reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, second});
  // The same island listens there as well, and goes on where it did.
  away.id = owner.id;
  away.keys = owner.keys;
  away.store = owner.store;
  field.open(away);
  REQUIRE(away.link->set_peers(both));
  REQUIRE(field.until([&] { return reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, first}; }, 30s));
  check_serves(field, reader, owner);
}

TEST_CASE("where an address stops to answer the others are tried again") {
  SealedField field;
  FieldIsland& reader = hidden_in(field);
  FieldIsland& owner = field.add();
  const std::string first = owner.member.bulk_address;
  FieldIsland& elsewhere = field.add();
  const std::string second = elsewhere.member.bulk_address;
  elsewhere.link.reset();
  owner.member.bulk_address = first + " " + second;
  const std::vector<Member> both = {reader.member, owner.member};
  REQUIRE(reader.link->set_peers(both));
  REQUIRE(owner.link->set_peers(both));
  check_serves(field, reader, owner);
  CHECK(reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, first});
  owner.link.reset();
  owner.member.bulk_address = second;
  field.open(owner);
  REQUIRE(owner.link->set_peers(both));
  REQUIRE(field.until([&] { return reader.basket.ways.at(owner.id) == Way{"", false, NotPunched::not_tried, second}; }));
  check_serves(field, reader, owner);
}

TEST_CASE("nothing goes over an interface that an island's owner bars, whoever dials") {
  SealedField field;
  field.settings.interfaces.never_over = {"lo"};
  FieldIsland& strict = field.add();
  field.settings.interfaces = {};
  FieldIsland& open = field.add();
  FieldIsland& other = field.add();
  field.introduce();
  check_serves(field, open, other);
  const TimePoint end = now() + 1s;
  REQUIRE_FALSE(field.until([&] { return field.connected(open, strict) || field.connected(strict, open); }, end - now()));
}

}  // namespace of_bulk_addresses_test

// A relay on real sockets: islands' links that meet there, strangers, and what does not end by itself.
#include "transport/relay/relay_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/bulk_link_fields.hpp"
#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/log.hpp"
#include "transport/relay/hole_punch.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace of_relay_server_test {

namespace {

using namespace atl_test;

const Bytes kSecret = relay_secret("a secret key");
const RunId kRun("r");
const BlobId kBlob{kRun, Epoch(), Round(3), Attempt(), BlobKind::checkpoint_file, 0};

// One that runs on a thread of its own.
class Relay {
 public:
  explicit Relay(RelaySettings settings = {}) : stop_(::eventfd(0, EFD_CLOEXEC)) {
    settings.bind = settings.bind.empty() ? "tcp://127.0.0.1:0" : settings.bind;
    settings.secret = kSecret;
    const TimePoint end = now() + 20s;  // a port that was closed a moment ago
    auto opened = RelayServer::open(settings);
    while (!opened && opened.error().code == Code::conflict && now() < end) {
      opened = RelayServer::open(settings);
    }
    relay_ = std::move(opened).value();
    address_ = relay_->bound_address();
    thread_ = std::thread([this] { CHECK(relay_->run(stop_.get())); });
  }
  ~Relay() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] RelayFigures figures() const { return relay_->figures(); }

 private:
  FileDescriptor stop_;
  std::unique_ptr<RelayServer> relay_;
  std::string address_;
  std::thread thread_;
};

// A client of a relay, by hand. Blocking, with a limit.
class Caller {
 public:
  explicit Caller(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(parse_address(address).value().port);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const ::timeval limit{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    REQUIRE(::connect(socket_.get(), reinterpret_cast<const ::sockaddr*>(&to), sizeof to) == 0);
  }
  [[nodiscard]] int fd() const { return socket_.get(); }
  void say(const std::string& text) const {
    CHECK(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  // What comes, at most so many bytes; "" at the end.
  [[nodiscard]] std::string hear(std::size_t most = 1000) const {
    std::string text(most, '\0');
    const ssize_t got = ::recv(socket_.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  void ask(const IslandId& island, const IslandId& peer, TimePoint when = now()) const {
    say(std::string("\5\1\0", 3));
    CHECK(hear(2) == std::string("\5\0", 2));
    const std::string name = request_with(make_pass(kSecret, island, when), peer);
    say(std::string("\5\1\0\3", 4) + static_cast<char>(name.size()) + name + std::string("\0\1", 2));
  }
  // SOCKS's code; −1: it was closed without one.
  [[nodiscard]] int answer() const {
    std::string text;
    for (std::string more = hear(10); !more.empty() && text.size() < 10;
         more = text.size() + more.size() < 10 ? hear(10 - text.size()) : "") {
      text += more;
    }
    return text.size() == 10 ? text[1] : -1;
  }

 private:
  FileDescriptor socket_;
};

const IslandId kReef("i-1");
const IslandId kShoal("i-2");
const Way kOverFrankfurt{"frankfurt", false, NotPunched::switched_off};

// An island that listens nowhere.
FieldIsland& hidden_in(SealedField& field, bool punches = false) {
  FieldIsland& island = field.add();
  ZmqBulkSettings settings = field.settings;
  settings.island = island.id;
  settings.public_key = island.keys.public_key;
  settings.secret_key = island.keys.secret_key;
  settings.bind = "";
  settings.hole_punching = punches;
  settings.dead_after = 3s;
  settings.ping_every = 500ms;
  island.link.reset();
  island.link = ZmqBulkLink::open(settings, island.store).value();
  island.member.bulk_address = "";
  return island;
}

void offer(FieldIsland& island, const std::vector<std::pair<std::string, std::string>>& relays) {
  std::vector<RelayOffer> offers;
  for (const auto& [name, address] : relays) {
    offers.push_back({name, address, make_pass(kSecret, island.id, now())});
  }
  island.link->set_relays(offers);
}

// A wants ten bytes of B until they come.
bool serves(Field& field, FieldIsland& reader, FieldIsland& owner, Duration within = 20s) {
  owner.store->set_readers(kRun, {reader.id});
  const auto bytes = std::make_shared<Bytes>(100'000);
  owner.store->put(kBlob, Payload{*bytes, bytes});
  const std::uint64_t before = reader.basket.bytes;
  TimePoint again{};
  return field.until(
      [&] {
        if (now() >= again) {
          (void)reader.link->want({owner.id, Want{kBlob, 0, 50'000}});
          again = now() + 500ms;
        }
        return reader.basket.bytes > before;
      },
      within);
}

// Joins two connections as a relay does, and spoils the bytes that pass.
class SpoilingRelay {
 public:
  SpoilingRelay() : inner_(), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::sockaddr_in at{};
    at.sin_family = AF_INET;
    ::inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    socklen_t length = sizeof at;
    REQUIRE((::bind(listener_.get(), reinterpret_cast<::sockaddr*>(&at), sizeof at) == 0 && ::listen(listener_.get(), 64) == 0));
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<::sockaddr*>(&at), &length) == 0);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { accept_all(); });
  }
  ~SpoilingRelay() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  SpoilingRelay(const SpoilingRelay&) = delete;
  SpoilingRelay& operator=(const SpoilingRelay&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  void accept_all() {
    std::vector<std::thread> pumps;
    std::vector<std::unique_ptr<FileDescriptor>> sockets;
    std::vector<std::unique_ptr<Caller>> callers;
    while (true) {
      const int accepted = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0) {
        break;
      }
      sockets.push_back(std::make_unique<FileDescriptor>(accepted));
      callers.push_back(std::make_unique<Caller>(inner_.address()));
      pumps.emplace_back(pump, accepted, callers.back()->fd(), UINT64_MAX);
      pumps.emplace_back(pump, callers.back()->fd(), accepted, 20'000);
    }
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      ::shutdown(sockets[i]->get(), SHUT_RDWR);
      ::shutdown(callers[i]->fd(), SHUT_RDWR);
    }
    for (std::thread& one : pumps) {
      one.join();
    }
  }
  static void pump(int from, int to, std::uint64_t good) {
    std::array<char, 4096> buffer{};
    std::uint64_t moved = 0;
    for (ssize_t got = 1; (got = ::recv(from, buffer.data(), buffer.size(), 0)) != 0;) {
      if (got < 0 && errno == EAGAIN) {
        continue;
      }
      if (got < 0) {
        break;
      }
      moved += static_cast<std::uint64_t>(got);
      if (moved > good) {
        buffer[static_cast<std::size_t>(got) - 1] ^= 1;
      }
      if (::send(to, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) < 0) {
        break;
      }
    }
    ::shutdown(to, SHUT_RDWR);
    ::shutdown(from, SHUT_RDWR);
  }

  Relay inner_;
  FileDescriptor listener_;
  std::string address_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("two islands that listen nowhere exchange over a relay, in both directions, also after it ended and came back") {
  SealedField field;
  FieldIsland& a = hidden_in(field);
  FieldIsland& b = hidden_in(field);
  field.introduce();
  std::optional<Relay> relay(std::in_place);
  const std::string address = relay->address();
  offer(a, {{"frankfurt", address}});
  offer(b, {{"frankfurt", address}});
  REQUIRE(serves(field, a, b));
  REQUIRE(serves(field, b, a));
  CHECK(a.basket.ways.at(b.id) == kOverFrankfurt);
  CHECK(b.basket.ways.at(a.id) == kOverFrankfurt);
  REQUIRE(field.until([&] { return relay->figures().pairs >= 1 && relay->figures().bytes > 100'000; }));
  relay.reset();
  REQUIRE(field.until([&] { return !field.connected(a, b) && !field.connected(b, a); }));
  CHECK_FALSE(a.basket.ways.at(b.id));
  RelaySettings again;
  again.bind = address;
  relay.emplace(again);
  CHECK(serves(field, a, b));
  CHECK(serves(field, b, a));
}

TEST_CASE("a direct connection goes before a relay, and ends what went over it") {
  SealedField field;
  FieldIsland& a = hidden_in(field);
  FieldIsland& b = field.add();
  const std::string reachable = std::exchange(b.member.bulk_address, "");
  field.introduce();
  const Relay relay;
  offer(a, {{"frankfurt", relay.address()}});
  offer(b, {{"frankfurt", relay.address()}});
  REQUIRE(serves(field, a, b));
  CHECK(a.basket.ways.at(b.id) == kOverFrankfurt);
  b.member.bulk_address = reachable;
  field.introduce();
  const Way direct{"", false, NotPunched::not_tried, reachable};  // of the two one dials
  REQUIRE(field.until([&] { return a.basket.ways.at(b.id) == direct && b.basket.ways.at(a.id) == Way{}; }));
  CHECK(serves(field, a, b));
  CHECK(field.until([&] { return relay.figures().pairs == 0 && relay.figures().waiting == 0; }));
}

TEST_CASE("two islands that listen nowhere punch a hole with a relay's help, and nothing passes through the relay") {
  SealedField field;
  FieldIsland& a = hidden_in(field, true);
  FieldIsland& b = hidden_in(field, true);
  field.introduce();
  RelaySettings settings;
  settings.carries = GENERATE(true, false);
  const Relay relay(settings);
  offer(a, {{"frankfurt", relay.address()}});
  offer(b, {{"frankfurt", relay.address()}});
  REQUIRE(serves(field, a, b));
  REQUIRE(serves(field, b, a));
  CHECK(a.basket.ways.at(b.id) == Way{"", true, NotPunched::not_tried});
  CHECK(b.basket.ways.at(a.id) == Way{"", true, NotPunched::not_tried});
  REQUIRE(field.until([&] { return relay.figures().introduced > 0; }));
  CHECK(relay.figures().joined == 0);
  CHECK(relay.figures().bytes == 0);
}

TEST_CASE("an island whose owner wants no holes meets its peer at the relay, which says so") {
  SealedField field;
  FieldIsland& a = hidden_in(field, true);
  FieldIsland& b = hidden_in(field, false);
  field.introduce();
  const Relay relay;
  offer(a, {{"frankfurt", relay.address()}});
  offer(b, {{"frankfurt", relay.address()}});
  REQUIRE(serves(field, a, b));
  CHECK(a.basket.ways.at(b.id) == Way{"frankfurt"});
  CHECK(b.basket.ways.at(a.id) == kOverFrankfurt);
}

// An island's attempt, and a peer by hand that asks for the same.
struct Attempt {
  explicit Attempt(const std::string& address)
      : poll(::epoll_create1(EPOLL_CLOEXEC)),
        punch(HolePunch::begin({address, request_with(make_pass(kSecret, kReef, now()), kShoal), kReef, kShoal}, poll.get(), 1).value()),
        peer(std::in_place, address) {
    peer->say(std::string("\5\1\0", 3));
    CHECK(peer->hear(2) == std::string("\5\0", 2));
    const Bytes request = socks_request(request_with(make_pass(kSecret, kShoal, now()), kReef), SocksCommand::bind);
    peer->say(std::string(as_text(request)));
    CHECK(peer->hear(kHoleSeenBytes).size() == kHoleSeenBytes);
  }
  HolePunch::State state_within(Duration most) {
    const TimePoint end = now() + most;
    HolePunch::State state = punch->advance(now());
    while (state != HolePunch::State::open && state != HolePunch::State::failed && now() < end) {
      ::epoll_event event{};
      ::epoll_wait(poll.get(), &event, 1, 20);
      state = punch->advance(now());
    }
    return state;
  }
  FileDescriptor poll;
  std::optional<HolePunch> punch;
  std::optional<Caller> peer;
};

TEST_CASE("a peer whose router gives each connection another port is not dialled") {
  const Relay relay;
  Attempt attempt(relay.address());
  attempt.peer->say("\2");
  REQUIRE(attempt.state_within(20s) == HolePunch::State::failed);
  CHECK(attempt.punch->failure() == NotPunched::peers_router);
  CHECK(attempt.peer->hear(kHoleBeginBytes).at(1) == static_cast<char>(SocksAnswer::refused));
  CHECK(relay.figures().introduced == 0);
}

TEST_CASE("who answers at the peer's address without the relay's token gets nothing, and a word that is none ends the meeting") {
  const Relay relay;
  Attempt attempt(relay.address());
  attempt.peer->say("\1");
  std::thread advance([&] { CHECK(attempt.state_within(20s) == HolePunch::State::failed); });
  const std::string begin = attempt.peer->hear(kHoleBeginBytes);
  CHECK(read_hole_begin(as_bytes(begin), true));
  CHECK_FALSE(read_hole_begin(as_bytes(begin), false));  // an address of this machine, from a relay elsewhere
  ::sockaddr_in own{};
  ::socklen_t length = sizeof own;
  REQUIRE(::getsockname(attempt.peer->fd(), reinterpret_cast<::sockaddr*>(&own), &length) == 0);
  attempt.peer.reset();
  const FileDescriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const ::timeval limit{20, 0};
  ::setsockopt(stranger.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(stranger.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  REQUIRE(::bind(stranger.get(), reinterpret_cast<::sockaddr*>(&own), length) == 0);
  REQUIRE(::listen(stranger.get(), 1) == 0);
  const FileDescriptor dialled(::accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC));  // again, after it was refused
  REQUIRE(dialled.is_open());
  ::setsockopt(dialled.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::array<std::byte, 64> said{};
  CHECK(::recv(dialled.get(), said.data(), said.size(), 0) == 32);
  CHECK(::send(dialled.get(), said.data(), 32, MSG_NOSIGNAL) == 32);  // its own proof back
  advance.join();
  CHECK(attempt.punch->failure() == NotPunched::nothing_came);
  attempt.punch.reset();
  CHECK(::recv(dialled.get(), said.data(), said.size(), 0) <= 0);

  Attempt rude(relay.address());
  rude.peer->say("\3");
  CHECK(rude.peer->hear().empty());
}

TEST_CASE("a relay that only helps to punch holes carries nothing") {
  RelaySettings settings;
  settings.carries = false;
  const Relay relay(settings);
  const Caller a(relay.address());
  a.ask(kReef, kShoal);
  CHECK(a.answer() == static_cast<int>(SocksAnswer::refused));
}

TEST_CASE("a relay that is not there costs a moment: the next one is taken") {
  SealedField field;
  FieldIsland& a = hidden_in(field);
  FieldIsland& b = hidden_in(field);
  field.introduce();
  const Relay relay;
  offer(a, {{"gone", "tcp://127.0.0.1:1"}, {"frankfurt", relay.address()}});
  offer(b, {{"gone", "tcp://127.0.0.1:1"}, {"frankfurt", relay.address()}});
  REQUIRE(serves(field, a, b));
  CHECK(a.basket.ways.at(b.id) == kOverFrankfurt);
}

TEST_CASE("relays that come and go do not touch what goes over one that stays") {
  SealedField field;
  FieldIsland& a = hidden_in(field);
  FieldIsland& b = hidden_in(field);
  field.introduce();
  const Relay relay;
  std::optional<Relay> other(std::in_place);
  using Offers = std::vector<std::pair<std::string, std::string>>;
  const auto offer_both = [&](const Offers& offers) {
    offer(a, offers);
    offer(b, offers);
  };
  const Offers alone = {{"frankfurt", relay.address()}};
  offer_both(alone);
  REQUIRE(serves(field, a, b));
  REQUIRE(field.until([&] { return relay.figures().pairs >= 1 && relay.figures().waiting >= 1; }));
  const std::uint64_t joined = relay.figures().joined;
  // One in front of it that does not answer, then one behind it, then none but it again.
  for (const Offers& offers : {Offers{{"gone", "tcp://127.0.0.1:1"}, {"frankfurt", relay.address()}},
                               Offers{{"frankfurt", relay.address()}, {"of reef", other->address()}}, alone}) {
    offer_both(offers);
    REQUIRE(serves(field, a, b));
    REQUIRE(serves(field, b, a));
    CHECK(a.basket.ways.at(b.id) == kOverFrankfurt);
    CHECK(b.basket.ways.at(a.id) == kOverFrankfurt);
  }
  CHECK(relay.figures().joined == joined);
  CHECK(other->figures().joined == 0);

  offer_both({{"of reef", other->address()}});
  CHECK(serves(field, a, b));
  CHECK(a.basket.ways.at(b.id) == Way{"of reef", false, NotPunched::switched_off});
  CHECK(field.until([&] { return relay.figures().pairs == 0 && relay.figures().waiting == 0; }));
}

TEST_CASE("what a hostile relay changes does not open, and it is left alone for another one") {
  set_log_sink([](LogLevel, std::string_view) {});
  SealedField field;
  FieldIsland& a = hidden_in(field);
  FieldIsland& b = hidden_in(field);
  field.introduce();
  const SpoilingRelay hostile;
  const Relay relay;
  offer(a, {{"hostile", hostile.address()}, {"frankfurt", relay.address()}});
  offer(b, {{"hostile", hostile.address()}, {"frankfurt", relay.address()}});
  CHECK(serves(field, a, b, 60s));
  CHECK(serves(field, b, a, 60s));
  CHECK(a.basket.ways.at(b.id) == kOverFrankfurt);
  CHECK((a.link->traffic().at(0).frames_rejected > 0 || b.link->traffic().at(0).frames_rejected > 0));
  set_log_sink({});
}

TEST_CASE("one end of a joined pair says its last, and still hears the other") {
  const Relay relay;
  const Caller a(relay.address());
  const Caller b(relay.address());
  a.ask(kReef, kShoal);
  b.ask(kShoal, kReef);
  REQUIRE(a.answer() == 0);
  REQUIRE(b.answer() == 0);
  a.say("the last");
  ::shutdown(a.fd(), SHUT_WR);
  CHECK(b.hear() == "the last");
  CHECK(b.hear().empty());
  b.say("an answer");
  CHECK(a.hear() == "an answer");
  ::shutdown(b.fd(), SHUT_WR);
  CHECK(a.hear().empty());
}

TEST_CASE("a relay holds a bounded part of what its reader does not take") {
  const Relay relay;
  const Caller a(relay.address());
  const Caller b(relay.address());
  a.ask(kReef, kShoal);
  b.ask(kShoal, kReef);
  REQUIRE(a.answer() == 0);
  REQUIRE(b.answer() == 0);
  const std::string much(1 << 20, 'x');
  std::size_t taken = 0;
  const ::timeval limit{1, 0};
  ::setsockopt(a.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  for (ssize_t sent = 1; sent > 0 && taken < (1UL << 30U);) {
    sent = ::send(a.fd(), much.data(), much.size(), MSG_NOSIGNAL);
    taken += sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  CHECK(taken < (64UL << 20U));  // of it the kernel's socket buffers hold the most
  std::size_t came = 0;
  while (came < taken) {
    const std::size_t got = b.hear(1 << 20).size();
    REQUIRE(got > 0);
    came += got;
  }
  CHECK(came == taken);
}

TEST_CASE("who shows no pass, one that is over, or another's, gets nothing from a relay") {
  set_log_sink([](LogLevel, std::string_view) {});
  RelaySettings settings;
  settings.stranger_patience = 300ms;
  settings.limits.patience = 500ms;
  const Relay relay(settings);
  const Caller silent(relay.address());
  const Caller slow(relay.address());
  slow.say("\5");
  const Caller browser(relay.address());
  browser.say("GET / HTTP/1.1\r\n\r\n");
  CHECK(browser.hear().empty());
  const Caller late(relay.address());
  late.ask(kReef, kShoal, now() - 2h);
  CHECK(late.answer() == 2);
  CHECK(silent.hear().empty());
  CHECK(slow.hear().empty());
  const Caller hasty(relay.address());
  hasty.ask(kReef, kShoal);
  hasty.say("before there is an answer");
  CHECK(hasty.hear().empty());
  const Caller alone(relay.address());
  alone.ask(kReef, kShoal);
  CHECK(alone.answer() == 6);  // the other island did not come
  set_log_sink({});
}

TEST_CASE("a flood of strangers does not keep islands from a relay") {
  set_log_sink([](LogLevel, std::string_view) {});
  RelaySettings settings;
  settings.strangers = 16;
  const Relay relay(settings);
  std::vector<std::unique_ptr<Caller>> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(std::make_unique<Caller>(relay.address()));
  }
  const Caller a(relay.address());
  a.ask(kReef, kShoal);
  for (int i = 0; i < 200; ++i) {
    flood.push_back(std::make_unique<Caller>(relay.address()));
  }
  const Caller b(relay.address());
  b.ask(kShoal, kReef);
  REQUIRE(a.answer() == 0);
  REQUIRE(b.answer() == 0);
  a.say("through");
  CHECK(b.hear() == "through");
  set_log_sink({});
}

TEST_CASE("an island has as many connections to a relay as it may, and a port that is taken is named") {
  set_log_sink([](LogLevel, std::string_view) {});
  RelaySettings settings;
  settings.limits.connections_of_an_island = 1;
  const Relay relay(settings);
  const Caller first(relay.address());
  first.ask(kReef, kShoal);
  const Caller second(relay.address());
  second.ask(kReef, kShoal);
  CHECK(second.answer() == 1);
  const Caller other(relay.address());
  other.ask(kShoal, kReef);
  CHECK(other.answer() == 0);
  CHECK(first.answer() == 0);
  settings.bind = relay.address();
  settings.secret = kSecret;
  const auto taken = RelayServer::open(settings);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == Code::conflict);
  CHECK(taken.error().why.find("is in use") != std::string::npos);
  set_log_sink({});
}

}  // namespace of_relay_server_test

#include "transport/zmq/control_client.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>

#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/log.hpp"
#include "transport/base/random_number.hpp"
#include "transport/base/rng.hpp"
#include "transport/zmq/poll_set.hpp"
#include "transport/zmq/relay_tunnels.hpp"
#include "transport/zmq/zmq_socket.hpp"

namespace atl {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStable = 1s;    // a connection that lasted this long starts the back-off anew
constexpr Duration kGreeting = 1s;  // a coordinator that has room for a connection greets it at once
constexpr int kAskAttempts = 2;     // refused or rejected this often, a command gives up
constexpr Duration kAtOnce = 50ms;  // a number, and a name that this machine knows, are looked up in less
constexpr Duration kLookAgain = 20ms;

int milliseconds(Duration duration) {
  return static_cast<int>(std::clamp<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), 0, 1'000'000));
}

// What ended or prevented a connection.
enum class Loss {
  proxy,         // no way was opened by the proxy that leads there
  unnamed,       // the address is a name that nobody here knows, or whose lookup takes too long
  nobody,        // nothing answers at the address
  silent,        // something takes connections, but says nothing in time: a process that is stopped or overloaded
  handshake,     // something answers, but the handshake fails: keys or mechanisms that do not fit
  cut_short,     // closed before the handshake was over. A coordinator that does not take our keys does so, where it happens twice in a row
                 // and it greets; and so do one that ends just then, and one that takes no more connections
  disconnected,  // it was up
};

// One socket, good for one connection, and its monitor.
struct Attempt {
  ZmqSocket dealer;
  ZmqSocket monitor;
};

class DealerClient final : public ZmqControlClient {
 public:
  DealerClient(ControlClientSettings settings, Address address, std::unique_ptr<ZmqContext> context, std::unique_ptr<PollSet> poll)
      : settings_(std::move(settings)),
        address_(std::move(address)),
        endpoint_(to_string(address_)),
        context_(std::move(context)),
        poll_(std::move(poll)),
        rng_(random_number(), stream_of("control-client")) {}
  ~DealerClient() override { stop(); }
  DealerClient(const DealerClient&) = delete;
  DealerClient& operator=(const DealerClient&) = delete;

  // Begins an attempt at the next address of the name, or looks the name up.
  Status start() {
    if (const Proxy* proxy = settings_.proxy.towards(address_.host)) {
      if (!tunnels_) {
        tunnels_.emplace();
      }
      // What the proxy says comes before this side's patience ends.
      ATOLL_ASSIGN(tunnel_,
                   tunnels_->open_through(*proxy, to_string(address_), settings_.connect_timeout - settings_.connect_timeout / 8, {}));
      endpoint_ = tunnel_->endpoint();
      ways_.clear();
    } else {
      if (ways_.empty() && !find_ways()) {
        return {};
      }
      endpoint_ = to_string(ways_.front());
      ways_.pop_front();
    }
    Result<Attempt> attempt = connect();
    if (!attempt) {
      return attempt.error();
    }
    attempt_ = std::move(*attempt);
    // A path that swallows everything leaves time for the addresses behind it.
    const Duration patience = ways_.empty() ? settings_.connect_timeout : settings_.connect_timeout / static_cast<int>(ways_.size() + 1);
    deadline_ = now() + patience;
    poll_->set_alarm(patience);
    ATOLL_TRY(poll_->add(attempt_->dealer.fd()));
    ATOLL_TRY(poll_->add(attempt_->monitor.fd()));
    poll_->remind();
    return {};
  }

  std::optional<LinkEvent> receive() override {
    poll_->clear();
    pump();
    if (!events_.empty()) {
      LinkEvent event = std::move(events_.front());
      events_.pop_front();
      poll_->remind();
      return event;
    }
    if (up_) {
      if (std::optional<LinkEvent> event = next_message()) {
        poll_->remind();
        return event;
      }
    }
    set_alarm();
    return std::nullopt;
  }

  Status send(const Message& message) override {
    if (!up_) {
      return Error{Code::unavailable, "there is no connection to the coordinator at " + settings_.address};
    }
    ATOLL_ASSIGN(const Bytes frame, encode(message));
    const int problem = attempt_->dealer.send({frame});
    if ((attempt_->dealer.events() & ZMQ_POLLIN) != 0) {
      poll_->remind();  // sending took the notice of what came in
    }
    if (problem != 0) {
      return Error{Code::unavailable, "the coordinator at " + settings_.address + " does not take what it is sent"};
    }
    return {};
  }

  [[nodiscard]] int fd() const override { return poll_->fd(); }

  Result<Reply> ask(const Request& request, Duration timeout) override;

 private:
  Result<Attempt> connect();
  bool find_ways();
  void stop();
  void pump();
  std::optional<Loss> read_monitor();
  void lose(Loss loss);
  [[nodiscard]] bool greets() const;
  [[nodiscard]] Error describe(Loss loss) const;
  std::optional<LinkEvent> next_message();
  void set_alarm();
  void announce(const LinkEvent& event);
  Result<std::optional<Reply>> answer(const LinkEvent& event, std::uint64_t id, bool& sent, const Request& request);

  ControlClientSettings settings_;
  Address address_;                   // as it was given
  std::string endpoint_;              // of the attempt: a number, not a name
  std::deque<Address> ways_;          // the name's other addresses, not tried yet
  std::optional<NameLookup> lookup_;  // under way
  TimePoint lookup_ends_;             // then it is taking too long
  bool looked_ = false;               // at it, in vain
  std::string name_problem_;
  std::string proxy_problem_;
  std::string proxy_told_;  // of those, in the log
  std::string good_;        // the endpoint that was connected last
  std::unique_ptr<ZmqContext> context_;
  std::unique_ptr<PollSet> poll_;
  Rng rng_;
  std::optional<RelayTunnels> tunnels_;           // once one has; it takes descriptors
  std::unique_ptr<RelayTunnels::Tunnel> tunnel_;  // of the attempt, where it goes through a proxy

  std::optional<Attempt> attempt_;  // none: waiting for `deadline_` to try again
  TimePoint deadline_;              // of the attempt, or of the wait
  unsigned attempts_made_ = 0;      // names monitors
  bool connected_ = false;          // TCP is up
  bool shaken_ = false;             // keys are proven
  bool up_ = false;
  bool down_told_ = false;
  bool cut_short_ = false;  // so was the last attempt
  Error last_loss_ = describe(Loss::nobody);
  TimePoint changed_;    // when `up_` last changed
  unsigned losses_ = 0;  // in a row
  std::deque<LinkEvent> events_;
};

Result<Attempt> DealerClient::connect() {
  ATOLL_ASSIGN(ZmqSocket dealer, ZmqSocket::open(*context_, ZMQ_DEALER));
  ATOLL_ASSIGN(ZmqSocket monitor, ZmqSocket::open(*context_, ZMQ_PAIR));
  dealer.set(ZMQ_LINGER, 500);
  dealer.set(ZMQ_IMMEDIATE, 1);       // nothing is kept for a connection that is not there
  dealer.set(ZMQ_RECONNECT_IVL, -1);  // ours: ZeroMQ gives up after some failures and hardly jitters
  dealer.set(ZMQ_CONNECT_TIMEOUT, milliseconds(settings_.connect_timeout));
  dealer.set(ZMQ_HANDSHAKE_IVL, 2 * milliseconds(settings_.connect_timeout));  // ours ends first, and knows silence from a refusal
  dealer.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(kMaxMessageBytes + kCurveOverheadBytes));
  dealer.set(ZMQ_RCVHWM, 0);  // see control_server.cpp for what a limit would do
  dealer.set(ZMQ_HEARTBEAT_IVL, std::max(1, milliseconds(settings_.dead_after / 3)));
  dealer.set(ZMQ_HEARTBEAT_TIMEOUT, milliseconds(settings_.dead_after));
  dealer.set(ZMQ_IPV6, endpoint_.find('[') != std::string::npos ? 1 : 0);
  if (settings_.insecure) {
    dealer.set(ZMQ_PLAIN_USERNAME, settings_.keys.public_key);
    dealer.set(ZMQ_PLAIN_PASSWORD, std::string("-"));
  } else {
    dealer.set(ZMQ_CURVE_SERVERKEY, settings_.coordinator_key);
    dealer.set(ZMQ_CURVE_PUBLICKEY, settings_.keys.public_key);
    dealer.set(ZMQ_CURVE_SECRETKEY, settings_.keys.secret_key);
  }
  const std::string name = "inproc://monitor-" + std::to_string(++attempts_made_);
  monitor.set(ZMQ_LINGER, 0);
  if (zmq_socket_monitor(dealer.get(), name.c_str(), ZMQ_EVENT_ALL) != 0 || zmq_connect(monitor.get(), name.c_str()) != 0 ||
      zmq_connect(dealer.get(), endpoint_.c_str()) != 0) {
    return Error{Code::io, "cannot connect to " + settings_.address + ": " + zmq_strerror(zmq_errno())};
  }
  return Attempt{std::move(dealer), std::move(monitor)};
}

void DealerClient::stop() {
  if (attempt_) {
    poll_->remove(attempt_->dealer.fd());
    poll_->remove(attempt_->monitor.fd());
    zmq_socket_monitor(attempt_->dealer.get(), nullptr, 0);
    attempt_.reset();
  }
  tunnel_.reset();
  connected_ = false;
  shaken_ = false;
  up_ = false;
}

// False: there is none yet. The attempt is over if the name is known to nobody, and is looked at again a little later if that takes time.
bool DealerClient::find_ways() {
  if (!lookup_) {
    lookup_.emplace(address_, settings_.resolver);
    lookup_ends_ = now() + settings_.connect_timeout;
  }
  const std::optional<Result<std::vector<Address>>> found = lookup_->result(std::exchange(looked_, true) ? Duration::zero() : kAtOnce);
  if (!found && now() < lookup_ends_) {
    deadline_ = now() + kLookAgain;
    poll_->set_alarm(kLookAgain);
    return false;
  }
  looked_ = false;
  if (!found || !*found) {
    name_problem_ = found ? found->error().why : "looking up its name takes longer than " + human_duration(settings_.connect_timeout);
    lookup_ends_ = now() + settings_.connect_timeout;  // one that still waits is waited for again
    if (found) {
      lookup_.reset();
    }
    lose(Loss::unnamed);
    return false;
  }
  lookup_.reset();
  ways_.assign((*found)->begin(), (*found)->end());
  std::ranges::stable_partition(ways_, [&](const Address& way) { return to_string(way) == good_; });
  return !ways_.empty();
}

// Moves the connection on: reads what ZeroMQ noticed, notices time running out, tries again.
void DealerClient::pump() {
  if (!attempt_) {
    if (now() >= deadline_ && !start()) {
      lose(Loss::nobody);  // no socket
    }
    if (!attempt_) {
      return;
    }
  }
  const std::optional<Loss> loss = read_monitor();
  // Asked for during every attempt: it takes what ZeroMQ tells the socket, whose descriptor would wake its owner again and again.
  const bool writable = !up_ && (attempt_->dealer.events() & ZMQ_POLLOUT) != 0;
  if (!loss && shaken_ && writable) {
    up_ = true;
    good_ = endpoint_;
    ways_.clear();
    cut_short_ = false;
    changed_ = now();
    events_.emplace_back(LinkUp{});
    announce(events_.back());
    down_told_ = false;
    proxy_problem_.clear();
    proxy_told_.clear();
  }
  if (loss) {
    lose(*loss);
  } else if (!up_ && now() >= deadline_) {
    lose(connected_ ? Loss::silent : Loss::nobody);
  }
}

// A monitor's event: u16 event, u32 value; then the address.
std::optional<Loss> DealerClient::read_monitor() {
  std::optional<Loss> loss;
  for (std::vector<ZmqFrame> frames = attempt_->monitor.receive(); !frames.empty(); frames = attempt_->monitor.receive()) {
    std::uint16_t event = 0;
    const ByteView bytes = frames[0].bytes();
    if (bytes.size() < sizeof event) {
      continue;
    }
    std::memcpy(&event, bytes.data(), sizeof event);
    switch (event) {
      case ZMQ_EVENT_CONNECTED:
        connected_ = true;
        break;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        shaken_ = true;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        loss = Loss::handshake;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        loss = loss.value_or(Loss::cut_short);
        break;
      case ZMQ_EVENT_DISCONNECTED:
      case ZMQ_EVENT_CLOSED:
        loss = loss.value_or(shaken_ ? Loss::disconnected : connected_ ? Loss::cut_short : Loss::nobody);
        break;
      default:
        break;
    }
  }
  return loss;
}

void DealerClient::lose(Loss loss) {
  if (up_) {
    while (std::optional<LinkEvent> event = next_message()) {
      events_.push_back(*std::move(event));  // a last word: Refused, often
    }
    if (now() - changed_ >= kStable) {
      losses_ = 0;
    }
  }
  const bool greeted = tunnel_ && tunnel_->reached() == RelayTunnels::Tunnel::Reached::heard;
  const bool proxied = tunnel_ != nullptr;
  if (proxied && loss != Loss::unnamed && tunnel_->reached() == RelayTunnels::Tunnel::Reached::nobody) {
    loss = Loss::proxy;
    proxy_problem_ = tunnel_->failure();
  }
  stop();
  if (loss == Loss::nobody && !ways_.empty()) {
    deadline_ = now();  // the attempt goes on at the next address
    poll_->set_alarm(Duration::zero());
    return;
  }
  ++losses_;
  if (loss == Loss::cut_short && std::exchange(cut_short_, true)) {
    loss = (proxied ? greeted : greets()) ? Loss::handshake : Loss::silent;
  }
  cut_short_ = cut_short_ && (loss == Loss::cut_short || loss == Loss::handshake);
  last_loss_ = describe(loss);
  if (!down_told_ && loss != Loss::cut_short) {
    changed_ = now();
    events_.emplace_back(LinkDown{last_loss_});
    announce(events_.back());
    down_told_ = true;
    proxy_told_ = proxy_problem_;
  } else if (loss == Loss::proxy && std::exchange(proxy_told_, proxy_problem_) != proxy_problem_ && settings_.log_changes) {
    log_warning(last_loss_.why);  // a connection that was lost with its proxy says no more than that it was lost
  }
  const double doubled = seconds(settings_.retry_first) * std::exp2(std::min(losses_ - 1, 30U));
  const Duration delay = from_seconds(std::min(doubled, seconds(settings_.retry_most)) * (0.5 + rng_.uniform()));
  deadline_ = now() + delay;
  poll_->set_alarm(delay);
}

// Whether what listens there says the first bytes of ZeroMQ's protocol to a connection, as every coordinator does that has room for one.
bool DealerClient::greets() const {
  const TimePoint end = now() + kGreeting;
  const Result<Address> address = parse_address(endpoint_);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (!address || ::getaddrinfo(address->host.c_str(), std::to_string(address->port).c_str(), &hints, &found) != 0) {
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  const FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    return false;
  }
  pollfd entry{socket.get(), POLLIN, 0};
  std::uint8_t first = 0;
  while (::poll(&entry, 1, std::max(0, milliseconds(end - now()))) < 0 && errno == EINTR) {
  }
  constexpr std::uint8_t kSignature = 0xff;  // ZMTP 3.1, "signature"
  return ::recv(socket.get(), &first, 1, MSG_DONTWAIT) == 1 && first == kSignature;
}

Error DealerClient::describe(Loss loss) const {
  const std::string where = "the coordinator at " + settings_.address;
  switch (loss) {
    case Loss::proxy:
      return Error{Code::unavailable, "cannot reach " + where + ": " +
                                          (proxy_problem_.empty() ? "the proxy that leads there does not answer" : proxy_problem_)};
    case Loss::unnamed:
      return Error{Code::unavailable, "cannot reach " + where + ": " + name_problem_};
    case Loss::nobody:
      return Error{Code::unavailable,
                   "cannot reach " + where + ": is it running (atoll coordinator), is the address right, does a firewall let it through?"};
    case Loss::silent:
      return Error{Code::unavailable,
                   where + " takes connections but does not answer: its process is stopped or overloaded, or takes no more of them"};
    case Loss::disconnected:
      return Error{Code::unavailable, "lost the connection to " + where};
    case Loss::cut_short:
      return Error{Code::unavailable, "the connection to " + where + " was closed before it proved itself: does it start or end just now?"};
    case Loss::handshake:
      break;
  }
  if (settings_.insecure) {
    return Error{Code::unauthorized,
                 "something answers at " + settings_.address + ", but takes no connection without encryption: leave --insecure out"};
  }
  const bool may_be_plain = parse_address(endpoint_).value_or(Address{}).is_loopback();
  return Error{Code::unauthorized, "something answers at " + settings_.address +
                                       ", but it does not prove to be the coordinator with the key known here: check the address, or enrol "
                                       "again with a new join token if the coordinator was set up anew" +
                                       (may_be_plain ? " (a coordinator started with --insecure is met with --insecure)" : "")};
}

std::optional<LinkEvent> DealerClient::next_message() {
  while (true) {
    const std::vector<ZmqFrame> frames = attempt_->dealer.receive();
    if (frames.empty()) {
      return std::nullopt;
    }
    Result<Message> message =
        frames.size() == 1 ? decode(frames[0].bytes()) : Result<Message>(Error{Code::corrupt, "a message is one frame"});
    if (message) {
      return *std::move(message);
    }
    if (message.error().code != Code::not_found) {
      return with_context(message.error(), "the coordinator at " + settings_.address + " sent what cannot be read");
    }
    log_debug(message.error().why + ": it is of a newer version, and ignored");
  }
}

void DealerClient::set_alarm() {
  if (!up_) {
    poll_->set_alarm(deadline_ - now());
  }
}

void DealerClient::announce(const LinkEvent& event) {
  if (!settings_.log_changes) {
    return;
  }
  if (const auto* down = std::get_if<LinkDown>(&event)) {
    log_warning(down->why.why + "; trying again until it is there");
  } else if (down_told_) {
    log_info("the coordinator at " + settings_.address + " is there again");
  }
}

// The reply if this event is it; an error if there will be none.
Result<std::optional<Reply>> DealerClient::answer(const LinkEvent& event, std::uint64_t id, bool& sent, const Request& request) {
  if (const auto* down = std::get_if<LinkDown>(&event)) {
    if (sent) {
      return with_context(down->why, "no answer came");
    }
    return std::optional<Reply>();
  }
  if (std::holds_alternative<LinkUp>(event)) {
    ATOLL_TRY(send(request));
    sent = true;
    return std::optional<Reply>();
  }
  if (const auto* error = std::get_if<Error>(&event)) {
    return *error;
  }
  const Message& message = std::get<Message>(event);
  if (const auto* refused = std::get_if<Refused>(&message)) {
    return refused->error;
  }
  if (const auto* reply = std::get_if<Reply>(&message); reply != nullptr && reply->id == id) {
    return reply->error ? Result<std::optional<Reply>>(*reply->error) : Result<std::optional<Reply>>(*reply);
  }
  return std::optional<Reply>();
}

Result<Reply> DealerClient::ask(const Request& request, Duration timeout) {
  const TimePoint end = now() + timeout;
  while (receive()) {
    // What came since the last question answers none: a connection that was lost meanwhile is noticed here.
  }
  bool sent = false;
  if (up_) {
    const Status status = send(request);
    if (!status && status.error().code != Code::unavailable) {
      return status.error();
    }
    sent = status.ok();
    if (!sent) {
      lose(Loss::disconnected);  // ZeroMQ takes nothing for a connection that is gone
    }
  }
  const unsigned losses_before = losses_;
  if (!attempt_) {
    deadline_ = now();  // somebody waits: try at once
  }
  for (;;) {
    while (std::optional<LinkEvent> event = receive()) {
      ATOLL_ASSIGN(std::optional<Reply> reply, answer(*event, request.id, sent, request));
      if (reply) {
        return *std::move(reply);
      }
    }
    if (!sent && losses_ - losses_before >= kAskAttempts) {
      return last_loss_;
    }
    const Duration left = end - now();
    if (left <= Duration::zero()) {
      return sent ? Error{Code::timeout, "the coordinator at " + settings_.address + " did not answer within " + human_duration(timeout)}
                  : last_loss_;
    }
    pollfd waiting{fd(), POLLIN, 0};
    if (::poll(&waiting, 1, std::max(1, milliseconds(left))) < 0 && errno != EINTR) {
      return Error{Code::io, std::string("cannot wait for the coordinator: ") + std::strerror(errno)};
    }
  }
}

}  // namespace

Result<std::unique_ptr<ZmqControlClient>> ZmqControlClient::open(const ControlClientSettings& settings) {
  ATOLL_ASSIGN(const Address address, parse_address(settings.address));
  if (address.port == 0 || address.host == "*") {
    return Error{Code::invalid_argument, "'" + settings.address + "' is no address to connect to: name the coordinator's host and port"};
  }
  if (settings.insecure && !address.is_loopback()) {
    return Error{Code::invalid_argument, "without encryption (--insecure) a coordinator is reached on a loopback address only, not at " +
                                             settings.address + ": leave --insecure out"};
  }
  if (!is_key(settings.keys.public_key) || (!settings.insecure && !is_key(settings.keys.secret_key))) {
    return Error{Code::invalid_argument, "this side has no key pair"};
  }
  if (!settings.insecure && !is_key(settings.coordinator_key)) {
    return Error{Code::invalid_argument, "the coordinator's key is not known: join with a token, or name its key"};
  }
  ATOLL_ASSIGN(std::unique_ptr<PollSet> poll, PollSet::open());
  auto client = std::make_unique<DealerClient>(settings, address, std::make_unique<ZmqContext>(), std::move(poll));
  ATOLL_TRY(client->start());
  return std::unique_ptr<ZmqControlClient>(std::move(client));
}

}  // namespace atl

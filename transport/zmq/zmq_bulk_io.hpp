// The I/O thread of a ZeroMQ bulk link: owns the sockets and sessions, serves wants from the store.
// Threads: everything here runs on that one thread; it talks to the caller through the mailbox.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/bulk_session.hpp"
#include "transport/bulk/interface_addresses.hpp"
#include "transport/bulk/link_memory.hpp"
#include "transport/bulk/stream_count.hpp"
#include "transport/bulk/uplink_queue.hpp"
#include "transport/bulk/want_queue.hpp"
#include "transport/relay/punch_record.hpp"
#include "transport/zmq/accept_gate.hpp"
#include "transport/zmq/bulk_flight.hpp"
#include "transport/zmq/bulk_mailbox.hpp"
#include "transport/zmq/relay_tunnels.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace atl {

void set_option(void* socket, int option, int value);

// The options that router and dealers share.
void configure_bulk_socket(void* socket, const ZmqBulkSettings& settings);

class ZmqBulkIo {
 public:
  // Takes the router (may be null: do not listen), which listens on `port`, and its gate; closes them at the end of `run`.
  ZmqBulkIo(ZmqBulkSettings settings, const BulkIdentity& identity, std::shared_ptr<BlobStore> store, std::shared_ptr<BulkMailbox> mailbox,
            void* context, void* router, std::uint16_t port, std::optional<AcceptGate> gate);
  ~ZmqBulkIo();
  ZmqBulkIo(const ZmqBulkIo&) = delete;
  ZmqBulkIo& operator=(const ZmqBulkIo&) = delete;

  // Until a StopBulkIo arrives.
  void run();

 private:
  using Route = std::string;  // what the router calls a connection

  // First byte of a message.
  static constexpr std::byte kGreet{1};
  static constexpr std::byte kHello{2};    // bulk_session.hpp
  static constexpr std::byte kWelcome{3};  // bulk_session.hpp
  static constexpr std::byte kData{4};
  // First byte inside a box: a frame's head, or a ping or pong with a u64 time stamp.
  static constexpr std::uint8_t kFrame = 0;
  static constexpr std::uint8_t kPing = 1;
  static constexpr std::uint8_t kPong = 2;

  static constexpr std::size_t kRemembered = 64;  // strangers, and lines logged lately
  static constexpr Duration kHelloPatience = std::chrono::milliseconds(500);
  static constexpr Duration kHelloPatienceAtMost = std::chrono::seconds(5);
  static constexpr Duration kOwedPatience = std::chrono::seconds(5);
  using Parts = std::vector<ZmqMessage>;

  // One connection this side dials.
  struct Dealer {
    IslandId peer;
    void* socket = nullptr;
    std::optional<BulkDialler> handshake;
    TimePoint hello_sent;
    TimePoint hello_again;  // if nothing is heard
    Duration patience{};
    unsigned hellos = 0;  // said since the last session of this connection
    unsigned way = 0;     // 0: it dials an address of the peer's; else the place, counted from 1, at which it waits for the peer
    std::string address;  // that it dials, where it dials the peer
    bool scout = false;   // to see whether the peer is there; its session is used once that address is chosen
    std::string pass;     // shown there
    std::unique_ptr<RelayTunnels::Tunnel> tunnel;  // through which it dials the relay
    bool accepts = false;                          // the peer says hello over it: so it is at a relay for one of the two
    unsigned refuted = 0;       // answers that the newest of them cannot open; one to an earlier hello comes late, and shows nothing
    std::uint64_t session = 0;  // 0: none
  };
  struct Session {
    std::uint64_t id = 0;
    IslandId peer;
    Dealer* dealer = nullptr;  // null: accepted by the router
    Route route;
    int source = -1;   // its connection's descriptor
    bool far = false;  // the kernel was told that its path is long
    BulkKeys keys;
    unsigned way = 0;  // as its dealer's
    bool confirmed = false;
    TimePoint heard;
    TimePoint pinged;
    std::shared_ptr<BulkFlight> flight;
    WantQueue waiting;       // wants to serve once there is room
    std::uint64_t owed = 0;  // bytes that were asked for over it and have not come
    TimePoint owed_since;    // when the newest of them came, or the first was asked for
  };
  struct Peer {
    explicit Peer(unsigned first_streams) : streams(first_streams, kMostStreams) {}

    BulkPeer who;
    std::vector<std::unique_ptr<Dealer>> dealers;
    std::vector<std::uint64_t> sessions;  // confirmed
    std::vector<std::uint64_t> best;      // those of the first of the ways that there are
    std::vector<std::uint64_t> asked;     // those over which this side asks, see `divide`
    std::size_t turn = 0;
    StreamCount streams;         // of the sessions, over how many this side asks
    unsigned asked_over = 0;     // what its reader was told of that
    std::uint64_t received = 0;  // bytes, since the last tick
    Duration round_trip{};       // the shortest since `trip_from`; 0: not known
    TimePoint trip_from;
    bool far = false;                       // it was once, or a ping waited as long; it is taken for far since then
    std::optional<TimePoint> apart_since;   // there is no direct connection
    std::optional<TimePoint> direct_since;  // there is one
    unsigned places = 0;                    // at so many of them, from the first on, it is waited for
    std::optional<Way> told_way;            // by which it is reached, as was said last
    // Which of its addresses is dialled (zmq_bulk_addresses.cpp).
    struct Choice {
      std::vector<std::string> among;       // those that are worth dialling, the best first
      std::string chosen;                   // the one that is dialled; empty: none has answered
      std::optional<TimePoint> at;          // at the latest: one has answered, a better one has not
      std::optional<TimePoint> race_ends;   // scouts are under way until then
      TimePoint race_again;                 // where none is connected: not before
      TimePoint better_again;               // where the best is not the chosen one: better ones are not tried before
      unsigned lost_races = 0;              // one after the other
      std::optional<TimePoint> lost_since;  // the chosen one is not connected
    };
    Choice choice;
    PunchRecord punching;
    struct Trouble {
      unsigned times = 0;  // that a session of this place was spoilt, or fell silent
      TimePoint newest;
    };
    std::map<unsigned, Trouble> troubles;  // by place, counted from 1
  };

  // Commands.
  bool obey_commands();  // false: stop
  void set_peers(std::vector<BulkPeer> peers);
  void set_uplink(double bits_per_second);
  void close_dealers(Peer& peer, unsigned from_way, unsigned to_way);
  void remove_peer(const IslandId& island);
  void send_want(const OutgoingWant& want);

  // A relay, or the same one's help to punch a hole.
  struct Place {
    RelayOffer relay;
    bool punches = false;
  };
  // Addresses of peers: which of them is dialled (zmq_bulk_addresses.cpp).
  void set_addresses(const IslandId& island, Peer& peer);
  void dial_chosen(const IslandId& island, Peer& peer);
  void begin_race(const IslandId& island, Peer& peer, TimePoint now);
  void end_race(Peer& peer, TimePoint now);
  void note_answer(Peer& peer, const Dealer& dealer);
  void choose_where_due();
  void end_stranded(std::span<const InterfaceAddress> before);
  void choose(const IslandId& island, Peer& peer);
  void look_at_addresses(TimePoint now);
  void look_at_addresses(const IslandId& island, Peer& peer, TimePoint now);
  [[nodiscard]] bool keeps_address(const Peer& peer, const std::string& offered) const;
  [[nodiscard]] std::vector<std::string> worth_dialling(const std::string& offered) const;
  [[nodiscard]] bool is_barred(int descriptor) const;
  void close_dealers(Peer& peer, const std::function<bool(const Dealer&)>& is_one);

  // Ways: places where there is no direct one (zmq_bulk_ways.cpp).
  void set_relays(std::vector<RelayOffer> relays);
  void look_at_ways(TimePoint now);
  void move_places(Peer& peer, std::span<const unsigned> moved);
  void look_at_way(const IslandId& island, Peer& peer, TimePoint now);
  void blame_place(const IslandId& island, unsigned way, const std::string& why);
  [[nodiscard]] bool is_shunned(const Peer& peer, unsigned way, TimePoint now) const;
  void wait_at_places(const IslandId& island, Peer& peer);
  void note_punching(const IslandId& island, Peer& peer, TimePoint now);
  [[nodiscard]] Way way_at(const Peer& peer, unsigned way) const;
  [[nodiscard]] std::optional<Way> way_to(const Peer& peer) const;
  void tell_way(const IslandId& island, Peer& peer);
  [[nodiscard]] bool accepts_from(const IslandId& peer) const { return peer < settings_.island; }

  // Sockets.
  void* make_dealer_socket(Dealer& dealer);
  enum class Towards : std::uint8_t { peer, scouted, relay };
  void* make_dealer_socket(const std::string& address, Towards towards);
  static void close_dealer(Dealer& dealer);
  void read_router();
  void read_dealer(Dealer& dealer);
  static bool read_parts(void* socket, Parts& parts);
  bool send_parts(const Session& session, ZmqMessage first, std::optional<ZmqMessage> second);
  void send_to_route(const Route& route, ByteView message);

  // Handshake.
  void greet(const Route& route);
  // Over the router, or over a dealer that accepts.
  void on_hello(const Route& route, Dealer* dealer, const ZmqMessage& hello);
  [[nodiscard]] bool has_too_many(const IslandId& peer) const;
  void greet(const Dealer& dealer);
  void say_hello(Dealer& dealer);
  void on_welcome(Dealer& dealer, const ZmqMessage& message);
  void use_session(const Dealer& dealer);
  std::uint64_t add_session(Session session);
  void confirm(Session& session);
  void end_session(std::uint64_t id, const std::string& why);
  void redial(Dealer& dealer);

  // Sealed frames.
  void on_data(std::uint64_t id, Parts& parts);
  void on_frame(Session& session, ByteView head, ByteView bound, Parts& parts);
  // send_message, send_frame, serve and send_piece return false if the session turned out to be gone; it is ended then.
  bool send_message(Session& session, ByteView first, std::optional<ZmqMessage> payload);
  Bytes seal_first(Session& session, ByteView plain);
  bool send_frame(Session& session, const Frame& frame);
  void send_ping(Session& session, std::uint8_t type, std::uint64_t stamp);
  bool serve(Session& session, const Want& want);
  bool send_piece(Session& session, const Served& served);
  [[nodiscard]] bool has_room(const Session& session) const {
    return session.flight->has_room(settings_.queue_bytes, share_out(settings_.link_memory_bytes).outbox);
  }
  void serve_waiting();
  void serve_uplink();
  void reject(Session& session, const std::string& why);
  Session* next_session(const IslandId& peer);
  Session* session_to_ask(const IslandId& peer);
  Session* session_of(const IslandId& peer, std::uint64_t id);
  void on_pong(Session& session, Duration trip);

  void add_dealer(const IslandId& island, Peer& peer, unsigned way, const std::string& address, bool scout = false);
  [[nodiscard]] static std::size_t used_sessions(const Peer& peer) {
    return std::min<std::size_t>(peer.streams.count(), peer.asked.size());
  }
  [[nodiscard]] bool is_dialled(std::uint64_t session) const {
    const Dealer* dealer = sessions_.at(session).dealer;
    return dealer != nullptr && !dealer->accepts;
  }
  [[nodiscard]] std::size_t dialled(const Peer& peer) const {
    return static_cast<std::size_t>(std::ranges::count_if(peer.best, [this](std::uint64_t id) { return is_dialled(id); }));
  }
  [[nodiscard]] unsigned way_of(const Peer& peer) const { return peer.best.empty() ? 0 : sessions_.at(peer.best.front()).way; }
  void divide(Peer& peer) const;
  void add_streams(const IslandId& island, Peer& peer);
  void look_at_streams(TimePoint now);
  void tick(TimePoint now);
  void log_rarely(const std::string& line);

  const ZmqBulkSettings settings_;
  const BulkIdentity identity_;
  const std::shared_ptr<BlobStore> store_;
  const std::shared_ptr<BulkMailbox> mailbox_;
  const std::shared_ptr<SealBuffers> buffers_ = std::make_shared<SealBuffers>();
  const std::shared_ptr<BulkFlight::Outbox> outbox_ = std::make_shared<BulkFlight::Outbox>(0);
  void* const context_;
  void* router_;
  std::optional<AcceptGate> gate_;
  std::map<IslandId, Peer> peers_;
  std::vector<Place> places_;
  RelayTunnels tunnels_;
  std::vector<InterfaceAddress> own_;  // of this machine, as it was looked up last
  std::uint16_t own_port_ = 0;         // on which it listens; 0: it does not
  TimePoint own_again_;
  bool may_choose_ = false;  // a scout has met a peer where nothing better is awaited
  std::map<Key, IslandId> admitted_;
  std::map<std::uint64_t, Session> sessions_;
  std::map<Route, std::uint64_t> routes_;
  std::set<Route> not_admitted_;  // said hello with a key that is unknown so far
  std::uint64_t next_session_ = 1;
  AeadContext aead_;
  Rng rng_;
  std::map<std::string, TimePoint> logged_;
  std::optional<TimePoint> full_since_;  // the inbox
  TimePoint looked_at_;                  // the streams
  double uplink_bits_per_second_ = 0;
  std::optional<UplinkQueue> uplink_;  // with a budget
};

}  // namespace atl

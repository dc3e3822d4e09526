// The coordinator's driver: the one thread that owns the core, the ledger and the control link's socket.
//
// Messages and time go into the core; what the core wants done comes out and is done in its order: records into the ledger
// (one transaction, on the disk), then messages. When the ledger cannot be written nothing is announced: what the core decided
// is kept, islands' messages are held back, operators are told, and everything goes on once a write succeeds.
//
// Admission is here too: every message comes with a key; an unknown key may only enrol, an island's key may not command, an
// operator's may not pose as an island, a revoked one may do nothing.
// Threads: one, the caller's.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/api/requests.hpp"
#include "coordinator/core/core.hpp"
#include "coordinator/ledger/admission.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/running_totals.hpp"
#include "coordinator/service/questions.hpp"
#include "coordinator/service/relay_passes.hpp"
#include "transport/base/log_limit.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/control_link.hpp"

namespace atl::coordinator {

class Driver {
 public:
  // Recovers a core from the ledger. The server must be listening already. Errors: those of the ledger.
  static Result<std::unique_ptr<Driver>> start(Settings settings, Place place, Ledger ledger, std::unique_ptr<ControlServer> server,
                                               TimePoint now);
  ~Driver();
  // Where islands meet that cannot dial each other, in the order in which they try it. Before `run`.
  void offer_relays(std::vector<RelayTicket> relays) { passes_ = RelayPasses(std::move(relays)); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Takes what has come in, lets time pass, does what is due. Returns when there is nothing to do.
  void step(TimePoint now);
  // When step has something to do although nothing comes in.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  // Steps until `stop_fd` is readable; then writes down what a restart would otherwise miss. In between it answers the questions of other
  // threads of this process, a few after each step.
  Status run(int stop_fd, Questions& questions);

 private:
  // An agent's process behind a connection.
  struct Instance {
    std::uint64_t boot = 0;
    ConnectionId connection;
  };
  // A change that was answered: a client that lost the answer asks again.
  struct Answered {
    std::string public_key;
    Request request;
    Reply reply;
  };
  struct Held {
    ConnectionId connection;
    IslandId island;
    Message message;
  };

  Driver(Place place, Ledger ledger, std::unique_ptr<ControlServer> server);

  void take(TimePoint now, const Received& received);
  void answer(TimePoint now, Questions& questions);
  void take_enrol(TimePoint now, const Received& received, const Enrol& enrol);
  void take_request(TimePoint now, const Received& received, const Request& request);
  void take_island_message(TimePoint now, ConnectionId connection, const IslandId& island, Message message);
  void feed(TimePoint now, ConnectionId connection, const IslandId& island, Message message);
  void hold(ConnectionId connection, const IslandId& island, Message message);
  void refuse(ConnectionId connection, Error error);
  [[nodiscard]] bool is_member(TimePoint now, const RunId& id, const IslandId& island) const;
  bool stops_reporting(const IslandId& island, const Heartbeat& heartbeat);
  std::uint64_t boot_of(ConnectionId connection, const IslandId& island, const Message& message);

  // Takes what the core has ready and does it. False: the ledger cannot be written, everything is kept.
  bool flush(TimePoint now);
  bool write_pending(TimePoint now);
  void ledger_failed(TimePoint now, const Error& error);
  void ledger_recovered(TimePoint now);
  void announce();
  void send_passes(ConnectionId connection, const std::optional<Relays>& relays);
  void look_at_relays(TimePoint now);
  void log_events() const;
  void write_reports(TimePoint now);

  Ledger ledger_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Requests> requests_;
  Place place_;
  RelayPasses passes_{{}};

  std::map<IslandId, std::vector<Instance>> instances_;  // newest last
  std::deque<Answered> answered_;                        // the newest few
  coordinator::Ready pending_;                           // decided, not yet durable
  std::deque<Held> held_;                                // came in while the ledger could not be written
  std::optional<TimePoint> blocked_since_;
  TimePoint retry_at_;
  RunningTotals totals_;
  std::map<std::pair<RunId, IslandId>, IslandReport> fresh_reports_;  // not yet in the ledger
  std::vector<IslandSpan> fresh_spans_;                               // likewise
  std::map<IslandId, std::vector<RunId>> reporting_;                  // on which runs each island reported last
  std::optional<TimePoint> reports_due_;
  LogLimit log_limit_;
};

}  // namespace atl::coordinator

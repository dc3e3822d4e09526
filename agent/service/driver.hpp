// The agent: one island's process. Joins core, control link, sync engine, trainer and checkpoints in one event loop.
//
// One thread owns the core. It sleeps in one poll over the control link, the sync engine's answers, the trainer's socket, output and end,
// the data being prepared, and the signals; it never waits for a disk, an exchange or a download, so heartbeats go on whatever
// happens. SIGTERM or SIGINT: the core finishes the round in hand and leaves; a second one ends at once.
//
//   STATE/agent.lock        one agent at a time
//   STATE/keys/island       this island's key pair: who it is (transport/identity/identity.hpp)
//   STATE/coordinator.json  where the coordinator is, once joined
//   STATE/port              where other islands reach it (own_port.hpp)
//   STATE/runs/RUN/…        checkpoints (checkpoint.hpp), what is being fetched, results kept for joiners
//   STATE/trainers/NAME     the socket at which a trainer that its user started joins (agent/host/attach_point.hpp)
//   STATE/cache/…           downloads
// Threads: run_agent on one; the sync engine, the bulk link and a data preparation have their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/faults/rehearsal.hpp"
#include "agent/host/trainer_programs.hpp"
#include "agent/service/data_access.hpp"
#include "agent/service/uplink_calendar.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/address_choice.hpp"
#include "transport/bulk/link_memory.hpp"
#include "transport/http/object_store.hpp"
#include "transport/relay/relay_server.hpp"

namespace atl::agent {

struct AgentOptions {
  std::filesystem::path state;
  std::string name;                    // unique within the coordinator; empty: the host's name
  std::string join_token;              // enrols this island; empty: it is enrolled
  std::string coordinator;             // "tcp://host:port"; empty: as stored or in the token
  std::string bind;                    // of the bulk link; empty: own_port.hpp says; any port of loopback if the coordinator is there
  std::vector<std::string> advertise;  // each "host" or "host:port" under which other islands reach it; empty: found out
  InterfaceRules interfaces;           // of the bulk link
  bool insecure = false;               // plain links; loopback only
  bool hole_punching = true;
  std::optional<RelaySettings> relay;  // one in this process, for other islands of the coordinator; its secret is made at the start
  bool port_mapping = true;            // where this machine is behind a router, and nothing else is advertised (transport/mapping)
  DataPermissions data;
  std::vector<std::string> copies;  // places like s3://bucket/prefix where runs may keep copies of checkpoints, and below
  StoreCredentials store;           // for those
  TrainerPrograms trainers;         // what runs may name in [trainer]
  std::string metrics;              // HOST:PORT where Prometheus finds its figures; empty: nowhere
  std::string version;
  std::string program;                            // the executable that `trainer` is run of; empty: this one
  UplinkCalendar uplink;                          // the bulk link's budget
  std::uint64_t link_memory_bytes = kLinkMemory;  // for pieces on their way (transport/bulk/link_memory.hpp)
  unsigned threads = 0;                           // for digests and outer steps; 0: by the cores (agent/service/workers.hpp)
  std::uint64_t trainer_memory_bytes = 0;         // 0: no limit
  Duration trainer_hang_after = std::chrono::minutes(5);
  bool check_arena = false;                                          // trainers that write into the arena out of turn are noticed
  std::filesystem::path leave_file;                                  // leave when it appears (agent/service/leave_watch.hpp); empty: none
  std::string leave_command;                                         // leave when it exits with status 0; empty: none
  std::optional<Duration> leave_idle;                                // leave after so long without anything to do; nothing: never
  Duration leave_within = std::chrono::seconds(60);                  // then the agent goes, whatever is in hand
  std::optional<Duration> keep_ended = std::chrono::hours(24 * 30);  // what lies here of runs that ended; nothing: for ever
  bool keep_removed = false;                                         // also what an operator removes stays
  bool allow_loopback_http = false;                                  // data sets by http:// from this machine (for trying things out)
  std::vector<Fault> faults;                                         // to rehearse (agent/faults/rehearsal.hpp); empty: none
};

// Runs until told to go. Success: it left as asked.
// Errors: unauthorized (the key or token is not admitted), conflict (the state directory is in use, or the identity is), invalid_argument,
// io; `cancelled` if a second signal ended it at once.
Status run_agent(const AgentOptions& options);

}  // namespace atl::agent

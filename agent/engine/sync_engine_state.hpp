// The inside of the sync engine: what it has of each run, and the functions that change it.
//
// Only sync_engine.cpp, round_exchange.cpp and engine_*.cpp include this. Threads: one.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/engine/catch_up.hpp"
#include "agent/engine/island_run.hpp"
#include "agent/engine/pair_round.hpp"
#include "agent/engine/round_exchange.hpp"
#include "agent/engine/sync_engine.hpp"
#include "transport/bulk/blob_fetch.hpp"
#include "transport/bulk/path_measure.hpp"
#include "transport/bulk/path_probes.hpp"
#include "transport/bulk/path_watch.hpp"
#include "transport/bulk/transfer.hpp"

namespace atl::agent {

inline std::string round_text(Round round) { return "round " + std::to_string(round.value); }

// Milliseconds of each phase of a round, for the log.
struct RoundMeter {
  double form = 0;
  double exchange = 0;
  double digest = 0;
  double step = 0;
  struct Arrival {
    TimePoint last;
    std::uint64_t bytes = 0;
  };
  std::map<IslandId, Arrival> arrivals;  // of this attempt
  std::optional<TimePoint> reduce_start;
  TimePoint reduce_end;
};

// A checkpoint's folder in which everything lies, to be hashed, synced and described. Threads: any; who calls second waits for the first.
class CheckpointFolder {
 public:
  CheckpointFolder(DiskPath partial, CheckpointMeta meta) : partial_(std::move(partial)), meta_(std::move(meta)) {}
  void complete();
  [[nodiscard]] bool completed() const { return completed_; }
  // Once it is completed:
  [[nodiscard]] const CheckpointMeta& meta() const { return meta_; }
  [[nodiscard]] const Status& outcome() const { return outcome_; }

 private:
  std::mutex mutex_;
  DiskPath partial_;
  CheckpointMeta meta_;
  Status outcome_;
  std::atomic<bool> completed_ = false;
};

// A checkpoint to which nothing is added but what its trainer saves: it is being written.
struct ClosingCheckpoint {
  WriteCheckpoint order;
  TimePoint since;
  SealedCheckpoint sealed;
  std::shared_ptr<CheckpointFolder> folder;  // once the outer state is written
};

// A run that is open in the engine.
struct OpenedRun {
  std::unique_ptr<IslandRun> run;
  std::map<Round, std::unique_ptr<RoundExchange>> exchanges;
  std::map<Round, PairRound> pairs;  // of rounds that are prepared or met, not applied
  std::unique_ptr<CatchUpWork> catching_up;
  TimePoint catch_up_since;
  std::uint64_t catch_up_number = 0;
  bool keep_results = false;
  std::deque<std::pair<Round, std::uint64_t>> kept;  // results on disk, oldest first, with their size
  std::uint64_t kept_bytes = 0;
  std::map<Round, RoundMeter> meters;
  std::map<Round, Error> not_begun;       // checkpoints, and why
  std::deque<ClosingCheckpoint> closing;  // in the order of their orders
  double uplink_bits_per_second = 0;      // the run's budget; 0: none
  std::deque<Duration> usual;             // how long the newest exchanges took
  std::uint64_t told_served = 0;          // bytes that the core was told others read from here
};

// Older checkpoints of a run that is over, being removed beside the engine. `error` is read once it is done.
struct Pruning {
  RemoveStored order;
  std::optional<Error> error;
  std::atomic<bool> done = false;
};

// Content of a run of phases on its way here.
struct ContentFetch {
  RunId run;
  Content content;
  std::unique_ptr<BlobFetch> fetch;
};

// Whom a run's blobs are for.
struct Audience {
  std::vector<Member> members;
  std::vector<Reader> readers;
  // Of many members those that this island exchanges with. It dials them and whom it reads the outer state from, and admits all. Nothing:
  // it dials everybody.
  std::optional<std::set<IslandId>> partners;
  std::set<IslandId> sources;
  std::vector<IslandId> met;  // where groups are drawn anew for each round: the last ones that it met or is to meet, the newest last

  [[nodiscard]] bool talks_to(const IslandId& island) const { return !partners || partners->contains(island) || sources.contains(island); }
};

struct SyncEngine::State final : PieceReceiver {
  State(EngineSettings chosen, std::unique_ptr<BulkLink> its_link) : settings(std::move(chosen)), link(std::move(its_link)) {
    wants.paths = std::make_shared<PathWindows>(share_out(settings.link_memory_bytes).windows);
  }

  bool turn();
  std::optional<TimePoint> next_deadline();
  [[nodiscard]] TimePoint now() const { return settings.clock(); }
  [[nodiscard]] double ms_since(TimePoint start) const { return seconds(now() - start) * 1000.0; }

  // ---- commands
  void carry_out(const OpenRun& order);
  void carry_out(const AllowPeers& order);
  void carry_out(const TryPaths& order);
  void carry_out(const FormInitialState& order);
  void carry_out(const FormContribution& order);
  void carry_out(const PreparePair& order);
  void carry_out(const MeetPartner& order);
  void carry_out(const LeavePairs& order);
  void carry_out(const HearOfPair& order);
  void carry_out(const RenouncePair& order);
  PairExchange* exchange_of(const RunId& run, Epoch epoch, Round round);  // none: no such pair is open
  void carry_out(const FormMergeContribution& order);
  void carry_out(const BeginExchange& order);
  void carry_out(const PostponeContribution& order);
  void carry_out(const OfferParameters& order);
  void carry_out(const CancelExchange& order);
  void carry_out(const ApplyResult& order);
  void carry_out(const HandOver& order);
  void carry_out(const AdoptParameters& order);
  void carry_out(const BeginCheckpoint& order);
  void carry_out(const WriteCheckpoint& order);
  void carry_out(const EndTrainerState& order);
  void carry_out(const LoadCheckpoint& order);
  void carry_out(const CatchUpFromPeers& order);
  void carry_out(const KeepResults& order);
  void carry_out(const CloseRun& order);
  void carry_out(const RemoveStored& order);
  void carry_out(const OpenContent& order);
  void carry_out(const FetchContent& order);
  void carry_out(const AdoptContent& order);
  void carry_out(const DropContent& order);
  void carry_out(const PrepareArena& order);
  void carry_out(const FillArena& order);
  void carry_out(const ServeStored& order);
  void carry_out(const SetUplink& order);
  void carry_out(const SetRelays& order) { link->set_relays(order.relays); }

  // ---- pieces that arrive
  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint at, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint at, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint at, const IslandId& peer) override;
  void asked_over(const IslandId& peer, unsigned connections) override { wants.paths->to(peer)->asked_over(connections); }
  void way_changed(const IslandId& peer, const std::optional<Way>& way) override;
  Transfer* reader_of(const BlobId& blob);

  // ---- what goes on beside the commands
  // Every transfer that is under way: what it sends, what it is handed and when it is due are the same for all kinds.
  template <typename F>
  void each_transfer(F what) {
    for (auto& [blob, work] : content_fetches) {
      what(*work.fetch);
    }
    if (settings.probe_paths) {
      what(probes);
      what(measure);
      what(watch);
    }
    for (auto& [id, open] : runs) {
      if (open.catching_up && open.catching_up->fetch() != nullptr) {
        what(*open.catching_up->fetch());
      }
      for (auto& [round, pair] : open.pairs) {
        if (pair.exchange && !pair.reported) {
          what(*pair.exchange);
        }
      }
      for (auto& [round, exchange] : open.exchanges) {
        if (!exchange->reported) {
          what(exchange->attempt());
        }
      }
    }
  }
  bool reduce();
  bool hash();
  void settle_exchanges(TimePoint at);
  void settle(OpenedRun& open, RoundExchange& exchange, TimePoint at);
  void report_done(OpenedRun& open, RoundExchange& exchange);
  void report_broken(RoundExchange& exchange, const IslandId& accused, Error error, std::vector<IslandId> missing = {});
  // Who has delivered nothing for so long, while this engine looked all the time.
  [[nodiscard]] std::vector<Stall> stalled(const ExchangeAttempt& attempt, TimePoint at, Duration longer_than) const;
  // How long a peer may deliver nothing in this exchange.
  [[nodiscard]] Duration patience(const OpenedRun& open, const BeginExchange& order) const;
  void settle_probes(TimePoint at);
  void doubt(const ExchangeAttempt& attempt, TimePoint at);
  void give_up_on(const PathFinding& finding, TimePoint at);
  void settle_pairs(TimePoint at);
  void settle_pair(OpenedRun& open, PairRound& pair, TimePoint at);
  bool apply_pair(OpenedRun& open, const ApplyResult& order);
  void settle_catching_up(TimePoint at);

  // ---- checkpoints
  void beside(std::function<bool()> some) const;
  Status begin_checkpoint(OpenedRun& open) const;
  void settle_checkpoints(OpenedRun& open);
  bool settle_checkpoint(OpenedRun& open, ClosingCheckpoint& closing);
  void complete_checkpoints(OpenedRun& open);
  // The trainer's state lies beside the outer one, or what there is of it goes.
  void end_trainer_state(OpenedRun& open, ClosingCheckpoint& closing, bool saved);
  void say_written(const WriteCheckpoint& order, const CheckpointMeta& meta);
  void say_failed(const WriteCheckpoint& order, const Error& error);

  // ---- runs of phases
  void settle_content();
  void serve_content(const RunId& run, const Content& content, std::uint64_t start, std::uint64_t step);

  // ---- engine_removal.cpp
  void withdraw(const RunId& run);
  [[nodiscard]] Status remove_stored(const RemoveStored& order) const;
  void remove_older(const RemoveStored& order);
  void settle_prunings();

  // ---- serving
  void set_peers();
  [[nodiscard]] std::string name_of_peer(const RunId& run, const IslandId& island) const;
  void adopt_address(const IslandId& island, const std::string& before, const std::string& told);
  void adopt_addresses(const std::vector<Member>& before, const std::vector<Member>& told);
  // With whom this island exchanges as an epoch begins, and in one exchange of these members; nothing: with everybody.
  [[nodiscard]] std::optional<std::set<IslandId>> first_partners(const OpenedRun& open, const Audience& audience) const;
  [[nodiscard]] std::optional<std::set<IslandId>> partners_among(Aggregator aggregator, const std::vector<Member>& members,
                                                                 std::span<const std::uint8_t> shares) const;
  void meet(const RunId& run, const std::vector<IslandId>& group);
  void set_uplink();
  void serve_checkpoints(const RunId& run, const std::vector<CheckpointMeta>& stored, const DiskPath& folder);
  void serve_anew(const RunId& run, const std::vector<CheckpointMeta>& stored, const DiskPath& folder);
  void start_over(OpenedRun& open);
  void keep_result(OpenedRun& open, const RoundResult& result);
  static DiskPath kept_results(const OpenedRun& open);
  Status store_result(OpenedRun& open, const RoundResult& result);
  void drop_results(OpenedRun& open, std::uint64_t down_to_bytes);

  OpenedRun* find(const RunId& run) {
    const auto found = runs.find(run);
    return found == runs.end() ? nullptr : &found->second;
  }
  [[nodiscard]] Error why_not_open(const RunId& run) const {
    const auto found = unopened.find(run);
    return found != unopened.end() ? found->second : Error{Code::conflict, "run " + run.text + " is not open here"};
  }
  // Puts a stretch of time from `start` to now into the span log.
  void note(const RunId& run, SpanKind kind, Round round, std::uint32_t fragment, TimePoint start, std::uint64_t amount = 0);
  // When a round is applied: what came from whom and when, and what others read from here.
  void note_exchange(const RunId& run, const RoundExchange& exchange, const RoundMeter& meter);
  // Whether its trainer wrote into the arena out of turn.
  void tell_misuse(OpenedRun& open);
  void note(const RunId& run, Span span) {
    if (settings.spans) {
      settings.spans->add(run, std::move(span));
    }
  }
  // A round has come to this phase here.
  void reach(RoundPhase phase, Round round) {
    if (settings.rehearsal) {
      settings.rehearsal->reached(phase, round);
    }
  }
  // What only a look shows: whether others read here.
  void look_for_readers();
  void suspect(const std::vector<DroppedSource>& sources);
  void say(Event event) { answers.emplace_back(std::move(event)); }

  EngineSettings settings;
  std::unique_ptr<BulkLink> link;
  std::shared_ptr<ReceiveBuffers> buffers = std::make_shared<ReceiveBuffers>();  // of what exchanges received
  WantSettings wants;            // windows that follow the paths, and what was learned of them
  std::map<IslandId, Way> ways;  // to those that are connected
  std::vector<EngineAnswer> answers;
  std::map<RunId, OpenedRun> runs;
  std::map<RunId, Error> unopened;
  std::map<RunId, Audience> audiences;
  double owners_uplink = 0;  // what the island's owner lets it send, in bits a second; 0: no limit
  std::vector<Member> neighbours;
  std::map<IslandId, std::string> addresses;  // the newest that was told of each peer
  std::map<RunId, std::set<Round>> served;    // checkpoints
  std::deque<std::shared_ptr<Pruning>> prunings;
  std::map<BlobId, ContentFetch> content_fetches;
  PathProbes probes;
  PathWatch watch;
  TimePoint looked;       // when it last looked for pieces
  TimePoint looks_since;  // since then it has looked without a pause, in which what came would lie unread
  PathMeasure measure;
  std::uint32_t measurement = 0;                    // the one under way
  std::map<RunId, std::uint64_t> content_received;  // bytes
};

}  // namespace atl::agent

#include "tests/sim/pair_world.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "agent/pair_exchange.hpp"
#include "strategies/pairing.hpp"
#include "transport/base/rng.hpp"
#include "transport/simulated_network.hpp"

namespace atl::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRounds = 12;
constexpr std::uint64_t kValues = 40;
constexpr Duration kSilence = 5s;       // until the coordinator drops an island
constexpr Duration kTimeLimit = std::chrono::hours(2);
const RunId kRun("r-pairs");

// What an island did in a round, as it would be checkpointed.
struct Done {
  Epoch epoch;
  IslandId partner;  // empty: it sat out
  bool met = false;
  Bytes used;  // the two gradients in order, where they met
};

struct Life {
  std::uint64_t incarnation = 0;  // grows when it dies or leaves the epoch: what it did before is void
  std::map<Round, Done> done;
};

Bytes encoded(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  Rng rng(a, stream_of("bytes", b * 100 + c));
  std::vector<float> values(kValues);
  for (float& value : values) {
    value = static_cast<float>(rng.uniform());
  }
  Bytes bytes(encoded_bytes(CodecSettings{}, kValues));
  static_cast<void>(encode(CodecSettings{}, values, bytes));
  return bytes;
}

Payload payload_of(Bytes bytes) {
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return Payload{*owner, owner};
}

class Island final : public PieceReceiver {
 public:
  Island(SimulatedNetwork& network, std::uint64_t seed, std::size_t number)
      : network_(network), seed_(seed), number_(number), id_("island-" + std::to_string(number)), rng_(seed, stream_of("island", number)) {
    pace_ = std::chrono::milliseconds(200 + rng_.below(800));
    if (rng_.chance(0.2)) {
      pace_ *= 5;
    }
  }

  // Comes up with the state of round `from`; what it did before is void.
  void come_up(Round from, TimePoint now) {
    go_down();
    ++life.incarnation;
    life.done.clear();
    store_ = std::make_shared<BlobStore>();
    link_ = network_.bulk_link(id_, store_);
    round_ = from.next();
    epoch = Epoch(0);
    members.clear();
    begin_training(now);
  }
  void go_down() {
    pair_.reset();
    link_.reset();
    store_.reset();
  }
  [[nodiscard]] bool up() const { return link_ != nullptr; }
  [[nodiscard]] bool finished() const { return round_.value > kRounds; }
  [[nodiscard]] Round round() const { return round_; }
  [[nodiscard]] const IslandId& id() const { return id_; }
  [[nodiscard]] Rng& rng() { return rng_; }

  // In doubt for a while: what the coordinator would relay.
  [[nodiscard]] std::optional<std::pair<Epoch, Round>> doubt(TimePoint now) const {
    if (pair_ && pair_->in_doubt_since() && now - *pair_->in_doubt_since() > 2s) {
      return std::pair(pair_->plan().epoch, pair_->plan().round);
    }
    return std::nullopt;
  }
  [[nodiscard]] IslandId partner() const { return pair_ ? pair_->plan().partner : IslandId(); }
  void settle(bool met, TimePoint now) {
    pair_->settle(met);
    turn(now);
  }
  // Its decision as decider of that pair; nothing while there is none.
  [[nodiscard]] std::optional<bool> decided(Epoch at, Round round, const IslandId& with) const {
    if (const auto found = verdicts_.find({life.incarnation, at, round}); found != verdicts_.end()) {
      return found->second;
    }
    // It never was in that pair, or it gave it up with the epoch.
    if (pair_ && pair_->plan().epoch == at && pair_->plan().round == round && pair_->plan().partner == with) {
      return std::nullopt;
    }
    return epoch > at || round_ > round ? std::optional(false) : std::nullopt;
  }

  void hear(Epoch said, const std::vector<IslandId>& now_members, TimePoint now) {
    if (!up() || said <= epoch) {
      return;
    }
    epoch = said;
    members = now_members;
    std::vector<Member> peers;
    for (const IslandId& member : members) {
      peers.push_back(Member{member, "", "", ""});
    }
    store_->set_readers(kRun, members);
    static_cast<void>(link_->set_peers(peers));
    if (pair_) {
      const bool left = std::find(members.begin(), members.end(), pair_->plan().partner) == members.end();
      pair_->abandon(left, left ? "the partner left" : "the epoch changed");
      if (!pair_->in_doubt_since() && !pair_->outcome()) {
        pair_.reset();  // not at the step yet
      }
    }
    turn(now);
  }

  void turn(TimePoint now) {
    if (!up()) {
      return;
    }
    while (link_->receive(now, *this)) {
    }
    if (finished() || epoch == Epoch(0)) {
      return;
    }
    if (!pair_ && !sits_out_) {
      prepare(now);
    }
    if (now >= trained_at_ && !arrived_) {
      arrived_ = true;
      if (pair_) {
        pair_->arrive(payload_of(gradient_of(life.incarnation, round_)), now, now + 8s);
      }
    }
    if (pair_) {
      for (const OutgoingWant& want : pair_->take_wants(now)) {
        if (!link_->want(want)) {
          pair_->not_sent(now, want);
        }
      }
    }
    if (arrived_ && (sits_out_ || (pair_ && pair_->outcome()))) {
      finish_round(now);
    }
  }

  [[nodiscard]] std::optional<TimePoint> next() const {
    if (!up() || finished() || epoch == Epoch(0)) {
      return std::nullopt;
    }
    std::optional<TimePoint> next = arrived_ ? std::nullopt : std::optional(trained_at_);
    if (pair_) {
      if (const auto pair = pair_->next_deadline(); pair && (!next || *pair < *next)) {
        next = pair;
      }
    }
    return next;
  }

  [[nodiscard]] Bytes gradient_of(std::uint64_t incarnation, Round round) const { return encoded(seed_ * 100 + number_, incarnation, round.value); }

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override {
    return pair_ && pair_->reads(piece.blob) ? pair_->destination(from, piece) : std::span<std::byte>();
  }
  void arrived(TimePoint at, const IslandId& from, const BlobPiece& piece) override {
    if (pair_ && pair_->reads(piece.blob)) {
      pair_->arrived(at, from, piece);
    }
  }
  void gone(TimePoint at, const IslandId& from, const Gone& refusal) override {
    if (pair_) {
      pair_->gone(at, from, refusal);
    }
  }
  void connected(TimePoint at, const IslandId& peer) override {
    if (pair_) {
      pair_->connected(at, peer);
    }
  }

  Life life;
  Epoch epoch;
  std::vector<IslandId> members;

 private:
  void begin_training(TimePoint now) {
    arrived_ = false;
    sits_out_ = false;
    trained_at_ = now + pace_ + std::chrono::milliseconds(rng_.below(400));
  }
  void prepare(TimePoint now) {
    const std::vector<IslandId> group = group_of(id_, seed_, round_, members);
    if (group.size() < 2) {
      sits_out_ = true;
      return;
    }
    const IslandId partner = group[0] == id_ ? group[1] : group[0];
    PairPlan plan{kRun, epoch, round_, id_, partner, kValues, {}, {}, 2};
    pair_ = std::make_unique<PairExchange>(plan, payload_of(encoded(seed_ * 100 + number_, 1000 + life.incarnation, round_.value)), *store_, now);
    if (arrived_) {  // of an epoch that came while it waited
      pair_->arrive(payload_of(gradient_of(life.incarnation, round_)), now, now + 8s);
    }
  }
  void finish_round(TimePoint now) {
    Done done{epoch, {}, false, {}};
    if (pair_) {
      done.epoch = pair_->plan().epoch;
      done.partner = pair_->plan().partner;
      done.met = pair_->outcome()->met;
      if (pair_->decider()) {
        verdicts_[{life.incarnation, done.epoch, round_}] = done.met;
      }
      if (done.met) {
        const Bytes own = gradient_of(life.incarnation, round_);
        const Bytes theirs(pair_->gradient().begin(), pair_->gradient().end());
        for (const Bytes& part : pair_->decider() ? std::vector{own, theirs} : std::vector{theirs, own}) {
          done.used.insert(done.used.end(), part.begin(), part.end());
        }
      }
    }
    life.done[round_] = std::move(done);
    pair_.reset();
    store_->finish_rounds_before(kRun, round_.next());
    round_ = round_.next();
    begin_training(now);
  }

  SimulatedNetwork& network_;
  std::uint64_t seed_;
  std::size_t number_;
  IslandId id_;
  Rng rng_;
  Duration pace_{};
  std::shared_ptr<BlobStore> store_;
  std::unique_ptr<BulkLink> link_;
  std::unique_ptr<PairExchange> pair_;
  Round round_{1};
  TimePoint trained_at_;
  bool arrived_ = false;
  bool sits_out_ = false;
  std::map<std::tuple<std::uint64_t, Epoch, Round>, bool> verdicts_;
};

class World {
 public:
  World(std::uint64_t seed, PairWorldCounts& counts) : rng_(seed, stream_of("pair world")), network_(seed), counts_(counts), now_(network_.now()) {
    PathConditions conditions;
    conditions.latency = std::chrono::milliseconds(1 + rng_.below(80));
    conditions.jitter = std::chrono::milliseconds(rng_.below(60));
    if (rng_.chance(0.7)) {
      conditions.loss = 0.15 * rng_.uniform();
      conditions.duplication = 0.1 * rng_.uniform();
      conditions.reordering = 0.1 * rng_.uniform();
      conditions.replay = 0.1 * rng_.uniform();
    }
    network_.set_conditions(conditions);
    const std::size_t count = 2 + rng_.below(5);
    for (std::size_t i = 0; i < count; ++i) {
      islands_.push_back(std::make_unique<Island>(network_, seed, i));
      islands_.back()->come_up(Round(0), now_);
      members_.push_back(islands_.back()->id());
    }
    trouble_until_ = now_ + 60s;
    next_trouble_ = now_ + std::chrono::milliseconds(rng_.below(4000));
    announce();
  }

  std::string run() {
    const TimePoint limit = now_ + kTimeLimit;
    // Whoever was dropped and has not heard of it yet will begin anew: what it did is void.
    while (!std::all_of(islands_.begin(), islands_.end(), [this](const auto& island) { return island->finished() && is_member(island->id()) && !reborn_.contains(island->id()); })) {
      if (now_ > limit) {
        return "not finished: " + where();
      }
      step();
    }
    return check();
  }

 private:
  struct Telling {
    TimePoint at;
    Epoch epoch;
    std::vector<IslandId> members;
  };

  void step() {
    TimePoint next = now_ + 500ms;
    const auto sooner = [&](std::optional<TimePoint> time) { next = time && *time < next ? *time : next; };
    sooner(network_.next_event());
    for (const auto& island : islands_) {
      sooner(island->next());
    }
    now_ = std::max(next, now_ + std::chrono::microseconds(1));
    network_.advance_to(now_);
    trouble();
    coordinate();
    for (const auto& island : islands_) {
      island->turn(now_);
    }
  }

  Island& any() { return *islands_[static_cast<std::size_t>(rng_.below(islands_.size()))]; }

  void trouble() {
    if (now_ < next_trouble_) {
      return;
    }
    next_trouble_ = now_ + std::chrono::milliseconds(rng_.below(3000));
    if (now_ > trouble_until_) {
      network_.heal_all();
      network_.set_conditions(PathConditions{});
      coordinator_back_ = now_;
      silent_.clear();
      for (const auto& island : islands_) {
        revive(*island);
      }
      next_trouble_ = now_ + 1s;
      return;
    }
    switch (rng_.below(7)) {
      case 0:
        network_.cut(any().id().text, any().id().text);
        break;
      case 1: {
        const std::string a = any().id().text;
        const std::string b = any().id().text;
        network_.cut(a, b);
        network_.cut(b, a);
        break;
      }
      case 2:
        network_.heal_all();
        break;
      case 3: {
        Island& victim = any();
        if (victim.up() && up_count() > 1) {
          victim.go_down();
          ++counts_.deaths;
        }
        break;
      }
      case 4:
        coordinator_back_ = now_ + std::chrono::milliseconds(rng_.below(20'000));
        break;
      case 5:
        silent_[any().id()] = now_ + std::chrono::milliseconds(rng_.below(12'000));  // to the coordinator only: it is alive
        break;
      default:
        revive(any());
        break;
    }
  }

  [[nodiscard]] std::size_t up_count() const {
    return static_cast<std::size_t>(std::count_if(islands_.begin(), islands_.end(), [](const auto& island) { return island->up(); }));
  }
  [[nodiscard]] bool is_member(const IslandId& id) const { return std::find(members_.begin(), members_.end(), id) != members_.end(); }
  [[nodiscard]] bool heard(const Island& island) const {
    const auto silent = silent_.find(island.id());
    return island.up() && (silent == silent_.end() || now_ >= silent->second);
  }
  Island& at(const IslandId& id) {
    return **std::find_if(islands_.begin(), islands_.end(), [&](const auto& island) { return island->id() == id; });
  }

  // Its agent is started again; the coordinator sees another boot and lets it in with another's state.
  void revive(Island& island) {
    if (!island.up()) {
      island.come_up(Round(0), now_);
      reborn_.insert(island.id());
    }
  }

  void announce() {
    ++epoch_.value;
    for (const auto& island : islands_) {
      tellings_[island->id()] = Telling{now_ + std::chrono::milliseconds(rng_.below(300)), epoch_, members_};
    }
  }

  // The membership, as the coordinator keeps it; nothing while it is away.
  void coordinate() {
    if (now_ < coordinator_back_) {
      return;
    }
    for (const auto& island : islands_) {
      const bool here = heard(*island);
      TimePoint& since = silent_since_[island->id()];
      since = here ? now_ : std::max(since, TimePoint{});
      const bool lost = reborn_.contains(island->id()) || (!here && now_ - since > kSilence);
      if (is_member(island->id()) && lost) {
        std::erase(members_, island->id());
        announce();
      }
      if (!is_member(island->id()) && here) {
        // Whoever left comes back with the state of another, never with its own.
        const auto source = std::find_if(islands_.begin(), islands_.end(), [&](const auto& other) { return other->up() && is_member(other->id()); });
        island->come_up(source == islands_.end() ? Round(0) : Round((*source)->round().value - 1), now_);
        reborn_.erase(island->id());
        members_.push_back(island->id());
        ++counts_.joins;
        announce();
      }
      if (const auto telling = tellings_.find(island->id()); telling != tellings_.end() && here && now_ >= telling->second.at) {
        island->hear(telling->second.epoch, telling->second.members, now_);
        if (is_member(island->id()) || telling->second.epoch < epoch_) {
          telling->second.at = now_ + 1s;  // repeated; the island drops what it knows
        }
      }
      relay(*island);
    }
  }

  // An island that asks what its decider decided, and the decider's answer.
  void relay(Island& island) {
    const auto doubt = island.doubt(now_);
    if (!doubt || !heard(island)) {
      return;
    }
    Island& decider = at(island.partner());
    if (!heard(decider) || !is_member(decider.id()) || !is_member(island.id())) {
      return;
    }
    if (const std::optional<bool> decided = decider.decided(doubt->first, doubt->second, island.id())) {
      ++counts_.doubts;
      island.settle(*decided, now_);
    }
  }

  [[nodiscard]] std::string where() const {
    std::string text;
    for (const auto& island : islands_) {
      text += island->id().text + " at round " + std::to_string(island->round().value) + (island->up() ? "" : " (down)") + "; ";
    }
    return text;
  }

  std::string check() {
    for (const auto& island : islands_) {
      for (const auto& [round, done] : island->life.done) {
        counts_.met += done.met ? 1U : 0U;
        counts_.alone += done.met ? 0U : 1U;
        if (!done.met) {
          continue;
        }
        // Whom it met may have left since: then that one's outcome is void, and its own stands.
        const std::map<Round, Done>& others = at(done.partner).life.done;
        const auto other = others.find(round);
        if (other == others.end() || other->second.epoch != done.epoch) {
          continue;
        }
        if (!other->second.met || other->second.partner != island->id()) {
          return island->id().text + " met " + done.partner.text + " in round " + std::to_string(round.value) + ", which went alone";
        }
        if (other->second.used != done.used) {
          return island->id().text + " and " + done.partner.text + " used different bytes in round " + std::to_string(round.value);
        }
      }
    }
    return {};
  }

  Rng rng_;
  SimulatedNetwork network_;
  PairWorldCounts& counts_;
  TimePoint now_;
  std::vector<std::unique_ptr<Island>> islands_;
  std::vector<IslandId> members_;
  Epoch epoch_;
  std::map<IslandId, Telling> tellings_;
  std::map<IslandId, TimePoint> silent_;
  std::map<IslandId, TimePoint> silent_since_;
  std::set<IslandId> reborn_;
  TimePoint trouble_until_;
  TimePoint next_trouble_;
  TimePoint coordinator_back_;
};

}  // namespace

std::string run_pair_world(std::uint64_t seed, PairWorldCounts& counts) { return World(seed, counts).run(); }

}  // namespace atl::sim

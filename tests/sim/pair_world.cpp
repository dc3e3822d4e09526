#include "tests/sim/pair_world.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "agent/engine/pair_exchange.hpp"
#include "strategies/pairing.hpp"
#include "transport/base/rng.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace atl::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRounds = 12;
constexpr std::uint64_t kValues = 40;
constexpr Duration kSilence = 5s;  // until the coordinator drops an island
constexpr Duration kTimeLimit = std::chrono::hours(2);
const RunId kRun("r-pairs");

// What an island did in a round, as it would be checkpointed.
struct Done {
  Epoch epoch;
  std::vector<IslandId> group;  // empty: it sat out
  bool met = false;
  Bytes used;  // the gradients in order, where they met
};

struct Life {
  std::uint64_t incarnation = 0;  // grows when it dies or leaves the epoch: what it did before is void
  Epoch born;                     // the first epoch that it heard of
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

class Island final : public PieceReceiver {
 public:
  Island(SimulatedNetwork& network, std::uint64_t seed, std::size_t number, std::uint32_t group_size)
      : network_(network),
        seed_(seed),
        number_(number),
        group_size_(group_size),
        id_("island-" + std::to_string(number)),
        rng_(seed, stream_of("island", number)) {
    pace_ = std::chrono::milliseconds(200 + rng_.below(800));
    if (rng_.chance(0.2)) {
      pace_ *= 5;
    }
  }

  // Comes up with the state of round `from`; what it did before is void.
  void come_up(Round from, TimePoint now) {
    go_down();
    ++life.incarnation;
    life.born = Epoch(0);
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

  [[nodiscard]] bool in_doubt() const { return pair_ && pair_->in_doubt_since(); }
  // In doubt for a while: what it asks the others about.
  [[nodiscard]] std::optional<std::pair<Epoch, Round>> doubt(TimePoint now) const {
    if (pair_ && pair_->in_doubt_since() && now - *pair_->in_doubt_since() > 2s) {
      return std::pair(pair_->plan().epoch, pair_->plan().round);
    }
    return std::nullopt;
  }
  [[nodiscard]] const PairExchange& pair() const { return *pair_; }
  // True if that ends the doubt.
  bool hear_of(Epoch at, Round round, const IslandId& from, Epoch asked_in, PairWord word, TimePoint now) {
    if (!pair_ || pair_->plan().epoch != at || pair_->plan().round != round || !pair_->in_doubt_since()) {
      return false;
    }
    pair_->hear(from, asked_in, word);
    const bool ended = pair_->outcome().has_value();
    turn(now);
    return ended;
  }
  // What it answers to one in doubt; nothing while it cannot.
  [[nodiscard]] std::optional<PairWord> word(Epoch at, Round round, Epoch asked_in) {
    if (epoch != asked_in) {
      return std::nullopt;
    }
    if (at < life.born) {
      return PairWord::voided;
    }
    if (const auto done = life.done.find(round); done != life.done.end()) {
      return done->second.met && done->second.epoch == at ? PairWord::met : PairWord::alone;
    }
    if (pair_ && pair_->plan().epoch == at && pair_->plan().round == round) {
      return pair_->renounce(asked_in) ? std::optional(PairWord::doubt) : std::nullopt;
    }
    return epoch > at ? std::optional(PairWord::alone) : std::nullopt;
  }

  void hear(Epoch said, const std::vector<IslandId>& now_members, TimePoint now) {
    if (!up() || said <= epoch) {
      return;
    }
    life.born = epoch == Epoch(0) ? said : life.born;
    epoch = said;
    members = now_members;
    std::vector<Member> peers;
    for (const IslandId& member : members) {
      peers.push_back(Member{member, "", "", ""});
    }
    store_->set_readers(kRun, members);
    static_cast<void>(link_->set_peers(peers));
    if (pair_) {
      pair_->change_epoch(epoch, members, "the epoch changed");
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

  [[nodiscard]] Bytes gradient_of(std::uint64_t incarnation, Round round) const {
    return encoded(seed_ * 100 + number_, incarnation, round.value);
  }

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
    const std::vector<IslandId> group = group_of(id_, seed_, round_, members, group_size_);
    if (group.size() < 2) {
      sits_out_ = true;
      return;
    }
    PairPlan plan{kRun, epoch, round_, id_, group, kValues, {}, {}, 2};
    pair_ = std::make_unique<PairExchange>(plan, payload_of(encoded(seed_ * 100 + number_, 1000 + life.incarnation, round_.value)), *store_,
                                           now);
    if (arrived_) {  // of an epoch that came while it waited
      pair_->arrive(payload_of(gradient_of(life.incarnation, round_)), now, now + 8s);
    }
  }
  void finish_round(TimePoint now) {
    Done done{epoch, {}, false, {}};
    if (pair_) {
      done.epoch = pair_->plan().epoch;
      done.group = pair_->plan().group;
      done.met = pair_->outcome()->met;
      if (done.met) {
        const Bytes own = gradient_of(life.incarnation, round_);
        for (const ByteView part : pair_->gradients(own)) {
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
  std::uint32_t group_size_;
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
};

class World {
 public:
  World(std::uint64_t seed, PairWorldCounts& counts)
      : rng_(seed, stream_of("pair world")), network_(seed), counts_(counts), now_(network_.now()) {
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
    const std::uint32_t group_size = rng_.chance(0.5) ? 2 : rng_.chance(0.7) ? 3 : 4;
    const std::size_t count = group_size + rng_.below(5);
    for (std::size_t i = 0; i < count; ++i) {
      islands_.push_back(std::make_unique<Island>(network_, seed, i, group_size));
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
    while (!std::all_of(islands_.begin(), islands_.end(), [this](const auto& island) {
      return island->finished() && is_member(island->id()) && !reborn_.contains(island->id());
    })) {
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
        const auto source =
            std::find_if(islands_.begin(), islands_.end(), [&](const auto& other) { return other->up() && is_member(other->id()); });
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
      ask(*island);
    }
    pass_on();
  }

  // An island in doubt asks the others of its group; the coordinator passes questions and answers on as long as the epoch is the same.
  void ask(Island& island) {
    const auto doubt = island.doubt(now_);
    TimePoint& again = ask_again_[island.id()];
    if (!doubt || !heard(island) || now_ < again) {
      return;
    }
    again = now_ + 2s;
    for (const IslandId& other : island.pair().to_ask()) {
      post({now_ + on_its_way(), doubt->first, doubt->second, island.id(), other, island.pair().epoch(), std::nullopt});
    }
  }

  struct Note {
    TimePoint at;
    Epoch epoch;  // of the pair
    Round round;
    IslandId asker;
    IslandId asked;
    Epoch asked_in;
    std::optional<PairWord> word;  // the answer
  };

  void post(Note note) {
    if (!rng_.chance(0.1)) {
      notes_.push_back(std::move(note));
    }
  }
  Duration on_its_way() { return std::chrono::milliseconds(1 + rng_.below(rng_.chance(0.3) ? 4000 : 100)); }

  void pass_on() {
    std::vector<Note> due;
    std::erase_if(notes_, [&](const Note& note) { return note.at <= now_ && (due.push_back(note), true); });
    for (const Note& note : due) {
      Island& asked = at(note.asked);
      Island& asker = at(note.asker);
      if (note.asked_in != epoch_ || !is_member(note.asker) || !is_member(note.asked) || !heard(note.word ? asker : asked)) {
        continue;
      }
      if (!note.word) {
        if (const std::optional<PairWord> word = asked.word(note.epoch, note.round, note.asked_in)) {
          post({now_ + on_its_way(), note.epoch, note.round, note.asker, note.asked, note.asked_in, word});
        }
        continue;
      }
      const bool decider = asker.up() && asker.in_doubt() && asker.pair().plan().decider() == note.asked;
      const bool many = asker.in_doubt() && asker.pair().plan().group.size() > 2;
      if (asker.hear_of(note.epoch, note.round, note.asked, note.asked_in, *note.word, now_)) {
        ++counts_.doubts;
        const bool known = *note.word == PairWord::met || *note.word == PairWord::alone;
        counts_.handed_on += known && !decider ? 1U : 0U;
        counts_.forgotten += !known && many ? 1U : 0U;
      }
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
        for (const IslandId& member : done.group) {
          const Life& life = at(member).life;
          const auto other = life.done.find(round);
          if (life.born > done.epoch || other == life.done.end()) {
            continue;
          }
          if (!other->second.met || other->second.group != done.group || other->second.epoch != done.epoch) {
            return island->id().text + " met " + member.text + " in round " + std::to_string(round.value) + ", which went alone";
          }
          if (other->second.used != done.used) {
            return island->id().text + " and " + member.text + " used different bytes in round " + std::to_string(round.value);
          }
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
  std::map<IslandId, TimePoint> ask_again_;
  std::vector<Note> notes_;
  TimePoint trouble_until_;
  TimePoint next_trouble_;
  TimePoint coordinator_back_;
};

}  // namespace

std::string run_pair_world(std::uint64_t seed, PairWorldCounts& counts) { return World(seed, counts).run(); }

}  // namespace atl::sim

// FlatBuffers to messages: verify the whole frame first, then read it, then say whether all of it was within bounds.
#include <messages_generated.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "transport/base/address.hpp"
#include "transport/base/name.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/control/message.hpp"

namespace atl {
namespace {

constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 65536;
constexpr std::uint64_t kWindowMs = std::chrono::duration_cast<std::chrono::milliseconds>(kAvailabilityWindow).count();

// The numbers of the wire are those of the program; both are part of the protocol.
template <typename Wire, typename Program>
constexpr bool same(Wire wire, Program program) {
  return static_cast<unsigned>(wire) == static_cast<unsigned>(program);
}
static_assert(same(wire::Code::invalid_argument, Code::invalid_argument) && same(wire::Code::not_found, Code::not_found) &&
              same(wire::Code::conflict, Code::conflict) && same(wire::Code::unavailable, Code::unavailable) &&
              same(wire::Code::timeout, Code::timeout) && same(wire::Code::unauthorized, Code::unauthorized) &&
              same(wire::Code::corrupt, Code::corrupt) && same(wire::Code::io, Code::io) && same(wire::Code::cancelled, Code::cancelled) &&
              same(wire::Code::internal, Code::internal) && same(wire::Code::MAX, Code::internal));
static_assert(same(wire::Fate::rejected, Fate::rejected) && same(wire::Fate::too_stale, Fate::too_stale) &&
              same(wire::Fate::overrun, Fate::overrun) && same(wire::Fate::not_finite, Fate::not_finite) &&
              same(wire::Fate::dropped, Fate::dropped) && same(wire::Fate::MAX, Fate::dropped));
static_assert(same(wire::StartFrom::scratch, StartFrom::scratch) && same(wire::StartFrom::checkpoint, StartFrom::checkpoint) &&
              same(wire::StartFrom::peers, StartFrom::peers) && same(wire::StartFrom::memory, StartFrom::memory) &&
              same(wire::StartFrom::MAX, StartFrom::memory));
static_assert(same(wire::PairWord::met, PairWord::met) && same(wire::PairWord::alone, PairWord::alone) &&
              same(wire::PairWord::doubt, PairWord::doubt) && same(wire::PairWord::voided, PairWord::voided) &&
              same(wire::PairWord::MAX, PairWord::voided));
static_assert(same(wire::NotPunched::own_router, NotPunched::own_router) &&
              same(wire::NotPunched::peers_router, NotPunched::peers_router) &&
              same(wire::NotPunched::nothing_came, NotPunched::nothing_came) && same(wire::NotPunched::MAX, NotPunched::switched_off));
static_assert(same(wire::SpanKind::steps, SpanKind::steps) && same(wire::SpanKind::wait, SpanKind::wait) &&
              same(wire::SpanKind::encode, SpanKind::encode) && same(wire::SpanKind::send, SpanKind::send) &&
              same(wire::SpanKind::receive, SpanKind::receive) && same(wire::SpanKind::reduce, SpanKind::reduce) &&
              same(wire::SpanKind::outer_step, SpanKind::outer_step) && same(wire::SpanKind::checkpoint, SpanKind::checkpoint) &&
              same(wire::SpanKind::catch_up, SpanKind::catch_up) && same(wire::SpanKind::MAX, SpanKind::catch_up));

// Reads one verified envelope. A field over its bound is remembered as a problem and read as empty; the first problem is the error.
class Decoder {
 public:
  Result<Message> read(const wire::Envelope& envelope) {
    protocol_ = envelope.protocol();
    if (envelope.body() == nullptr) {
      return Error{Code::corrupt, "the message has no body"};
    }
    std::optional<Message> message = read_frozen(envelope);
    if (!message && protocol_ != kProtocolVersion) {
      return protocol_mismatch(protocol_, kProtocolVersion);
    }
    if (!message) {
      message = read_from_island(envelope);
    }
    if (!message) {
      message = read_from_coordinator(envelope);
    }
    if (!message) {
      return Error{Code::not_found, "a message is of a kind that this version does not know, number " +
                                        std::to_string(static_cast<unsigned>(envelope.body_type()))};
    }
    if (problem_ != nullptr) {
      return Error{Code::corrupt, std::string(kind_of(*message)) + " holds " + problem_};
    }
    return *std::move(message);
  }

 private:
  using Body = wire::Body;

  // Kinds that every version reads.
  std::optional<Message> read_frozen(const wire::Envelope& e) {
    switch (e.body_type()) {
      case Body::Hello:
        return get(*e.body_as_Hello());
      case Body::Enrol:
        return get(*e.body_as_Enrol());
      case Body::Request:
        return get(*e.body_as_Request());
      case Body::Refused:
        return Refused{get(e.body_as_Refused()->error())};
      case Body::Reply:
        return get(*e.body_as_Reply());
      default:
        return std::nullopt;
    }
  }
  std::optional<Message> read_from_island(const wire::Envelope& e) {
    switch (e.body_type()) {
      case Body::Heartbeat:
        return get(*e.body_as_Heartbeat());
      case Body::Ready:
        return get(*e.body_as_Ready());
      case Body::Exchanged:
        return get(*e.body_as_Exchanged());
      case Body::ExchangeFailed:
        return get(*e.body_as_ExchangeFailed());
      case Body::Withdrawn:
        return get(*e.body_as_Withdrawn());
      case Body::Merged:
        return get(*e.body_as_Merged());
      case Body::Checkpointed:
        return get(*e.body_as_Checkpointed());
      case Body::Copied:
        return get(*e.body_as_Copied());
      case Body::CaughtUp:
        return get(*e.body_as_CaughtUp());
      case Body::IslandEvent:
        return get(*e.body_as_IslandEvent());
      case Body::Timeline:
        return get(*e.body_as_Timeline());
      case Body::RunEnded:
        return get(*e.body_as_RunEnded());
      case Body::PathReport:
        return get(*e.body_as_PathReport());
      case Body::AssignmentReport:
        return get(*e.body_as_AssignmentReport());
      case Body::TaskImages:
        return get(*e.body_as_TaskImages());
      case Body::Holds:
        return get(*e.body_as_Holds());
      case Body::Ways:
        return get(*e.body_as_Ways());
      case Body::OwnRelay:
        return OwnRelay{address(e.body_as_OwnRelay()->address()), digest(e.body_as_OwnRelay()->secret())};
      case Body::Leave:
        return Leave{text(e.body_as_Leave()->why()), e.body_as_Leave()->contributes()};
      case Body::PairQuery:
        return get(*e.body_as_PairQuery());  // these two travel both ways
      case Body::PairAnswer:
        return get(*e.body_as_PairAnswer());
      default:
        return std::nullopt;
    }
  }
  std::optional<Message> read_from_coordinator(const wire::Envelope& e) {
    switch (e.body_type()) {
      case Body::Welcome:
        return get(*e.body_as_Welcome());
      case Body::Invite:
        return get(*e.body_as_Invite());
      case Body::NewEpoch:
        return get(*e.body_as_NewEpoch());
      case Body::Exchange:
        return get(*e.body_as_Exchange());
      case Body::Commit:
        return get(*e.body_as_Commit());
      case Body::Abort:
        return get(*e.body_as_Abort());
      case Body::Offer:
        return Offer{run(e.body_as_Offer()->run()), e.body_as_Offer()->offering()};
      case Body::CatchUp:
        return get(*e.body_as_CatchUp());
      case Body::Serve:
        return Serve{run(e.body_as_Serve()->run()), name(e.body_as_Serve()->reader_key()), round(e.body_as_Serve()->round()),
                     e.body_as_Serve()->allowed(), addresses(e.body_as_Serve()->reader_address(), e.body_as_Serve()->other_addresses())};
      case Body::Assignment:
        return get(*e.body_as_Assignment());
      case Body::Release:
        return get(*e.body_as_Release());
      case Body::Cut:
        return Cut{run(e.body_as_Cut()->run()), epoch(e.body_as_Cut()->epoch()), round(e.body_as_Cut()->round())};
      case Body::Neighbours:
        return get(*e.body_as_Neighbours());
      case Body::Over:
        return get(*e.body_as_Over());
      case Body::Relays:
        return get(*e.body_as_Relays());
      case Body::Drain:
        return Drain{text(e.body_as_Drain()->why())};
      case Body::Enrolled:
        return Enrolled{name(e.body_as_Enrolled()->role()), island(e.body_as_Enrolled()->island()), name(e.body_as_Enrolled()->name())};
      default:
        return std::nullopt;
    }
  }

  // fields
  void fail(const char* problem) {
    if (problem_ == nullptr) {
      problem_ = problem;
    }
  }
  std::string string(const flatbuffers::String* value, TextRule rule, std::size_t max_bytes) {
    if (value == nullptr) {
      return {};
    }
    const std::string_view view(value->c_str(), value->size());
    if (view.size() > max_bytes) {
      fail("a string that is too long");
      return {};
    }
    if (!is_plain(view, rule)) {
      fail("a string that is not plain UTF-8");
      return {};
    }
    return std::string(view);
  }
  std::string name(const flatbuffers::String* value) { return string(value, TextRule::name, kMaxNameBytes); }
  std::string text(const flatbuffers::String* value) { return string(value, TextRule::text, kMaxTextBytes); }
  std::string json(const flatbuffers::String* value) { return string(value, TextRule::json, kMaxMessageBytes); }
  // What may be empty, and is else part of paths on this machine.
  std::string checked(const flatbuffers::String* value, const char* problem, bool (*passes)(std::string_view)) {
    std::string given = name(value);
    if (!given.empty() && !passes(given)) {
      fail(problem);
      return {};
    }
    return given;
  }
  RunId run(const flatbuffers::String* value) { return RunId(checked(value, "a text that is no id of a run", is_name)); }
  IslandId island(const flatbuffers::String* value) { return IslandId(checked(value, "a text that is no id of an island", is_name)); }
  std::string task(const flatbuffers::String* value) { return checked(value, "a text that is no name of a task", is_task_name); }
  Bytes picture(const flatbuffers::Vector<std::uint8_t>* value) {
    if (value == nullptr) {
      return {};
    }
    if (value->size() > kMaxPictureBytes) {
      fail("a picture that is too large");
      return {};
    }
    const auto bytes = std::as_bytes(std::span(value->data(), value->size()));
    return {bytes.begin(), bytes.end()};
  }
  static Digest digest(const wire::Digest* value) { return value == nullptr ? Digest{} : std::bit_cast<Digest>(*value); }
  DataRange range(const wire::DataRange* value) {
    return value == nullptr ? DataRange{}
                            : DataRange{value->part(), amount(value->from()), amount(value->to()), amount(value->held_from())};
  }

  // numbers: no sum and no successor of what passes here wraps
  std::uint64_t at_most(std::uint64_t value, std::uint64_t most) {
    if (value > most) {
      fail("a number that is too large");
      return 0;
    }
    return value;
  }
  std::uint64_t count(std::uint64_t value) { return at_most(value, kMaxCount); }
  std::uint64_t amount(std::uint64_t value) { return at_most(value, kMaxAmount); }
  std::uint64_t milliseconds(std::uint64_t value) { return at_most(value, kMaxMilliseconds); }
  Generation generation(const wire::Generation* value) {
    constexpr std::uint64_t kLatest = std::uint64_t{1} << 33U;  // seconds since 1970, which are shown as a time: 2242
    return value == nullptr ? Generation{}
                            : Generation{at_most(value->restored(), kLatest), count(value->starts()), value->life(),
                                         std::bit_cast<Digest>(value->proof())};
  }
  Round round(std::uint64_t value) { return Round(count(value)); }
  Epoch epoch(std::uint64_t value) { return Epoch(count(value)); }
  Step step(std::uint64_t value) { return Step(count(value)); }
  std::vector<std::uint64_t> amounts(const flatbuffers::Vector<std::uint64_t>* items) {
    std::vector<std::uint64_t> values = numbers(items);
    for (std::uint64_t& value : values) {
      value = amount(value);
    }
    return values;
  }

  Code code(wire::Code value) {
    if (value > wire::Code::MAX) {
      fail("an unknown error code");
      return Code::internal;
    }
    return static_cast<Code>(value);
  }
  Fate fate(wire::Fate value) {
    if (value > wire::Fate::MAX) {
      fail("an unknown fate");
      return Fate::rejected;
    }
    return static_cast<Fate>(value);
  }
  StartFrom start_from(wire::StartFrom value) {
    if (value > wire::StartFrom::MAX) {
      fail("an unknown start");
      return StartFrom::scratch;
    }
    return static_cast<StartFrom>(value);
  }
  PairWord pair_word(wire::PairWord value) {
    if (value > wire::PairWord::MAX) {
      fail("an unknown word on a pair");
      return PairWord::doubt;
    }
    return static_cast<PairWord>(value);
  }

  NotPunched not_punched(wire::NotPunched value) {
    if (value > wire::NotPunched::MAX) {
      fail("an unknown reason on a way");
      return NotPunched::not_tried;
    }
    return static_cast<NotPunched>(value);
  }

  float finite(float value) {
    if (!std::isfinite(value)) {
      fail("a number that is not finite");
      return 0;
    }
    return value;
  }

  // Of a contribution; may be not finite.
  double length(double value) {
    if (value < 0) {
      fail("a length below zero");
      return 0;
    }
    return value;
  }

  template <typename Items>
  bool bounded(const Items& items) {
    if (items.size() > kMaxListItems) {
      fail("a list that is too long");
      return false;
    }
    return true;
  }
  template <typename Wire, typename Read>
  auto list(const flatbuffers::Vector<Wire>* items, Read read_item) {
    std::vector<decltype(read_item(items->Get(0)))> values;
    if (items == nullptr || !bounded(*items)) {
      return values;
    }
    values.reserve(items->size());
    for (flatbuffers::uoffset_t i = 0; i < items->size(); ++i) {
      values.push_back(read_item(items->Get(i)));
    }
    return values;
  }
  // The verifier does not see to it that what is wider than a vector's length is aligned: it is copied byte by byte.
  template <typename Number>
  std::vector<Number> numbers(const flatbuffers::Vector<Number>* items) {
    std::vector<Number> values(items == nullptr || !bounded(*items) ? 0 : items->size());
    if (!values.empty()) {
      std::memcpy(values.data(), items->Data(), values.size() * sizeof(Number));
    }
    return values;
  }
  std::vector<DataRange> ranges(const flatbuffers::Vector<const wire::DataRange*>* items) {
    std::vector<DataRange> values;
    const std::size_t count = items == nullptr || !bounded(*items) ? 0 : items->size();
    for (std::size_t i = 0; i < count; ++i) {
      wire::DataRange copy;
      std::memcpy(&copy, items->Data() + i * sizeof copy, sizeof copy);
      values.push_back(range(&copy));
    }
    return values;
  }
  DataStretch stretch(const wire::DataStretch* value) {
    DataStretch stretch{at_most(value->from(), kMostSequences), {}};
    const auto* items = value->classes();
    const std::size_t count = items == nullptr || !bounded(*items) ? 0 : items->size();
    for (std::size_t i = 0; i < count; ++i) {
      wire::DataClass copy;
      std::memcpy(&copy, items->Data() + i * sizeof copy, sizeof copy);
      stretch.classes.push_back(DataClass{copy.number(), at_most(copy.next(), kMostSequences)});
    }
    return stretch;
  }
  DataShare share(const wire::DataShare* value) {
    if (value == nullptr) {
      return {};
    }
    DataShare share{value->classes(), list(value->stretches(), [this](const wire::DataStretch* each) { return stretch(each); }),
                    value->slice(), value->slices()};
    if (!is_share(share)) {
      fail("an impossible share of the data");
    }
    return share;
  }
  std::vector<Member> members(const flatbuffers::Vector<flatbuffers::Offset<wire::Member>>* items) {
    return list(items, [this](const wire::Member* m) {
      return Member{island(m->island()), name(m->name()), name(m->public_key()), addresses(m->bulk_address(), m->other_addresses())};
    });
  }
  // As one text, which is taken apart again where it is sent on: so the first has no space, and each other one is an address.
  std::string addresses(const flatbuffers::String* first, const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* others) {
    std::string text = name(first);
    if (text.find(' ') != std::string::npos || (others != nullptr && others->size() >= kMostAddresses) ||
        (text.empty() && others != nullptr && others->size() > 0)) {
      fail("an impossible list of addresses");
      return {};
    }
    for (const std::string& other : list(others, [this](const flatbuffers::String* one) { return address(one); })) {
      text += " " + other;
    }
    return text;
  }
  std::string address(const flatbuffers::String* value) {
    std::string text = name(value);
    if (const Result<Address> address = parse_address(text);
        text.size() > kMostAddressBytes || text.find(' ') != std::string::npos || !address || address->port == 0) {
      fail("an impossible address");
    }
    return text;
  }

  PlaceCouples couples(const flatbuffers::Vector<std::uint32_t>* items, const flatbuffers::Vector<flatbuffers::Offset<wire::Member>>* of) {
    const std::vector<std::uint32_t> places = numbers(items);
    PlaceCouples couples;
    for (std::size_t i = 0; i + 1 < places.size(); i += 2) {
      couples.emplace_back(places[i], places[i + 1]);
    }
    const std::size_t count = of == nullptr ? 0 : of->size();
    const auto is_none = [&](const auto& couple) { return couple.first >= couple.second || couple.second >= count; };
    if (places.size() % 2 != 0 || std::ranges::any_of(couples, is_none) || !std::ranges::is_sorted(couples, std::ranges::less_equal())) {
      fail("an impossible list of paths to avoid");
    }
    return couples;
  }

  // parts
  Error get(const wire::Error* e) { return e == nullptr ? Error{Code::internal, ""} : Error{code(e->code()), text(e->why())}; }
  std::optional<Error> maybe(const wire::Error* e) { return e == nullptr ? std::nullopt : std::optional<Error>(get(e)); }
  HeldRun get(const wire::HeldRun& h) {
    return HeldRun{run(h.run()),
                   epoch(h.epoch()),
                   h.live(),
                   round(h.committed()),
                   digest(h.digest()),
                   list(h.checkpoints(),
                        [this](const wire::HeldCheckpoint* c) {
                          return HeldCheckpoint{round(c->round()), digest(c->digest()), epoch(c->epoch()), generation(c->generation())};
                        }),
                   h.part(),
                   amount(h.position()),
                   generation(h.generation()),
                   epoch(h.held_in())};
  }
  template <typename List>
  std::vector<OwnMetric> metrics(const List* given) {
    if (given != nullptr && given->size() > kMaxOwnMetrics) {
      fail("more own metrics than an island has");
      return {};
    }
    return list(given, [this](const wire::OwnMetric* metric) { return OwnMetric{name(metric->name()), metric->value()}; });
  }

  IslandReport get(const wire::IslandReport& r) {
    return IslandReport{run(r.run()),
                        name(r.state()),
                        text(r.reason()),
                        step(r.step()),
                        count(r.tokens()),
                        r.tokens_per_second(),
                        r.compute_seconds(),
                        r.wait_seconds(),
                        r.training_loss(),
                        count(r.bytes_sent()),
                        count(r.bytes_received()),
                        count(r.agent_memory_bytes()),
                        count(r.trainer_memory_bytes()),
                        count(r.parameters()),
                        metrics(r.metrics()),
                        text(r.enough()),
                        r.awaits_trainer()};
  }

  Span get(const wire::Span& s) {
    constexpr std::uint64_t kLongest = std::uint64_t{1} << 62U;
    if (s.kind() > wire::SpanKind::MAX || s.start_ns() < 0 || s.length_ns() > kLongest) {
      fail("a span that cannot be");
      return {};
    }
    return Span{static_cast<SpanKind>(s.kind()),
                round(s.round()),
                s.fragment(),
                island(s.peer()),
                TimePoint(Duration(s.start_ns())),
                Duration(static_cast<std::int64_t>(s.length_ns())),
                count(s.amount())};
  }

  // island to coordinator
  Hello get(const wire::Hello& m) {
    return Hello{protocol_,
                 name(m.version()),
                 name(m.name()),
                 m.boot(),
                 addresses(m.bulk_address(), m.other_addresses()),
                 name(m.platform()),
                 list(m.data_sets(), [this](const flatbuffers::String* set) { return name(set); }),
                 list(m.runs(), [this](const wire::HeldRun* held) { return get(*held); }),
                 m.codec_version(),
                 m.uplink_bits_per_second(),
                 text(m.kernels()),
                 list(m.trainers(), [this](const flatbuffers::String* trainer) { return name(trainer); }),
                 generation(m.generation()),
                 count(m.link_memory_bytes()),
                 list(m.copies(), [this](const flatbuffers::String* place) { return name(place); }),
                 name(m.place())};
  }
  Heartbeat get(const wire::Heartbeat& m) {
    return Heartbeat{m.boot(), list(m.reports(), [this](const wire::IslandReport* report) { return get(*report); })};
  }
  Ready get(const wire::Ready& m) {
    return Ready{run(m.run()),
                 epoch(m.epoch()),
                 round(m.round()),
                 digest(m.digest()),
                 {amount(m.tokens()), amount(m.steps()), m.training_loss(), length(m.norm()), m.fragment(), range(m.data()),
                  amount(m.sequences()), round(m.base()), m.staleness(), amount(m.overwritten()), m.fingerprint()}};
  }
  Exchanged get(const wire::Exchanged& m) {
    return Exchanged{run(m.run()),
                     epoch(m.epoch()),
                     round(m.round()),
                     Attempt(m.attempt()),
                     digest(m.digest()),
                     amount(m.bytes_sent()),
                     amount(m.bytes_received()),
                     m.seconds(),
                     island(m.slowest()),
                     m.arrived_seconds(),
                     list(m.parts(), [this](const wire::Digest* part) { return digest(part); })};
  }
  ExchangeFailed get(const wire::ExchangeFailed& m) {
    return ExchangeFailed{run(m.run()),
                          epoch(m.epoch()),
                          round(m.round()),
                          Attempt(m.attempt()),
                          island(m.accused()),
                          get(m.error()),
                          list(m.missing(), [this](const flatbuffers::String* each) { return island(each); })};
  }
  Neighbours get(const wire::Neighbours& m) { return Neighbours{members(m.islands()), m.measurement(), m.measure_ms()}; }
  PathReport get(const wire::PathReport& m) {
    return PathReport{island(m.from()), m.whole(), text(m.why()), m.measurement(), count(m.round_trip_us()), count(m.bytes_per_second()),
                      available(m)};
  }
  Availability available(const wire::PathReport& m) {
    const std::uint64_t watched = at_most(m.watched_ms(), kWindowMs);
    return Availability{std::chrono::milliseconds(watched), std::chrono::milliseconds(at_most(m.there_ms(), watched)),
                        static_cast<std::uint32_t>(at_most(m.changes(), kMaxPathChanges)),
                        std::chrono::milliseconds(at_most(m.steady_ms(), kWindowMs))};
  }
  Withdrawn get(const wire::Withdrawn& m) {
    Withdrawn withdrawn{run(m.run()), epoch(m.epoch()), round(m.round()), get(m.error()), fate(m.fate())};
    withdrawn.facts = {
        .tokens = amount(m.tokens()), .fragment = m.fragment(), .data = range(m.data()), .overwritten = amount(m.overwritten())};
    return withdrawn;
  }
  Merged get(const wire::Merged& m) {
    return Merged{
        run(m.run()),        round(m.round()), step(m.step()),      m.outer_loss(),
        m.local_loss(),      m.wait_seconds(), island(m.partner()), list(m.projection(), [this](float value) { return finite(value); }),
        metrics(m.metrics())};
  }
  Checkpointed get(const wire::Checkpointed& m) {
    return Checkpointed{run(m.run()), round(m.round()), digest(m.digest()), digest(m.file()), count(m.file_bytes()), maybe(m.error())};
  }
  Holds get(const wire::Holds& m) {
    return Holds{list(m.runs(), [this](const flatbuffers::String* held) { return run(held); })};
  }
  Over get(const wire::Over& m) {
    return Over{list(m.runs(), [this](const wire::RunOver* over) {
      return RunOver{run(over->run()), over->removed(), count(over->ended_seconds()), epoch(over->epoch()), round(over->round())};
    })};
  }
  Relays get(const wire::Relays& m) {
    return Relays{list(m.relays(), [this](const wire::RelayOffer* relay) {
      return RelayOffer{name(relay->name()), name(relay->address()), name(relay->pass()), relay->carries()};
    })};
  }
  Ways get(const wire::Ways& m) {
    return Ways{list(m.peers(), [this](const wire::PeerWay* way) {
      return PeerWay{island(way->peer()),
                     {name(way->relay()), way->punched(), not_punched(way->not_punched()), name(way->address()), way->proxied()}};
    })};
  }
  Copied get(const wire::Copied& m) {
    return Copied{run(m.run()),          round(m.round()), digest(m.digest()), count(m.bytes()),
                  count(m.sent_bytes()), m.seconds(),      text(m.place()),    maybe(m.error())};
  }
  CaughtUp get(const wire::CaughtUp& m) {
    return CaughtUp{run(m.run()), epoch(m.epoch()), round(m.round()), digest(m.digest()), maybe(m.error()), count(m.entry())};
  }
  PairQuery get(const wire::PairQuery& m) {
    return PairQuery{run(m.run()), epoch(m.epoch()), round(m.round()), island(m.asker()), island(m.asked()), epoch(m.asked_in())};
  }
  PairAnswer get(const wire::PairAnswer& m) {
    return PairAnswer{run(m.run()),         epoch(m.epoch()),    round(m.round()),   island(m.asker()),
                      island(m.answerer()), pair_word(m.word()), epoch(m.asked_in())};
  }
  IslandEvent get(const wire::IslandEvent& m) { return IslandEvent{run(m.run()), name(m.level()), name(m.kind()), text(m.text())}; }
  Timeline get(const wire::Timeline& m) {
    return Timeline{run(m.run()), list(m.spans(), [this](const wire::Span* span) { return get(*span); })};
  }
  RunEnded get(const wire::RunEnded& m) { return RunEnded{run(m.run()), round(m.round()), digest(m.digest()), maybe(m.error())}; }

  // coordinator to island
  Welcome get(const wire::Welcome& m) {
    return Welcome{name(m.version()),          island(m.island()),        milliseconds(m.heartbeat_ms()), milliseconds(m.dead_after_ms()),
                   milliseconds(m.stall_ms()), generation(m.generation())};
  }
  Invite get(const wire::Invite& m) {
    return Invite{run(m.run()),         json(m.spec()),       epoch(m.epoch()),   m.part(),
                  start_from(m.from()), round(m.committed()), digest(m.digest()), members(m.members()),
                  amount(m.position()), count(m.entry()),     share(m.share()),   couples(m.avoid(), m.members())};
  }
  NewEpoch get(const wire::NewEpoch& m) {
    return NewEpoch{run(m.run()),
                    epoch(m.epoch()),
                    round(m.committed()),
                    members(m.members()),
                    m.pause_after() > 0 ? std::optional(round(m.pause_after())) : std::nullopt,
                    count(m.tokens()),
                    m.share() == nullptr ? std::nullopt : std::optional(share(m.share())),
                    couples(m.avoid(), m.members())};
  }
  Exchange get(const wire::Exchange& m) {
    return Exchange{
        run(m.run()),
        epoch(m.epoch()),
        round(m.round()),
        Attempt(m.attempt()),
        list(m.members(), [this](const flatbuffers::String* member) { return island(member); }),
        {amounts(m.tokens()), list(m.shares(), [](std::uint8_t share) { return share; }), amounts(m.steps()), numbers(m.norms())},
        m.fragment(),
        m.rejected()};
  }
  Commit get(const wire::Commit& m) {
    return Commit{run(m.run()), epoch(m.epoch()),  round(m.round()), Attempt(m.attempt()), digest(m.digest()), m.checkpoint(),
                  m.pause(),    count(m.tokens()), m.copy(),         ranges(m.data())};
  }
  Abort get(const wire::Abort& m) { return Abort{run(m.run()), epoch(m.epoch()), round(m.round()), Attempt(m.attempt()), text(m.why())}; }
  CatchUp get(const wire::CatchUp& m) {
    return CatchUp{run(m.run()),
                   epoch(m.epoch()),
                   round(m.checkpoint_round()),
                   digest(m.checkpoint_file()),
                   count(m.checkpoint_bytes()),
                   round(m.committed()),
                   digest(m.digest()),
                   members(m.sources()),
                   m.part(),
                   amount(m.position())};
  }
  Content get(const wire::Content* c) {
    return c == nullptr ? Content{}
                        : Content{digest(c->digest()), count(c->bytes()),
                                  list(c->sources(), [this](const flatbuffers::String* source) { return island(source); })};
  }
  std::vector<Content> contents(const flatbuffers::Vector<flatbuffers::Offset<wire::Content>>* items) {
    return list(items, [this](const wire::Content* content) { return get(content); });
  }
  Assignment get(const wire::Assignment& m) {
    return Assignment{run(m.run()),
                      count(m.number()),
                      json(m.spec()),
                      members(m.members()),
                      task(m.task()),
                      list(m.inputs(),
                           [this](const wire::TaskInput* input) {
                             return TaskInput{task(input->task()), get(input->content())};
                           }),
                      get(m.resume()),
                      contents(m.keep()),
                      contents(m.drop()),
                      run(m.group()),
                      round(m.group_round()),
                      epoch(m.epoch())};
  }
  AssignmentReport get(const wire::AssignmentReport& m) {
    return AssignmentReport{run(m.run()),
                            count(m.number()),
                            task(m.task()),
                            name(m.state()),
                            count(m.step()),
                            count(m.steps()),
                            m.loss(),
                            m.images_per_second(),
                            m.compute_seconds(),
                            get(m.result()),
                            json(m.facts()),
                            get(m.checkpoint()),
                            count(m.checkpoint_step()),
                            contents(m.held()),
                            maybe(m.error()),
                            count(m.bytes_sent()),
                            count(m.bytes_received())};
  }
  TaskImages get(const wire::TaskImages& m) { return TaskImages{run(m.run()), task(m.task()), count(m.step()), picture(m.png())}; }
  Release get(const wire::Release& m) {
    return Release{run(m.run()), code(m.code()), m.completed(), text(m.why()), epoch(m.epoch()), m.place()};
  }

  // enrolment and operators
  Enrol get(const wire::Enrol& m) { return Enrol{protocol_, name(m.token_secret()), name(m.name())}; }
  Request get(const wire::Request& m) { return Request{protocol_, m.id(), name(m.verb()), json(m.arguments())}; }
  Reply get(const wire::Reply& m) { return Reply{m.id(), maybe(m.error()), json(m.document())}; }

  std::uint32_t protocol_ = 0;
  const char* problem_ = nullptr;
};

}  // namespace

Result<Message> decode(ByteView frame) {
  if (frame.size() > kMaxMessageBytes) {
    return Error{Code::corrupt, "the message takes " + human_bytes(frame.size()) + ", allowed are " + human_bytes(kMaxMessageBytes)};
  }
  // FlatBuffers reads numbers in place: the frame has to start where the widest of them may.
  Bytes aligned;
  if (std::bit_cast<std::uintptr_t>(frame.data()) % alignof(std::uint64_t) != 0) {
    aligned.assign(frame.begin(), frame.end());
    frame = aligned;
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data());
  flatbuffers::Verifier verifier(bytes, frame.size(), kMaxDepth, kMaxTables);
  if (frame.size() < 2 * sizeof(flatbuffers::uoffset_t) || !wire::VerifyEnvelopeBuffer(verifier)) {
    return Error{Code::corrupt, "the bytes are not a message of atoll's control link"};
  }
  return Decoder().read(*wire::GetEnvelope(bytes));
}

}  // namespace atl

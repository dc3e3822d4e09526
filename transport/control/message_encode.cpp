// Messages to FlatBuffers. Every Create call lists the fields in the order of messages.fbs.
#include <messages_generated.h>

#include <bit>

#include "transport/base/address.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/control/message.hpp"

namespace atl {
namespace {

template <typename T>
using Offset = flatbuffers::Offset<T>;
using TextOffset = Offset<flatbuffers::String>;
template <typename T>
using ListOffset = Offset<flatbuffers::Vector<T>>;

template <typename T>
constexpr wire::Body kind_on_wire(Offset<T> /*body*/) {
  return wire::BodyTraits<T>::enum_value;
}

// A struct is written through a pointer; "none" is left out.
class GenerationField {
 public:
  explicit GenerationField(const Generation& value)
      : wire_(value.restored, value.starts, value.life, std::bit_cast<wire::Digest>(value.proof)), present_(value.known()) {}
  const wire::Generation* get() const { return present_ ? &wire_ : nullptr; }

 private:
  wire::Generation wire_;
  bool present_;
};

class DigestField {
 public:
  explicit DigestField(const Digest& digest) : wire_(std::bit_cast<wire::Digest>(digest)), present_(!digest.empty()) {}
  [[nodiscard]] const wire::Digest* get() const { return present_ ? &wire_ : nullptr; }

 private:
  wire::Digest wire_;
  bool present_;
};

class RangeField {
 public:
  explicit RangeField(const DataRange& range) : wire_(range.part, range.from, range.to, range.held_from), present_(range != DataRange{}) {}
  [[nodiscard]] const wire::DataRange* get() const { return present_ ? &wire_ : nullptr; }

 private:
  wire::DataRange wire_;
  bool present_;
};

// Puts one message into a buffer. What does not fit the bounds is remembered as a problem: the first one is the error.
class Encoder {
 public:
  Result<Bytes> finish(const Message& message) {
    std::visit([this](const auto& value) { envelope(value); }, message);
    if (problem_) {
      return with_context(*problem_, "cannot send " + std::string(kind_of(message)));
    }
    if (builder_.GetSize() > kMaxMessageBytes) {
      return Error{Code::invalid_argument, "cannot send " + std::string(kind_of(message)) + ": it takes " +
                                               human_bytes(builder_.GetSize()) + ", allowed are " + human_bytes(kMaxMessageBytes)};
    }
    const auto* begin = reinterpret_cast<const std::byte*>(builder_.GetBufferPointer());
    return Bytes(begin, begin + builder_.GetSize());
  }

 private:
  static std::uint64_t milliseconds(Duration time) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  }

  template <typename T>
  void envelope(const T& value) {
    std::uint32_t protocol = kProtocolVersion;
    if constexpr (requires { value.protocol; }) {
      protocol = value.protocol;
    }
    const auto body = put(value);
    builder_.Finish(wire::CreateEnvelope(builder_, protocol, kind_on_wire(body), body.Union()), wire::EnvelopeIdentifier());
  }

  void fail(std::string why) {
    if (!problem_) {
      problem_ = Error{Code::invalid_argument, std::move(why)};
    }
  }

  TextOffset string(std::string_view value) { return builder_.CreateString(value.data(), value.size()); }
  TextOffset name(const std::string& value, const char* field) {
    if (value.size() > kMaxNameBytes || !is_plain(value, TextRule::name)) {
      fail(std::string(field) + " has to be UTF-8 without control characters, of at most " + std::to_string(kMaxNameBytes) + " bytes");
      return {};
    }
    return string(value);
  }
  TextOffset name(const RunId& run) { return name(run.text, "the run's id"); }
  TextOffset name(const IslandId& island) { return name(island.text, "the island's id"); }
  TextOffset text(const std::string& value) { return string(make_plain(value, TextRule::text, kMaxTextBytes)); }
  TextOffset json(const std::string& value, const char* field) {
    if (value.size() > kMaxMessageBytes) {
      fail(std::string(field) + " takes " + human_bytes(value.size()) + ", allowed are " + human_bytes(kMaxMessageBytes));
      return {};
    }
    if (!is_plain(value, TextRule::json)) {
      fail(std::string(field) + " is not UTF-8");
      return {};
    }
    return string(value);
  }

  // A list of whatever `write` makes of each item.
  template <typename Item, typename Write>
  auto list(const std::vector<Item>& items, const char* field, Write write) -> ListOffset<decltype(write(items[0]))> {
    if (items.size() > kMaxListItems) {
      fail(std::string(field) + " has " + std::to_string(items.size()) + " items, allowed are " + std::to_string(kMaxListItems));
      return {};
    }
    if (items.empty()) {
      return {};
    }
    std::vector<decltype(write(items[0]))> offsets;
    offsets.reserve(items.size());
    for (const Item& item : items) {
      offsets.push_back(write(item));
    }
    return builder_.CreateVector(offsets);
  }
  Offset<flatbuffers::Vector<const wire::DataRange*>> ranges(const std::vector<DataRange>& items, const char* field) {
    if (items.size() > kMaxListItems) {
      fail(std::string(field) + " has " + std::to_string(items.size()) + " items, allowed are " + std::to_string(kMaxListItems));
    }
    if (items.empty() || items.size() > kMaxListItems) {
      return {};
    }
    std::vector<wire::DataRange> values;
    values.reserve(items.size());
    for (const DataRange& item : items) {
      values.emplace_back(item.part, item.from, item.to, item.held_from);
    }
    return builder_.CreateVectorOfStructs(values);
  }
  Offset<flatbuffers::Vector<const wire::Digest*>> digests(const std::vector<Digest>& items, const char* field) {
    if (items.size() > kMaxListItems) {
      fail(std::string(field) + " has " + std::to_string(items.size()) + " items, allowed are " + std::to_string(kMaxListItems));
    }
    if (items.empty() || items.size() > kMaxListItems) {
      return {};
    }
    std::vector<wire::Digest> values;
    values.reserve(items.size());
    for (const Digest& item : items) {
      values.push_back(std::bit_cast<wire::Digest>(item));
    }
    return builder_.CreateVectorOfStructs(values);
  }
  ListOffset<Offset<wire::Member>> members(const std::vector<Member>& items, const char* field) {
    return list(items, field, [this](const Member& member) { return put(member); });
  }

  ListOffset<std::uint32_t> couples(const PlaceCouples& couples) {
    std::vector<std::uint32_t> places;
    for (const auto& [a, b] : couples) {
      places.insert(places.end(), {a, b});
    }
    return list(places, "the list of paths to avoid", [](std::uint32_t place) { return place; });
  }

  static wire::Code code(Code value) { return static_cast<wire::Code>(value); }
  Offset<wire::Error> put(const Error& error) { return wire::CreateError(builder_, code(error.code), text(error.why)); }
  Offset<wire::Error> put(const std::optional<Error>& error) { return error ? put(*error) : Offset<wire::Error>(); }

  // Of a text with several addresses the first is where it always was, for receivers that know no others.
  ListOffset<TextOffset> other_addresses(const std::string& text) {
    std::vector<std::string> others = addresses_in(text);
    others.erase(others.begin(), others.begin() + (others.empty() ? 0 : 1));
    others.resize(std::min(others.size(), kMostAddresses - 1));
    return list(others, "the list of addresses", [this](const std::string& other) { return name(other, "an address"); });
  }

  // parts
  Offset<wire::Member> put(const Member& m) {
    return wire::CreateMember(builder_, name(m.island), name(m.name, "a member's name"), name(m.public_key, "a member's key"),
                              name(first_address(m.bulk_address), "a member's bulk address"), other_addresses(m.bulk_address));
  }
  Offset<wire::HeldRun> put(const HeldRun& held) {
    const auto checkpoints = list(held.checkpoints, "the list of checkpoints", [this](const HeldCheckpoint& checkpoint) {
      return wire::CreateHeldCheckpoint(builder_, checkpoint.round.value, DigestField(checkpoint.digest).get(), checkpoint.epoch.value,
                                        GenerationField(checkpoint.generation).get());
    });
    return wire::CreateHeldRun(builder_, name(held.run), held.epoch.value, held.live, held.committed.value, DigestField(held.digest).get(),
                               checkpoints, held.part, held.position, GenerationField(held.generation).get(), held.held_in.value);
  }
  auto put(const std::vector<OwnMetric>& metrics) {
    return list(metrics, "the list of own metrics", [this](const OwnMetric& metric) {
      return wire::CreateOwnMetric(builder_, name(metric.name, "a metric's name"), metric.value);
    });
  }

  Offset<wire::IslandReport> put(const IslandReport& r) {
    return wire::CreateIslandReport(builder_, name(r.run), name(r.state, "an island's state"), text(r.reason), r.step.value, r.tokens,
                                    r.tokens_per_second, r.compute_seconds, r.wait_seconds, r.training_loss, r.bytes_sent, r.bytes_received,
                                    r.agent_memory_bytes, r.trainer_memory_bytes, r.parameters, put(r.metrics), text(r.enough),
                                    r.awaits_trainer);
  }

  Offset<wire::Span> put(const Span& s) {
    return wire::CreateSpan(builder_, static_cast<wire::SpanKind>(s.kind), s.round.value, s.fragment, name(s.peer),
                            s.start.time_since_epoch().count(), static_cast<std::uint64_t>(std::max(s.length, Duration::zero()).count()),
                            s.amount);
  }

  Offset<wire::DataStretch> put(const DataStretch& stretch) {
    if (stretch.classes.size() > kMaxListItems) {
      fail("the list of classes has more than " + std::to_string(kMaxListItems) + " items");
      return {};
    }
    std::vector<wire::DataClass> classes;
    classes.reserve(stretch.classes.size());
    for (const DataClass& each : stretch.classes) {
      classes.emplace_back(each.number, each.next);
    }
    return wire::CreateDataStretch(builder_, stretch.from, builder_.CreateVectorOfStructs(classes));
  }
  Offset<wire::DataShare> put(const DataShare& share) {
    const auto stretches = list(share.stretches, "the list of stretches", [this](const DataStretch& each) { return put(each); });
    return wire::CreateDataShare(builder_, share.classes, stretches, share.slice, share.slices);
  }

  // island to coordinator
  Offset<wire::Hello> put(const Hello& m) {
    const auto data_sets =
        list(m.data_sets, "the list of data sets", [this](const std::string& set) { return name(set, "a data set's name"); });
    const auto runs = list(m.runs, "the list of runs", [this](const HeldRun& held) { return put(held); });
    const auto trainers =
        list(m.trainers, "the list of trainers", [this](const std::string& trainer) { return name(trainer, "a trainer's name"); });
    const auto copies =
        list(m.copies, "the list of places for copies", [this](const std::string& place) { return name(place, "a place"); });
    return wire::CreateHello(builder_, name(m.version, "the version"), name(m.name, "the island's name"), m.boot,
                             name(first_address(m.bulk_address), "the bulk address"), name(m.platform, "the platform"), data_sets, runs,
                             m.codec_version, m.uplink_bits_per_second, text(m.kernels), trainers, GenerationField(m.generation).get(),
                             m.link_memory_bytes, copies, name(m.place, "the place of its state"), other_addresses(m.bulk_address));
  }
  Offset<wire::Heartbeat> put(const Heartbeat& m) {
    return wire::CreateHeartbeat(builder_, m.boot,
                                 list(m.reports, "the list of reports", [this](const IslandReport& r) { return put(r); }));
  }
  Offset<wire::Ready> put(const Ready& m) {
    const ContributionFacts& f = m.facts;
    return wire::CreateReady(builder_, name(m.run), m.epoch.value, m.round.value, f.tokens, f.steps, f.training_loss, f.norm,
                             DigestField(m.digest).get(), f.fragment, RangeField(f.data).get(), f.sequences, f.base.value, f.staleness,
                             f.overwritten, f.fingerprint);
  }
  Offset<wire::Exchanged> put(const Exchanged& m) {
    return wire::CreateExchanged(builder_, name(m.run), m.epoch.value, m.round.value, m.attempt.value, DigestField(m.digest).get(),
                                 m.bytes_sent, m.bytes_received, m.seconds, name(m.slowest), m.arrived_seconds,
                                 digests(m.parts, "the list of parts"));
  }
  Offset<wire::ExchangeFailed> put(const ExchangeFailed& m) {
    const auto missing = list(m.missing, "the list of who is missing", [this](const IslandId& island) { return name(island); });
    return wire::CreateExchangeFailed(builder_, name(m.run), m.epoch.value, m.round.value, m.attempt.value, name(m.accused), put(m.error),
                                      missing);
  }
  Offset<wire::PathReport> put(const PathReport& m) {
    return wire::CreatePathReport(builder_, name(m.from), m.whole, text(m.why), m.measurement, m.round_trip_us, m.bytes_per_second,
                                  milliseconds(m.available.watched), milliseconds(m.available.there), m.available.changes,
                                  milliseconds(m.available.steady));
  }
  Offset<wire::Withdrawn> put(const Withdrawn& m) {
    const ContributionFacts& f = m.facts;
    return wire::CreateWithdrawn(builder_, name(m.run), m.epoch.value, m.round.value, put(m.error), RangeField(f.data).get(), f.fragment,
                                 static_cast<wire::Fate>(m.fate), f.tokens, f.overwritten);
  }
  Offset<wire::Merged> put(const Merged& m) {
    return wire::CreateMerged(builder_, name(m.run), m.round.value, m.step.value, m.outer_loss, m.local_loss, m.wait_seconds,
                              name(m.partner), list(m.projection, "the projection", [](float value) { return value; }), put(m.metrics));
  }
  Offset<wire::PairQuery> put(const PairQuery& m) {
    return wire::CreatePairQuery(builder_, name(m.run), m.epoch.value, m.round.value, name(m.asker), name(m.asked), m.asked_in.value);
  }
  Offset<wire::PairAnswer> put(const PairAnswer& m) {
    return wire::CreatePairAnswer(builder_, name(m.run), m.epoch.value, m.round.value, name(m.asker), name(m.answerer),
                                  static_cast<wire::PairWord>(m.word), m.asked_in.value);
  }
  Offset<wire::Checkpointed> put(const Checkpointed& m) {
    return wire::CreateCheckpointed(builder_, name(m.run), m.round.value, DigestField(m.digest).get(), DigestField(m.file).get(),
                                    m.file_bytes, put(m.error));
  }
  Offset<wire::Copied> put(const Copied& m) {
    return wire::CreateCopied(builder_, name(m.run), m.round.value, DigestField(m.digest).get(), m.bytes, m.sent_bytes, m.seconds,
                              text(m.place), put(m.error));
  }
  Offset<wire::Holds> put(const Holds& m) {
    return wire::CreateHolds(builder_, list(m.runs, "the list of held runs", [this](const RunId& run) { return name(run); }));
  }
  Offset<wire::Over> put(const Over& m) {
    return wire::CreateOver(builder_, list(m.runs, "the list of runs that are over", [this](const RunOver& over) {
                              return wire::CreateRunOver(builder_, name(over.run), over.removed, over.ended_seconds, over.epoch.value,
                                                         over.round.value);
                            }));
  }
  Offset<wire::Relays> put(const Relays& m) {
    return wire::CreateRelays(builder_, list(m.relays, "the list of relays", [this](const RelayOffer& relay) {
                                return wire::CreateRelayOffer(builder_, name(relay.name, "a relay's name"),
                                                              name(relay.address, "a relay's address"), name(relay.pass, "a relay's pass"),
                                                              relay.carries);
                              }));
  }
  Offset<wire::Ways> put(const Ways& m) {
    return wire::CreateWays(builder_, list(m.peers, "the list of ways", [this](const PeerWay& way) {
                              return wire::CreatePeerWay(builder_, name(way.peer), name(way.way.relay, "a way's relay"), way.way.punched,
                                                         static_cast<wire::NotPunched>(way.way.not_punched),
                                                         name(way.way.address, "a way's address"), way.way.proxied);
                            }));
  }
  Offset<wire::OwnRelay> put(const OwnRelay& m) {
    return wire::CreateOwnRelay(builder_, name(m.address, "a relay's address"), DigestField(m.secret).get());
  }
  Offset<wire::CaughtUp> put(const CaughtUp& m) {
    return wire::CreateCaughtUp(builder_, name(m.run), m.epoch.value, m.round.value, DigestField(m.digest).get(), put(m.error), m.entry);
  }
  Offset<wire::IslandEvent> put(const IslandEvent& m) {
    return wire::CreateIslandEvent(builder_, name(m.run), name(m.level, "an event's level"), name(m.kind, "an event's kind"), text(m.text));
  }
  Offset<wire::Timeline> put(const Timeline& m) {
    return wire::CreateTimeline(builder_, name(m.run), list(m.spans, "the list of spans", [this](const Span& s) { return put(s); }));
  }
  Offset<wire::RunEnded> put(const RunEnded& m) {
    return wire::CreateRunEnded(builder_, name(m.run), m.round.value, DigestField(m.digest).get(), put(m.error));
  }
  Offset<wire::Leave> put(const Leave& m) { return wire::CreateLeave(builder_, text(m.why), m.contributes); }

  // coordinator to island
  Offset<wire::Welcome> put(const Welcome& m) {
    return wire::CreateWelcome(builder_, name(m.version, "the version"), name(m.island), m.heartbeat_ms, m.dead_after_ms, m.stall_ms,
                               GenerationField(m.generation).get());
  }
  Offset<wire::Refused> put(const Refused& m) { return wire::CreateRefused(builder_, put(m.error)); }
  Offset<wire::Invite> put(const Invite& m) {
    return wire::CreateInvite(builder_, name(m.run), json(m.spec, "the run's specification"), m.epoch.value, m.part,
                              static_cast<wire::StartFrom>(m.from), m.committed.value, DigestField(m.digest).get(),
                              members(m.members, "the list of members"), m.position, m.entry, put(m.share), couples(m.avoid));
  }
  Offset<wire::NewEpoch> put(const NewEpoch& m) {
    return wire::CreateNewEpoch(builder_, name(m.run), m.epoch.value, m.committed.value, members(m.members, "the list of members"),
                                m.pause_after.value_or(Round(0)).value, m.tokens, m.share ? put(*m.share) : Offset<wire::DataShare>(),
                                couples(m.avoid));
  }
  Offset<wire::Exchange> put(const Exchange& m) {
    const auto islands = list(m.members, "the list of members", [this](const IslandId& island) { return name(island); });
    const auto tokens = list(m.terms.tokens, "the list of weights", [](std::uint64_t count) { return count; });
    const auto steps = list(m.terms.steps, "the list of steps", [](std::uint64_t count) { return count; });
    const auto norms = list(m.terms.norms, "the list of norms", [](double norm) { return norm; });
    return wire::CreateExchange(builder_, name(m.run), m.epoch.value, m.round.value, m.attempt.value, islands, tokens,
                                list(m.terms.shares, "the list of shares", [](std::uint8_t share) { return share; }), m.fragment,
                                m.rejected, steps, norms);
  }
  Offset<wire::Commit> put(const Commit& m) {
    return wire::CreateCommit(builder_, name(m.run), m.epoch.value, m.round.value, m.attempt.value, DigestField(m.digest).get(),
                              m.checkpoint, m.pause, m.tokens, m.copy, ranges(m.data, "the list of parts"));
  }
  Offset<wire::Abort> put(const Abort& m) {
    return wire::CreateAbort(builder_, name(m.run), m.epoch.value, m.round.value, m.attempt.value, text(m.why));
  }
  Offset<wire::Offer> put(const Offer& m) { return wire::CreateOffer(builder_, name(m.run), m.offering); }
  Offset<wire::CatchUp> put(const CatchUp& m) {
    return wire::CreateCatchUp(builder_, name(m.run), m.epoch.value, m.checkpoint_round.value, DigestField(m.checkpoint_file).get(),
                               m.checkpoint_bytes, m.committed.value, DigestField(m.digest).get(),
                               members(m.sources, "the list of sources"), m.part, m.position);
  }
  Offset<wire::Serve> put(const Serve& m) {
    return wire::CreateServe(builder_, name(m.run), name(m.reader_key, "the reader's key"), m.round.value, m.allowed,
                             name(first_address(m.reader_address), "the reader's address"), other_addresses(m.reader_address));
  }
  Offset<wire::Cut> put(const Cut& m) { return wire::CreateCut(builder_, name(m.run), m.epoch.value, m.round.value); }
  Offset<wire::Neighbours> put(const Neighbours& m) {
    return wire::CreateNeighbours(builder_, members(m.islands, "the list of neighbours"), m.measurement, m.measure_ms);
  }
  Offset<wire::Drain> put(const Drain& m) { return wire::CreateDrain(builder_, text(m.why)); }
  Offset<wire::Content> put(const Content& c) {
    const auto sources = list(c.sources, "the list of sources", [this](const IslandId& island) { return name(island); });
    return wire::CreateContent(builder_, DigestField(c.digest).get(), c.bytes, sources);
  }
  ListOffset<Offset<wire::Content>> contents(const std::vector<Content>& items, const char* field) {
    return list(items, field, [this](const Content& content) { return put(content); });
  }
  Offset<wire::Assignment> put(const Assignment& m) {
    const auto inputs = list(m.inputs, "the list of inputs", [this](const TaskInput& input) {
      return wire::CreateTaskInput(builder_, name(input.task, "a task's name"), put(input.content));
    });
    return wire::CreateAssignment(builder_, name(m.run), m.number, json(m.spec, "the run's specification"),
                                  members(m.members, "the list of members"), name(m.task, "a task's name"), inputs, put(m.resume),
                                  contents(m.keep, "the list of what to keep"), contents(m.drop, "the list of what to drop"), name(m.group),
                                  m.group_round.value, m.epoch.value);
  }
  Offset<wire::AssignmentReport> put(const AssignmentReport& m) {
    return wire::CreateAssignmentReport(builder_, name(m.run), m.number, name(m.task, "a task's name"), name(m.state, "a task's state"),
                                        m.step, m.steps, m.loss, m.images_per_second, m.compute_seconds, put(m.result),
                                        json(m.facts, "a task's facts"), put(m.checkpoint), m.checkpoint_step,
                                        contents(m.held, "the list of what is held"), put(m.error), m.bytes_sent, m.bytes_received);
  }
  Offset<wire::TaskImages> put(const TaskImages& m) {
    if (m.png.size() > kMaxPictureBytes) {
      fail("a picture takes " + human_bytes(m.png.size()) + ", allowed are " + human_bytes(kMaxPictureBytes));
      return {};
    }
    const auto picture = builder_.CreateVector(reinterpret_cast<const std::uint8_t*>(m.png.data()), m.png.size());
    return wire::CreateTaskImages(builder_, name(m.run), name(m.task, "a task's name"), m.step, picture);
  }
  Offset<wire::Release> put(const Release& m) {
    return wire::CreateRelease(builder_, name(m.run), code(m.code), m.completed, text(m.why), m.epoch.value, m.place);
  }

  // enrolment and operators
  Offset<wire::Enrol> put(const Enrol& m) {
    return wire::CreateEnrol(builder_, name(m.token_secret, "the token's secret"), name(m.name, "the island's name"));
  }
  Offset<wire::Enrolled> put(const Enrolled& m) {
    return wire::CreateEnrolled(builder_, name(m.role, "the role"), name(m.island), name(m.name, "the name"));
  }
  Offset<wire::Request> put(const Request& m) {
    return wire::CreateRequest(builder_, m.id, name(m.verb, "the verb"), json(m.arguments, "the request"));
  }
  Offset<wire::Reply> put(const Reply& m) { return wire::CreateReply(builder_, m.id, put(m.error), json(m.document, "the reply")); }

  flatbuffers::FlatBufferBuilder builder_;
  std::optional<Error> problem_;
};

}  // namespace

Result<Bytes> encode(const Message& message) { return Encoder().finish(message); }

}  // namespace atl

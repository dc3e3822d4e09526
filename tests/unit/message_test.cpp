// The control link's messages: there and back, and nothing else accepted.
#include "transport/control/message.hpp"

#include <cmath>
#include <limits>
#include <set>

#include "tests/catch.hpp"
#include "tests/message_samples.hpp"
#include "transport/identity/sha256.hpp"

namespace of_message_test {

using namespace atl;

namespace {

Message there_and_back(const Message& message) {
  const Result<Bytes> frame = encode(message);
  INFO(kind_of(message) << ": " << (frame ? "" : frame.error().why));
  REQUIRE(frame);
  const Result<Message> back = decode(*frame);
  INFO((back ? "" : back.error().why));
  REQUIRE(back);
  return *back;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every kind of message comes back equal") {
  std::set<std::size_t> kinds;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const Message& message : test::MessageSampler(seed).all()) {
      INFO("seed " << seed << ", " << kind_of(message));
      CHECK(there_and_back(message) == message);
      kinds.insert(message.index());
    }
  }
  CHECK(kinds.size() == std::variant_size_v<Message>);
}

TEST_CASE("an island's other addresses are few, and each is one, or the message is garbage") {
  const auto passes = [](const std::string& addresses) {
    Hello hello;
    hello.bulk_address = addresses;
    const Result<Message> back = decode(encode(hello).value());
    return back && std::get<Hello>(*back).bulk_address == addresses;
  };
  CHECK(passes("tcp://a:1"));
  CHECK(passes("tcp://a:1 tcp://[2001:db8::1]:2 tcp://192.168.1.7:3"));
  CHECK_FALSE(passes("tcp://a:1 nonsense"));
  CHECK_FALSE(passes("tcp://a:1 tcp://a:*"));
  CHECK_FALSE(passes("tcp://a:1 tcp://" + std::string(200, 'b') + ":2"));
  std::string many = "tcp://a:1";
  for (int i = 2; i <= 8; ++i) {
    many += " tcp://a:" + std::to_string(i);
  }
  CHECK(passes(many));
  Hello more;
  more.bulk_address = many + " tcp://a:9";
  CHECK(std::get<Hello>(decode(encode(more).value()).value()).bulk_address == many);  // what is too much is not said
}

TEST_CASE("an island's relay is at one address that can be dialled, or the message is garbage") {
  const auto passes = [](const std::string& address) {
    const Result<Message> back = decode(encode(OwnRelay{address, sha256(as_bytes("secret"))}).value());
    return back && std::get<OwnRelay>(*back).address == address;
  };
  CHECK(passes("tcp://relay.example.org:4402"));
  CHECK(passes("tcp://[2001:db8::1]:443"));
  CHECK_FALSE(passes(""));
  CHECK_FALSE(passes("nonsense"));
  CHECK_FALSE(passes("tcp://a:*"));
  CHECK_FALSE(passes("tcp://a:1 tcp://b:2"));
  CHECK_FALSE(passes("tcp://" + std::string(200, 'b') + ":2"));
  CHECK_FALSE(passes("tcp://a b:1"));
}

TEST_CASE("messages with every field at its default come back equal") {
  CHECK(there_and_back(Hello{}) == Message(Hello{}));
  CHECK(there_and_back(Invite{}) == Message(Invite{}));
  CHECK(there_and_back(Offer{}) == Message(Offer{}));
  CHECK(there_and_back(Reply{}) == Message(Reply{}));
  CHECK(there_and_back(CatchUp{}) == Message(CatchUp{}));
}

TEST_CASE("every kind has a name of its own") {
  std::set<std::string_view> names;
  for (const Message& message : test::MessageSampler(1).all()) {
    names.insert(kind_of(message));
  }
  CHECK(names.size() == std::variant_size_v<Message>);
  CHECK(kind_of(Hello{}) == "hello");
  CHECK(kind_of(ExchangeFailed{}) == "exchange_failed");
  CHECK(kind_of(CatchUp{}) == "catch_up");
  CHECK(kind_of(Reply{}) == "reply");
}

TEST_CASE("a loss that was not measured stays NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Message back = there_and_back(Merged{RunId("r-1"), Round(1), Step(2), nan, 1.5, 0});
  CHECK(std::isnan(std::get<Merged>(back).outer_loss));
  CHECK(std::get<Merged>(back).local_loss == 1.5);
}

TEST_CASE("another protocol version is read where both sides must be named, and refused elsewhere with both named") {
  Hello hello;
  hello.protocol = 7;
  hello.name = "atlantis";
  CHECK(there_and_back(hello) == Message(hello));
  Request request;
  request.protocol = 8;
  CHECK(there_and_back(request) == Message(request));

  // A heartbeat of version 9: the envelope's first scalar is patched in place.
  Bytes frame = encode(Heartbeat{0x0102030405060708, {}}).value();
  std::size_t changed = 0;
  for (std::size_t at = 0; at + 4 <= frame.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, frame.data() + at, 4);
    if (word == kProtocolVersion) {
      Bytes other = frame;
      const std::uint32_t version = 9;
      std::memcpy(other.data() + at, &version, 4);
      const Result<Message> back = decode(other);
      if (!back && back.error().code == Code::conflict) {
        ++changed;
        CHECK(contains(back.error().why, "version 9"));
        CHECK(contains(back.error().why, "version " + std::to_string(kProtocolVersion)));
      }
    }
  }
  CHECK(changed == 1);
}

TEST_CASE("numbers that count are bounded where they are decoded, each as its kind") {
  const auto why = [](const Message& message) {
    const Result<Message> back = decode(encode(message).value());
    return back ? std::string() : back.error().why;
  };
  const auto hello = [](const auto& set) {
    Hello message;
    message.runs.resize(1);
    message.runs.front().checkpoints.resize(1);
    set(message.runs.front());
    return Message(message);
  };
  const auto with = [](auto message, const auto& set) {
    set(message);
    return Message(message);
  };
  const auto all_with = [&](std::uint64_t count, std::uint64_t amount, std::uint64_t milliseconds) {
    return std::vector<Message>{hello([&](HeldRun& m) { m.epoch = Epoch(count); }),
                                hello([&](HeldRun& m) { m.committed = Round(count); }),
                                hello([&](HeldRun& m) { m.position = amount; }),
                                hello([&](HeldRun& m) { m.checkpoints.front().round = Round(count); }),
                                hello([&](HeldRun& m) { m.checkpoints.front().epoch = Epoch(count); }),
                                with(Hello(), [&](Hello& m) { m.generation.starts = count; }),
                                with(Ready(), [&](Ready& m) { m.epoch = Epoch(count); }),
                                with(Ready(), [&](Ready& m) { m.round = Round(count); }),
                                with(Ready(), [&](Ready& m) { m.facts.tokens = amount; }),
                                with(Ready(), [&](Ready& m) { m.facts.steps = amount; }),
                                with(Ready(), [&](Ready& m) { m.facts.data.to = amount; }),
                                with(Ready(), [&](Ready& m) { m.facts.overwritten = amount; }),
                                with(Exchanged(), [&](Exchanged& m) { m.round = Round(count); }),
                                with(Exchanged(), [&](Exchanged& m) { m.bytes_sent = amount; }),
                                with(ExchangeFailed(), [&](ExchangeFailed& m) { m.epoch = Epoch(count); }),
                                with(Withdrawn(), [&](Withdrawn& m) { m.facts.tokens = amount; }),
                                with(Merged(), [&](Merged& m) { m.step = Step(count); }),
                                with(Checkpointed(), [&](Checkpointed& m) { m.file_bytes = count; }),
                                with(CaughtUp(), [&](CaughtUp& m) { m.entry = count; }),
                                with(RunEnded(), [&](RunEnded& m) { m.round = Round(count); }),
                                with(PathReport(), [&](PathReport& m) { m.bytes_per_second = count; }),
                                with(AssignmentReport(), [&](AssignmentReport& m) { m.number = count; }),
                                with(AssignmentReport(), [&](AssignmentReport& m) { m.result.bytes = count; }),
                                with(Invite(), [&](Invite& m) { m.epoch = Epoch(count); }),
                                with(NewEpoch(), [&](NewEpoch& m) { m.tokens = count; }),
                                with(Exchange(),
                                     [&](Exchange& m) {
                                       m.terms.tokens = {1, amount};
                                     }),
                                with(Exchange(),
                                     [&](Exchange& m) {
                                       m.terms.steps = {1, amount};
                                     }),
                                with(Commit(),
                                     [&](Commit& m) {
                                       m.data = {DataRange{0, 0, amount}};
                                     }),
                                with(CatchUp(), [&](CatchUp& m) { m.checkpoint_bytes = count; }),
                                with(Welcome(), [&](Welcome& m) { m.stall_ms = milliseconds; })};
  };
  for (const Message& message : all_with(kMaxCount, kMaxAmount, kMaxMilliseconds)) {
    INFO(kind_of(message));
    CHECK(why(message).empty());
  }
  for (const std::uint64_t beyond : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max() - kMaxCount}) {
    for (const Message& message : all_with(kMaxCount + beyond, kMaxAmount + beyond, kMaxMilliseconds + beyond)) {
      INFO(kind_of(message) << ", " << beyond << " beyond");
      CHECK(contains(why(message), "a number that is too large"));
    }
  }
  for (const double norm : {-1e-300, -1.0, -std::numeric_limits<double>::infinity()}) {
    CHECK(contains(why(with(Ready(), [&](Ready& m) { m.facts.norm = norm; })), "a length below zero"));
  }
  CHECK(why(with(Ready(), [&](Ready& m) { m.facts.norm = -0.0; })).empty());
  CHECK(Epoch(std::numeric_limits<std::uint64_t>::max()).next() > Epoch(1));
}

TEST_CASE("what is told of how a path comes and goes is within the minutes that are looked back at") {
  const Availability whole{kAvailabilityWindow, kAvailabilityWindow, kMaxPathChanges, kAvailabilityWindow};
  const auto tell = [](const Availability& available) {
    const Result<Bytes> bytes = encode(PathReport{IslandId("a"), false, "", 0, 0, 0, available});
    const Result<Message> read = bytes ? decode(*bytes) : Result<Message>(bytes.error());
    return read ? std::string() : read.error().why;
  };
  CHECK(tell(whole).empty());
  Availability beyond = whole;
  beyond.watched += std::chrono::milliseconds(1);
  CHECK(contains(tell(beyond), "a number that is too large"));
  beyond = whole;
  beyond.watched -= std::chrono::milliseconds(1);  // it cannot have been there for longer than it was looked at
  CHECK(contains(tell(beyond), "a number that is too large"));
  beyond = whole;
  ++beyond.changes;
  CHECK(contains(tell(beyond), "a number that is too large"));
  beyond = whole;
  beyond.steady = -std::chrono::milliseconds(1);
  CHECK(contains(tell(beyond), "a number that is too large"));
}

TEST_CASE("texts for people are cut and made plain, names are not") {
  const std::string garbage = "\x1b[2J out of\xff memory\r\n";
  const Message back = there_and_back(IslandEvent{RunId("r-1"), "error", "trainer_crashed", garbage});
  CHECK(std::get<IslandEvent>(back).text == "\xEF\xBF\xBD[2J out of\xEF\xBF\xBD memory\xEF\xBF\xBD\n");

  const Message cut = there_and_back(Leave{std::string(kMaxTextBytes, 'x') + "y"});
  CHECK(std::get<Leave>(cut).why.size() == kMaxTextBytes);
  CHECK(std::get<Leave>(cut).why.substr(kMaxTextBytes - 4) == "x\xE2\x80\xA6");

  Hello hello;
  hello.name = "a\x1b[31mb";
  CHECK(encode(hello).error().code == Code::invalid_argument);
  CHECK(contains(encode(hello).error().why, "the island's name"));
  hello.name = std::string(kMaxNameBytes + 1, 'x');
  CHECK(encode(hello).error().code == Code::invalid_argument);
  hello.name = std::string(kMaxNameBytes, 'x');
  CHECK(encode(hello).has_value());
}

TEST_CASE("what is over a bound is not sent, and says what") {
  NewEpoch membership;
  membership.members.resize(kMaxListItems + 1);
  CHECK(encode(membership).error().code == Code::invalid_argument);
  CHECK(contains(encode(membership).error().why, "1025"));

  Reply reply;
  reply.document.assign(kMaxMessageBytes, ' ');
  CHECK(encode(reply).error().code == Code::invalid_argument);
  reply.document.assign(kMaxMessageBytes - 1024, ' ');
  CHECK(there_and_back(reply) == Message(reply));
  reply.document = "\xff";
  CHECK(encode(reply).error().code == Code::invalid_argument);
}

TEST_CASE("paths to avoid are couples of members, the smaller place first, in order and each once, and bounded") {
  NewEpoch membership;
  membership.members.resize(3);
  for (const PlaceCouples& good : {PlaceCouples{}, {{0, 2}}, {{0, 1}, {0, 2}, {1, 2}}}) {
    membership.avoid = good;
    CHECK(there_and_back(membership) == Message(membership));
  }
  for (const PlaceCouples& bad : {PlaceCouples{{0, 3}}, {{1, 0}}, {{1, 1}}, {{0, 2}, {0, 1}}, {{0, 1}, {0, 1}}, {{0, 0xffffffff}}}) {
    membership.avoid = bad;
    CHECK(decode(encode(membership).value()).error().code == Code::corrupt);
    Invite invite;
    invite.members = membership.members;
    invite.avoid = bad;
    CHECK(decode(encode(invite).value()).error().code == Code::corrupt);
  }
  membership.avoid.assign(kMaxPlaceCouples + 1, {0, 1});
  CHECK(encode(membership).error().code == Code::invalid_argument);
}

TEST_CASE("frames that are no message are corrupt") {
  CHECK(decode({}).error().code == Code::corrupt);
  CHECK(decode(as_bytes("hello, coordinator, here is some text that is no flatbuffer at all")).error().code == Code::corrupt);
  CHECK(decode(Bytes(64)).error().code == Code::corrupt);
  CHECK(decode(Bytes(kMaxMessageBytes + 1)).error().code == Code::corrupt);
  CHECK(contains(decode(Bytes(kMaxMessageBytes + 1)).error().why, "allowed"));
  const Message message = test::MessageSampler(3).all()[0];
  const Bytes whole = encode(message).value();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Result<Message> cut = decode(ByteView(whole).first(size));
    const bool only_padding = whole.size() - size < sizeof(std::uint32_t) && cut && *cut == message;  // of the text that comes last
    CHECK((!cut || only_padding));
  }
}

TEST_CASE("a kind of a later version is told apart from garbage") {
  const Bytes whole = encode(Message(Heartbeat{})).value();
  std::size_t unknown = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes other = whole;
    other[at] = std::byte{250};  // one of them is the kind
    const Result<Message> read = decode(other);
    if (!read && read.error().code == Code::not_found) {
      CHECK(contains(read.error().why, "of a kind that this version does not know, number 250"));
      ++unknown;
    }
  }
  CHECK(unknown == 1);
}

TEST_CASE("a frame is read wherever it starts in memory") {
  const Message message = test::MessageSampler(4).all()[0];
  const Bytes frame = encode(message).value();
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(shift);
    shifted.insert(shifted.end(), frame.begin(), frame.end());
    CHECK(decode(ByteView(shifted).subspan(shift)).value() == message);
  }
}

}  // namespace of_message_test

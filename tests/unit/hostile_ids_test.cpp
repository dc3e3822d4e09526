// Ids that lead elsewhere, in every message and in the heads of bulk frames: they become parts of paths, so they are refused when they are
// read.
#include <cstring>
#include <set>

#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"
#include "tests/hostile_names.hpp"
#include "tests/message_samples.hpp"
#include "transport/base/name.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/control/message.hpp"

namespace of_hostile_ids_test {

using namespace atl;

namespace {

// The ids in a frame: of runs ("r-…") and islands ("i-…"), as the sampler draws them.
std::set<std::string> ids_in(const Bytes& frame) {
  std::set<std::string> ids;
  for (std::size_t at = 0; at + 6 < frame.size(); at += 4) {
    std::uint32_t length = 0;
    std::memcpy(&length, frame.data() + at, sizeof length);
    const auto* text = reinterpret_cast<const char*>(frame.data() + at + 4);
    if (length > 3 && length < 32 && at + 4 + length < frame.size() && (text[0] == 'r' || text[0] == 'i') && text[1] == '-') {
      ids.emplace(text, length);
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("a message with an id that is no name is refused, whichever message and whichever id") {
  std::set<std::string_view> kinds;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (const Message& message : atl::test::MessageSampler(seed).all()) {
      const Bytes frame = encode(message).value();
      for (const std::string& id : ids_in(frame)) {
        for (const std::string& hostile : atl::test::hostile_strings("id")) {
          const std::optional<Bytes> changed = atl::test::with_string(frame, id, hostile);
          if (!changed || changed->size() > kMaxMessageBytes) {
            continue;
          }
          INFO(kind_of(message) << ", '" << hostile << "' instead of " << id);
          const Result<Message> read = decode(*changed);
          REQUIRE_FALSE(read);
          CHECK(read.error().code == Code::corrupt);
          CHECK((hostile.size() < 4 || read.error().why.find(hostile) == std::string::npos));  // what is logged holds nothing of it
          kinds.insert(kind_of(message));
          ++refused;
        }
      }
    }
  }
  CHECK(kinds.size() >= 25);  // all but the few that name neither a run nor an island
  CHECK(refused > 5000);
}

TEST_CASE("a task's name is a name, or a name and a number: nothing else is read") {
  for (const char* good : {"clustering", "experts/2", "images/0", "router"}) {
    CHECK(is_task_name(good));
  }
  for (const std::string& hostile : atl::test::hostile_strings("task")) {
    if (hostile != "tcp://here:1") {
      INFO(hostile);
      CHECK_FALSE(is_task_name(hostile));
    }
  }
  Assignment assignment;
  assignment.run = RunId("r-1");
  assignment.task = "experts/2";
  const Bytes frame = encode(assignment).value();
  REQUIRE(decode(frame));
  for (const char* hostile : {"../../etc", "/dev/shm", "experts/../2", "experts/2/3", "..", "a b"}) {
    const std::optional<Bytes> changed = atl::test::with_string(frame, "experts/2", hostile);
    REQUIRE(changed);
    CHECK_FALSE(decode(*changed));
  }
}

}  // namespace of_hostile_ids_test

// What strangers say at a relay's door: an answer or an end, never a crash, and nothing that grows.
#include <string>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/relay/relay_ticket.hpp"
#include "transport/relay/socks_door.hpp"

namespace {

using namespace atl;

const Bytes kSecret = relay_secret("a secret key");
const TimePoint kStart = from_unix_ms(1'767'225'600'000);

Bytes mutated(Bytes bytes, Rng& rng) {
  for (std::uint64_t i = rng.below(4); i > 0 && !bytes.empty(); --i) {
    const auto at = static_cast<std::size_t>(rng.below(bytes.size()));
    if (rng.chance(0.2)) {
      bytes.resize(at);
    } else if (rng.chance(0.2)) {
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::size_t>(rng.below(40)), std::byte{5});
    } else {
      bytes[at] = static_cast<std::byte>(rng.below(256));
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("mutated greetings and requests at a relay's door") {
  Rng rng(41);
  const std::string name = request_with(make_pass(kSecret, IslandId("i-0011223344556677"), kStart), IslandId("i-8899aabbccddeeff"));
  Bytes request = {std::byte{5}, std::byte{1}, std::byte{0}, std::byte{3}, static_cast<std::byte>(name.size())};
  for (const char c : name + std::string("\0\1", 2)) {
    request.push_back(static_cast<std::byte>(c));
  }
  unsigned asked = 0;
  unsigned let_in = 0;
  for (int i = 0; i < 20'000; ++i) {
    SocksDoor door;
    const Bytes greeting = mutated({std::byte{5}, std::byte{1}, std::byte{0}}, rng);
    const Bytes said = mutated(request, rng);
    (void)door.take(greeting);
    const std::size_t cut = said.empty() ? 0 : static_cast<std::size_t>(rng.below(said.size()));
    SocksDoor::Step step = door.take(ByteView(said).first(cut));
    step = step == SocksDoor::Step::more ? door.take(ByteView(said).subspan(cut)) : step;
    if (step == SocksDoor::Step::asks) {
      ++asked;
      const Result<MeetingRequest> read = read_request(kSecret, door.name(), kStart);
      let_in += read ? 1U : 0U;
      CHECK((!read || read->island == IslandId("i-0011223344556677")));
    }
  }
  CHECK(asked > let_in);
  CHECK(let_in > 1000);
}

TEST_CASE("mutated tickets of relays") {
  Rng rng(43);
  const std::string text = to_text({"frankfurt", "tcp://relay.example.org:4402", kSecret});
  const ByteView whole = as_bytes(text);
  for (int i = 0; i < 5'000; ++i) {
    const Bytes bytes = mutated(Bytes(whole.begin(), whole.end()), rng);
    const Result<RelayTicket> ticket = ticket_from_text(as_text(bytes));
    CHECK((!ticket || ticket->secret.size() == 32));
  }
}

// Mutated messages: an error or a value, never a crash; and whatever is accepted can be sent again and means the same.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/message_samples.hpp"
#include "transport/base/rng.hpp"
#include "transport/control/message.hpp"

using namespace atl;

namespace {

// A few random edits: flips, overwritten words with tempting values, cuts, insertions, splices with another frame.
Bytes mutate(Bytes frame, const Bytes& other, Rng& rng) {
  for (std::uint64_t edits = 1 + rng.below(4); edits > 0 && !frame.empty(); --edits) {
    const std::size_t at = rng.below(frame.size());
    switch (rng.below(5)) {
      case 0:
        frame[at] ^= static_cast<std::byte>(1U << rng.below(8));
        break;
      case 1: {
        constexpr std::array<std::uint32_t, 6> kTempting = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00400000};
        const std::uint32_t word =
            rng.chance(0.5) ? kTempting[rng.below(kTempting.size())] : static_cast<std::uint32_t>(rng.below(frame.size()));
        std::memcpy(frame.data() + at, &word, std::min<std::size_t>(4, frame.size() - at));
        break;
      }
      case 2:
        frame.resize(at);
        break;
      case 3:
        frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(at), rng.below(9), static_cast<std::byte>(rng.below(256)));
        break;
      default: {
        const std::size_t size = std::min({frame.size() - at, other.size(), static_cast<std::size_t>(rng.below(32))});
        std::copy_n(other.begin(), size, frame.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  return frame;
}

}  // namespace

TEST_CASE("a mutated message is an error or a value") {
  std::size_t accepted = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed, stream_of("message-fuzz"));
    std::vector<Bytes> frames;
    for (const Message& message : test::MessageSampler(seed).all()) {
      frames.push_back(encode(message).value());
    }
    for (const Bytes& frame : frames) {
      for (int i = 0; i < 20; ++i) {
        const Result<Message> message = decode(mutate(frame, frames[rng.below(frames.size())], rng));
        if (!message) {
          ++refused;
          const Code code = message.error().code;
          const bool expected = code == Code::corrupt || code == Code::conflict || code == Code::not_found;  // of a later version's kind
          REQUIRE(expected);
          continue;
        }
        ++accepted;
        const Result<Bytes> again = encode(*message);
        INFO("seed " << seed << ": " << (again ? "" : again.error().why));
        REQUIRE(again);
        const Result<Message> back = decode(*again);
        REQUIRE(back);
        REQUIRE(back->index() == message->index());
      }
    }
  }
  CHECK(accepted > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("random bytes are no message") {
  Rng rng(11);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(rng.below(300));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(rng.below(256));
    }
    REQUIRE_FALSE(decode(bytes).has_value());
  }
}

// Found by fuzz_message: its doubles lie at a multiple of four, which a sanitizer sees that reads them. What it says is no message.
TEST_CASE("a message whose doubles lie at a multiple of four is read byte by byte, and refused for what it says") {
  constexpr std::string_view kExchange =
      "1400000041544c4d00000a001200080007000c000a00000000000015010000002000000000001a0038000800280030000c0010000800140004000800"
      "200024001a00000000000001380000002db31f0080000000680000002000000002000000440000001400000041544c4d00000a001200080007000c00"
      "0a00000000000015010000002000000000001a00020000003c509ba5438d86402ef387e472bd9840002c0000020000004c46c3e0c86ea102b4c946a5"
      "422bdf9a00000000020000004f300000000000007d857a69ce3760030200000018000000040000000b000000692d7a72677179706272000000000000"
      "000000000000000000000000002d697473610000";
  Bytes frame;
  for (std::size_t i = 0; i < kExchange.size(); i += 2) {
    frame.push_back(static_cast<std::byte>(std::stoul(std::string(kExchange.substr(i, 2)), nullptr, 16)));
  }
  CHECK_FALSE(decode(frame).has_value());
}

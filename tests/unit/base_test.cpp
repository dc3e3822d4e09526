// Base: units, hexadecimal, random numbers.
#include <set>

#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"

namespace of_base_test {

using namespace atl;
using namespace std::chrono_literals;

TEST_CASE("philox gives the published test vectors") {
  // Random123's known answers for philox4x32-10.
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a random stream is repeatable, bounded and differs by stream") {
  Rng a(7, 1);
  Rng b(7, 1);
  Rng c(7, 2);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = a.next_u64();
    CHECK(x == b.next_u64());
    equal += x == c.next_u64() ? 1 : 0;
  }
  CHECK(equal == 0);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = a.below(6);
    REQUIRE(x < 6);
    seen.insert(x);
  }
  CHECK(seen.size() == 6);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = a.normal();
    sum += x;
    squares += x * x;
  }
  CHECK(sum / 20000 == Approx(0.0).margin(0.03));
  CHECK(squares / 20000 == Approx(1.0).margin(0.05));
}

TEST_CASE("sizes, times and rates are read with their units and nothing else") {
  CHECK(parse_bytes("64MiB").value() == 64ULL << 20);
  CHECK(parse_bytes("10GB").value() == 10'000'000'000ULL);
  CHECK(parse_bytes("4096").value() == 4096);
  CHECK(parse_duration("30s").value() == 30s);
  CHECK(parse_duration("250ms").value() == 250ms);
  CHECK(parse_duration("1.5m").value() == 90s);
  CHECK(parse_bits_per_second("50mbit").value() == 50e6);
  CHECK(parse_bits_per_second("10MB/s").value() == 80e6);
  for (const char* bad : {"", "30", "-3s", "3 fortnights", "nan s", "inf", "1e400s", "s"}) {
    INFO(bad);
    CHECK_FALSE(parse_duration(bad).has_value());
  }
  CHECK_FALSE(parse_bytes("1e30").has_value());
  CHECK(parse_duration("30").error().code == Code::invalid_argument);
}

TEST_CASE("people read sizes and times in their units") {
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(3400) == "3.4 kB");
  CHECK(human_bytes(3'400'000'000) == "3.4 GB");
  CHECK(human_bytes(999'999) == "1.0 MB");
  CHECK(human_duration(950ms) == "950 ms");
  CHECK(human_duration(12300ms) == "12.3 s");
  CHECK(human_duration(130s) == "2m10s");
  CHECK(human_duration(3h + 5min) == "3h05m");
  CHECK(human_duration(98h) == "4d02h");
  CHECK(iso_time(from_unix_ms(1769862605123)) == "2026-01-31T12:30:05.123Z");
}

TEST_CASE("hexadecimal goes there and back") {
  const Bytes bytes = {std::byte{0}, std::byte{0xab}, std::byte{0xff}};
  CHECK(to_hex(bytes) == "00abff");
  CHECK(from_hex("00ABff").value() == bytes);
  CHECK_FALSE(from_hex("0").has_value());
  CHECK_FALSE(from_hex("zz").has_value());
  CHECK_FALSE(digest_from_hex("00").has_value());
}

}  // namespace of_base_test

// The guard against contributions that explode, and the norm it looks at.
#include "transport/base/usual_norms.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "strategies/contribution.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_usual_norms_test {

using namespace atl;

TEST_CASE("usual norms: by fragment, once eight are known, of the newest 64") {
  UsualNorms norms;
  for (int i = 1; i < 8; ++i) {
    norms.add(0, i);
  }
  CHECK(norms.median(0) == 0);
  norms.add(0, 0);  // says nothing
  CHECK(norms.median(0) == 0);
  norms.add(0, 100);
  CHECK(norms.median(0) == 4);  // the lower of the two in the middle
  CHECK(norms.median(1) == 0);
  for (int i = 0; i < 64; ++i) {
    norms.add(0, 7);
  }
  CHECK(norms.of(0) == std::vector<KnownNorm>(64, KnownNorm{7.0}));
}

TEST_CASE("a known norm is expected to grow with the steps, and of fewer steps to be as large") {
  CHECK(KnownNorm{3, 10}.expected(10) == 3);
  CHECK(KnownNorm{3, 10}.expected(40) == 12);
  CHECK(KnownNorm{3, 10}.expected(1) == 3);
  CHECK(KnownNorm{3, 0}.expected(40) == 3);  // it is not known of how many it is
  CHECK(KnownNorm{3, 10}.expected(0) == 3);
  CHECK(lower_median({{1, 1}, {2, 1}, {100, 100}}, 10) == 20);
}

TEST_CASE("a norm guard rejects above its factor times what is usual, and says both numbers") {
  CHECK(!NormGuard{10, 2}.verdict(20));
  REQUIRE(NormGuard{10, 2}.verdict(20.1));
  CHECK(*NormGuard{10, 2}.verdict(25) == "its norm of 25 is more than 10 times the usual 2");
  CHECK(!NormGuard{0, 2}.verdict(1e30));   // no guard
  CHECK(!NormGuard{10, 0}.verdict(1e30));  // nothing is known
}

TEST_CASE("the norm of an encoded contribution is that of its decoded values") {
  std::vector<float> values(70'003);
  Rng rng(5, 1);
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  for (const CodecKind kind : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings settings{kind};
    INFO(name_of(kind));
    std::vector<std::byte> bytes(encoded_bytes(settings, values.size()));
    REQUIRE(encode(settings, values, bytes).ok());
    std::vector<float> decoded(values.size());
    REQUIRE(decode(settings, bytes, decoded).ok());
    double squares = 0;
    for (const float value : decoded) {
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    CHECK(encoded_norm(settings, bytes, values.size()).value() == Approx(std::sqrt(squares)).epsilon(1e-12));
    if (kind == CodecKind::f32) {
      values[69'999] = std::nanf("");
      std::copy(reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<const std::byte*>(values.data() + values.size()),
                bytes.begin());
      CHECK(encoded_norm(settings, bytes, values.size()).error().code == Code::corrupt);
      values[69'999] = 1.0F;
    }
  }
}

}  // namespace of_usual_norms_test

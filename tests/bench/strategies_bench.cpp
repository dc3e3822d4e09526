// Bench: the arithmetic of a round on large arrays against memcpy of the same machine, in one run.
//
// Usage: bench_strategies [VALUES], 16,777,216 by default (64 MiB of float32). For each operation: the bytes it must read
// and write, the best time of several, GB/s, and that rate over memcpy's (1.00: as fast as memory allows).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

constexpr int kRepetitions = 9;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown processor";
}

double best_seconds(const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// `bytes` an operation must read and write at least.
class Report {
 public:
  double line(const char* name, double bytes, const std::function<void()>& work) {
    const double time = best_seconds(work);
    const double rate = bytes / time;
    if (reference_ == 0.0) {
      reference_ = rate;
    }
    std::printf("%-44s %8.1f MB %8.2f ms %7.2f GB/s %6.2f\n", name, bytes / 1e6, time * 1e3, rate / 1e9, rate / reference_);
    return rate;
  }

 private:
  double reference_ = 0.0;
};

void must(const Status& status) { ATOLL_CHECK(status.ok(), status.ok() ? "" : status.error().why); }

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1} << 24;
  if (count == 0) {
    std::fprintf(stderr, "usage: bench_strategies [VALUES], VALUES at least 1\n");
    return 2;
  }
  std::printf("%s; %s; one thread; %zu values; best of %d\n", processor().c_str(), ATOLL_BENCH_FLAGS, count, kRepetitions);
  std::printf("%-44s %11s %11s %12s %6s\n", "operation", "moved", "time", "rate", "of memcpy");
  Rng rng(1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(rng.next_u32())) * 0x1p-41F;
  }
  std::vector<float> a(count, 0.5F);
  std::vector<float> b(count, 0.0F);
  std::vector<std::byte> momentum(2 * count);  // in bf16
  const double size = 4.0 * static_cast<double>(count);
  Report report;
  report.line("memcpy", 2 * size, [&] { std::memcpy(a.data(), values.data(), 4 * count); });
  report.line("outer step, Nesterov, plain", 5 * size, [&] { must(nesterov_step(values, 0.7, 0.9, {a, b})); });
  report.line("outer gradient in place, with norm", 3 * size, [&] { ATOLL_CHECK(form_outer_gradient(values, a).has_value(), "finite"); });
  for (const CodecKind kind : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings codec{kind, 256, Rounding::nearest};
    const std::string name(name_of(kind));
    std::vector<std::byte> bytes(encoded_bytes(codec, count));
    const auto encoded = static_cast<double>(bytes.size());
    report.line((name + " encode").c_str(), size + encoded, [&] { must(encode(codec, values, bytes)); });
    report.line((name + " decode").c_str(), size + encoded, [&] { must(decode(codec, bytes, a)); });
    report.line((name + " decode and accumulate").c_str(), 2 * size + encoded, [&] { must(decode_accumulate(codec, bytes, 0.5F, a)); });
    const EncodedTerm one{bytes, 1.0F};
    report.line((name + " outer step, Nesterov, fused").c_str(), 4 * size + encoded, [&] {
      must(outer_step(ReducedResult{codec, {&one, 1}}, {}, {a, b}));
    });
    report.line((name + " outer step, momentum in bf16, fused").c_str(), 3 * size + encoded, [&] {
      must(outer_step(ReducedResult{codec, {&one, 1}}, {}, {a, {}, {momentum}}));
    });
    const std::vector<EncodedTerm> two{{bytes, 0.5F}, {bytes, 0.5F}};
    report.line((name + " outer step, two contributions, fused").c_str(), 4 * size + 2 * encoded, [&] {
      must(outer_step(ReducedResult{codec, two}, {}, {a, b}));
    });
  }
  for (const CodecKind kind : {CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings codec{kind, 256, Rounding::stochastic};
    std::vector<std::byte> bytes(encoded_bytes(codec, count));
    report.line((std::string(name_of(kind)) + " encode, stochastic").c_str(), size + static_cast<double>(bytes.size()),
                [&] { must(encode(codec, values, bytes)); });
  }
  return 0;
}

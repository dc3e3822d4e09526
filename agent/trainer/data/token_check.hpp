// TokenCheck: looks once at every token that an island reads, so that one beyond the model's vocabulary is known before the run and not
// when its turn comes.
//
// Up to kCheckedAtOnce tokens are looked at in make(), in less than a second; more on a thread of its own while training begins.
// Threads: found() may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::uint64_t kCheckedAtOnce = std::uint64_t{1} << 26;

class TokenCheck {
 public:
  // `ranges`: what the island reads of the stream. Errors: those of TokenStream::read, where they are known at once.
  static Result<TokenCheck> make(std::shared_ptr<const TokenStream> stream, std::vector<TokenRange> ranges, std::uint64_t vocabulary,
                                 std::uint64_t at_once = kCheckedAtOnce);

  // What has been found so far: good, or the error of the first token that is not in the vocabulary.
  [[nodiscard]] Status found() const;
  // Until all tokens have been looked at.
  void wait();

 private:
  struct Outcome {
    std::mutex mutex;
    Status status;
  };
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::jthread thread_;  // last, so that it ends before what it looks at
};

}  // namespace atl

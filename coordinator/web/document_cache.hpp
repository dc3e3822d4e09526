// DocumentCache: the coordinator's documents for many viewers, at the cost of one.
//
// A document is asked for again only when it is older than a second and twenty times as old as the coordinator took to answer. So however
// many look, the coordinator spends at most a twentieth of its time on any one document. Who asks while another thread has asked waits for
// that answer. Errors are kept as documents are.
// Threads: any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::coordinator {

// A verb and its arguments (a JSON object) to a document of coordinator/api/documents.md.
using AskCoordinator = std::function<Result<std::string>(const std::string& verb, const std::string& arguments)>;

class DocumentCache {
 public:
  using Document = std::shared_ptr<const Result<std::string>>;

  explicit DocumentCache(AskCoordinator ask, std::function<TimePoint()> clock = now, Duration fresh_for = std::chrono::seconds(1))
      : ask_(std::move(ask)), clock_(std::move(clock)), fresh_for_(fresh_for) {}

  // Never null.
  Document get(const std::string& verb, const std::string& arguments);

  static constexpr std::size_t kMostKept = 128;                      // documents; those that nobody asked for longest go
  static constexpr std::size_t kMostBytes = std::size_t{32} << 20U;  // of them together; one may be larger
  static constexpr int kTimesItsCost = 20;

 private:
  struct Entry {
    std::mutex asking;
    Document document;
    std::size_t bytes = 0;  // of it; under the cache's lock
    TimePoint asked;        // likewise
    TimePoint fresh_until;
  };
  std::shared_ptr<Entry> entry(const std::string& key);
  void note_size(const std::shared_ptr<Entry>& entry, std::size_t bytes);
  void drop_oldest(const Entry* but);

  AskCoordinator ask_;
  std::function<TimePoint()> clock_;
  Duration fresh_for_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace atl::coordinator

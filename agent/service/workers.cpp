#include "agent/service/workers.hpp"

#include <algorithm>

namespace atl::agent {

unsigned threads_for(unsigned cores) { return std::clamp(cores / 4, 1U, 8U); }

Workers::Workers(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) {
    threads_.emplace_back([this] { help(); });
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Workers::each(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::unique_lock lock(mutex_);
  part_ = &part;
  count_ = count;
  next_ = 0;
  if (count > 1 && !threads_.empty()) {
    begun_.notify_all();
  }
  work(lock);
  ended_.wait(lock, [this] { return under_way_ == 0; });
  part_ = nullptr;
}

void Workers::work(std::unique_lock<std::mutex>& lock) {
  while (part_ != nullptr && next_ < count_) {
    const std::size_t number = next_++;
    ++under_way_;
    lock.unlock();
    (*part_)(number);
    lock.lock();
    --under_way_;
  }
}

void Workers::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [this] { return closing_ || (part_ != nullptr && next_ < count_); });
    if (closing_) {
      return;
    }
    work(lock);
    if (under_way_ == 0) {
      ended_.notify_all();
    }
  }
}

}  // namespace atl::agent

#include "agent/service/side_thread.hpp"

#include <utility>

namespace atl::agent {

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::run(std::function<bool()> some) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(some));
  }
  changed_.notify_all();
}

void SideThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (ending_) {
      return;
    }
    std::function<bool()>& some = work_.front();  // stays where it is: others are only added behind it
    lock.unlock();
    const bool more = some();
    lock.lock();
    if (!more) {
      work_.pop_front();
    }
  }
}

}  // namespace atl::agent

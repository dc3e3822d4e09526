#include "transport/zmq/poll_set.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace atl {

Result<std::unique_ptr<PollSet>> PollSet::open() {
  std::unique_ptr<PollSet> set(new PollSet());
  set->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  set->event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  set->timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (set->epoll_ < 0 || set->event_ < 0 || set->timer_ < 0) {
    return Error{Code::io, std::string("the system gives no file descriptors: ") + std::strerror(errno) + "; raise the limit (ulimit -n)"};
  }
  ATOLL_TRY(set->add(set->event_));
  ATOLL_TRY(set->add(set->timer_));
  return set;
}

PollSet::~PollSet() {
  for (const int fd : {timer_, event_, epoll_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

Status PollSet::add(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return Error{Code::io, std::string("cannot wait for a file descriptor: ") + std::strerror(errno)};
  }
  return {};
}

void PollSet::remove(int fd) { ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

void PollSet::remind() {
  if (!reminded_) {
    const std::uint64_t one = 1;
    reminded_ = ::write(event_, &one, sizeof one) == sizeof one;
  }
}

void PollSet::set_alarm(Duration in) {
  const auto nanoseconds = std::max<std::int64_t>(in.count(), 1);  // zero would disarm
  itimerspec when{};
  when.it_value.tv_sec = nanoseconds / 1'000'000'000;
  when.it_value.tv_nsec = nanoseconds % 1'000'000'000;
  ::timerfd_settime(timer_, 0, &when, nullptr);
}

void PollSet::clear() {
  std::uint64_t count = 0;
  for (const int fd : {event_, timer_}) {
    while (::read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
  }
  reminded_ = false;
}

}  // namespace atl

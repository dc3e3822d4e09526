#include "transport/relay/relay_thread.hpp"

#include <sys/eventfd.h>

#include "transport/base/log.hpp"

namespace atl {

Result<std::unique_ptr<RelayThread>> RelayThread::start(RelaySettings settings, const std::string& whose) {
  ATOLL_ASSIGN(std::unique_ptr<RelayServer> relay, RelayServer::open(std::move(settings)));
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.is_open()) {
    return Error{Code::io, "no descriptors are left for the relay"};
  }
  std::unique_ptr<RelayThread> started(new RelayThread(std::move(stop), std::move(relay)));
  started->thread_ = std::thread([raw = started.get(), whose] {
    if (const Status ended = raw->relay_->run(raw->stop_.get()); !ended) {
      log_error(whose + " relay ended: " + ended.error().why);
    }
  });
  return started;
}

RelayThread::~RelayThread() {
  (void)::eventfd_write(stop_.get(), 1);  // a counter that is not full takes it
  thread_.join();
}

}  // namespace atl

// A relay in a process that does something else besides: the coordinator's, or an island's.
// Threads: any; the relay has one of its own.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "transport/base/file_descriptor.hpp"
#include "transport/base/result.hpp"
#include "transport/relay/relay_server.hpp"

namespace atl {

class RelayThread {
 public:
  // `whose`, for the log: "the coordinator's". Errors: those of RelayServer::open; io when no descriptors are left.
  static Result<std::unique_ptr<RelayThread>> start(RelaySettings settings, const std::string& whose);
  // Ends all its connections.
  ~RelayThread();
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;

  [[nodiscard]] std::string bound_address() const { return relay_->bound_address(); }

 private:
  RelayThread(FileDescriptor stop, std::unique_ptr<RelayServer> relay) : stop_(std::move(stop)), relay_(std::move(relay)) {}

  FileDescriptor stop_;
  std::unique_ptr<RelayServer> relay_;
  std::thread thread_;
};

}  // namespace atl

// The coordinator's page: an HTTP server over the coordinator's documents, on threads of its own.
// Threads: start and destroy it on one.
#pragma once

#include <memory>
#include <string>

#include "coordinator/web/document_cache.hpp"
#include "coordinator/web/http.hpp"
#include "coordinator/web/site.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

// Where the page may be served: "127.0.0.1:4480". It asks nobody for a key, so only this machine may reach it.
// Errors: invalid_argument for what is no address, and for one that others can reach, saying what to do instead.
Result<Address> parse_web_address(const std::string& text);

class Web {
 public:
  // Errors: those of parse_web_address and of HttpServer::start.
  static Result<std::unique_ptr<Web>> start(const std::string& address, AskCoordinator ask);

  [[nodiscard]] const std::string& url() const { return url_; }  // "http://127.0.0.1:4480/"

 private:
  explicit Web(AskCoordinator ask) : site_(std::move(ask)) {}

  Site site_;
  std::string url_;
  std::unique_ptr<HttpServer> server_;  // goes first
};

}  // namespace atl::coordinator

// libFuzzer: any bytes at the port of the coordinator's page, through the HTTP library, our bounds around it and what our addresses and
// queries are read by. Whatever comes, the coordinator is asked in JSON, and the connection ends by itself.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "coordinator/web/site.hpp"
#include "transport/web/http.hpp"

using namespace atl;
using namespace atl::coordinator;

namespace {

Result<std::string> answer_of_coordinator(const std::string& verb, const std::string& arguments) {
  if (!nlohmann::json::accept(arguments)) {
    std::abort();
  }
  if (arguments.find("text") == std::string::npos && arguments != "{}") {
    return Error{Code::not_found, "there is no such run"};
  }
  return verb == "events"  ? std::string(R"({"events": [], "next": 7, "ended": true})")
         : verb == "spans" ? std::string(R"({"run": "r-1", "next": 1, "spans": []})")
                           : std::string(R"({"schema": 1, "runs": [{"id": "text", "ended_unix_ms": null}]})");
}

struct Page {
  Site site{answer_of_coordinator};
  std::unique_ptr<HttpServer> server;

  Page() {
    HttpLimits limits;
    limits.request = std::chrono::seconds(1);
    auto started = HttpServer::start(
        {"127.0.0.1", 0}, [this](const HttpRequest& request) { return site.answer(request); }, limits);
    if (!started) {
      std::abort();
    }
    server = *std::move(started);
  }
};

// So many connections in a minute leave no port for the next one for a while, and libFuzzer's alarm interrupts some; whatever else fails,
// the page serves no longer.
int connected_to(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  for (;;) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return socket;
    }
    if (socket < 0 || (errno != EADDRNOTAVAIL && errno != EINTR)) {
      std::perror("the page cannot be reached");
      std::abort();
    }
    ::close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Page page;
  const int socket = connected_to(page.server->port());
  (void)!::send(socket, data, size, MSG_NOSIGNAL);
  ::shutdown(socket, SHUT_WR);
  char answer[4096];
  while (::recv(socket, answer, sizeof answer, 0) > 0) {
  }
  ::close(socket);
  return 0;
}

// Mutated addresses, queries and bytes for the coordinator's page: an answer or an end of the connection, never a crash.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "coordinator/web/metrics_text.hpp"
#include "coordinator/web/site.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

using namespace atl;
using namespace atl::coordinator;
using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 18> kPieces = {
    "/",    "..",  "%00",  "%2e%2e", "\xff", "?",  "&since=", "-1",   "99999999999999999999",
    "\r\n", "api", "runs", "events", "NaN",  "[]", "{}",      "null", "1e999"};

std::string mutate(std::string text, Rng& rng) {
  const std::uint64_t changes = 1 + rng.below(5);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    switch (rng.below(3)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, 1 + rng.below(20));
        break;
      default:
        text.insert(at, kPieces[rng.below(kPieces.size())]);
        break;
    }
  }
  return text;
}

Result<std::string> nothing(const std::string&, const std::string& arguments) {
  REQUIRE(json::accept(arguments));  // whatever was asked, the coordinator gets JSON
  return Error{Code::not_found, "there is no such run"};
}

std::string ask(std::uint16_t port, const std::string& bytes) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return answer;
}

}  // namespace

TEST_CASE("mutated addresses and queries of the page get an answer") {
  Site site(nothing);
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed, stream_of("web-address"));
    INFO("seed " << seed);
    const HttpRequest request{mutate("/api/runs/text/strips", rng),
                              {{"since", mutate("41", rng)}, {"after", mutate("41", rng)}, {"from", mutate("41", rng)}},
                              rng.below(2) == 0 ? "" : mutate("41", rng)};
    const HttpAnswer answer = site.answer(request);
    CHECK((answer.status == 200 || answer.status == 400 || answer.status == 404));
  }
}

TEST_CASE("mutated bytes at the page's port end in an answer or a closed connection, and it goes on serving") {
  HttpLimits limits;
  limits.request = std::chrono::milliseconds(500);
  const auto server = HttpServer::start(
      {"127.0.0.1", 0},
      [](const HttpRequest&) {
        return HttpAnswer{200, "text/plain", "here", {}};
      },
      limits);
  REQUIRE(server);
  const std::string good =
      "GET /api/runs/text/events?since=4&x=%41 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1,2-3\r\nAccept-Encoding: gzip\r\n"
      "Last-Event-ID: 7\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed, stream_of("web-bytes"));
    INFO("seed " << seed);
    ask((*server)->port(), mutate(good, rng));
  }
  CHECK(ask((*server)->port(), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").find("here") != std::string::npos);
}

TEST_CASE("mutated documents of spans and metrics lose lines, no more") {
  const std::string spans =
      R"({"next": 7, "spans": [{"island": "a", "activity": "wait", "round": 7, "peer": "b", "cause": "x", "start_unix_ns": 1767225599000000000, "length_ns": 310000000, "amount": 3}, {"island": "b", "activity": "receive", "peer": "a", "start_unix_ns": 1767225599000000000, "length_ns": 310000000, "amount": 3200000}]})";
  const std::string status =
      R"({"run": {"id": "r", "name": "n", "round": 7, "outer_loss": 1.8, "created_unix_ms": 5}, "islands": [{"name": "a", "active": true}]})";
  TimeStrips strips;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed, stream_of("web-documents"));
    INFO("seed " << seed);
    const json document = json::parse(mutate(spans, rng), nullptr, false);
    strips.take(document.is_object() ? document : json::object());
    const json other = json::parse(mutate(status, rng), nullptr, false);
    const std::string text = metrics_text("1", json::object(), json::object(), {other.is_object() ? other : json::object()});
    CHECK(text.find("nan") == std::string::npos);
  }
  CHECK(strips.strips(0, 0)["islands"].size() <= TimeStrips::kMostIslands);
}

// What proxies answer that no real one can be made to answer, and that nothing of a dial stays behind. Real ones: tests/own/proxy_test.py.
#include "transport/proxy/proxy_dials.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/catch.hpp"
#include "tests/loopback_server.hpp"
#include "transport/http/post.hpp"
#include "transport/zmq/control_client.hpp"

namespace of_proxy_dials_test {

using namespace atl;
using namespace std::chrono_literals;
using atl_test::LoopbackServer;

const Address kTarget{"203.0.113.7", 4400};

ProxyRules rules_of(const std::string& kind, const LoopbackServer& server, const std::string& user = "") {
  const std::string place = server.url().substr(std::string("http://").size());
  return ProxyRules::read(kind + "://" + user + place, [](const std::string&) { return std::nullopt; }).value();
}

Error refusal_of(const std::string& kind, const std::function<void(int)>& talk, const std::string& user = "", Duration patience = 5s) {
  LoopbackServer server(talk);
  const ProxyRules rules = rules_of(kind, server, user);
  const Result<FileDescriptor> socket = dial_through(*rules.proxy(), kTarget, patience);
  REQUIRE_FALSE(socket);
  CHECK(socket.error().code == Code::unavailable);
  CHECK(socket.error().why.starts_with("the proxy " + rules.proxy()->shown + " (from --proxy) "));
  CHECK(socket.error().why.find("sesame") == std::string::npos);
  return socket.error();
}

bool says(const Error& error, const std::string& text) { return error.why.find(text) != std::string::npos; }

std::function<void(int)> answers(const std::string& text) {
  return [text](int connection) {
    LoopbackServer::read_head(connection);
    LoopbackServer::send_all(connection, text);
  };
}

// The method that it chooses, what it says to a name and password, and to the request.
std::function<void(int)> socks(char method, char verdict, char reply) {
  return [=](int connection) {
    char heard[300];
    (void)!::recv(connection, heard, sizeof heard, 0);
    LoopbackServer::send_all(connection, std::string("\x05", 1) + method);
    if (method == 2) {
      (void)!::recv(connection, heard, sizeof heard, 0);
      LoopbackServer::send_all(connection, std::string("\x01", 1) + verdict);
    }
    (void)!::recv(connection, heard, sizeof heard, 0);
    LoopbackServer::send_all(connection, std::string("\x05", 1) + reply + std::string("\0\x01\0\0\0\0\0\0", 8));
  };
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

TEST_CASE("what comes right behind a proxy's consent is the far end's, and all of it") {
  LoopbackServer server([](int connection) {
    CHECK(LoopbackServer::read_head(connection).starts_with("CONNECT 203.0.113.7:4400 HTTP/1.1\r\n"));
    LoopbackServer::send_all(connection, "HTTP/1.1 200 OK\r\n\r\nfirst words");
  });
  const ProxyRules rules = rules_of("http", server);
  const Result<FileDescriptor> socket = dial_through(*rules.proxy(), kTarget, 5s);
  REQUIRE(socket);
  std::string heard;
  char byte = 0;
  for (pollfd one{socket->get(), POLLIN, 0}; ::poll(&one, 1, 5000) == 1 && ::recv(socket->get(), &byte, 1, 0) == 1;) {
    heard += byte;
  }
  CHECK(heard == "first words");
}

TEST_CASE("each refusal of a proxy of HTTP is one line that says what to do") {
  const std::string kNeeds = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n";
  CHECK(says(refusal_of("http", answers(kNeeds)), "asks for a name and password (HTTP 407)"));
  CHECK(says(refusal_of("http", answers(kNeeds), "ali:sesame@"), "does not take the name and password (HTTP 407)"));
  const Error port = refusal_of("http", answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"));
  CHECK(says(port, "refuses to connect to tcp://203.0.113.7:4400 (HTTP 403)"));
  CHECK(says(port, "--bind 'tcp://*:443'"));
  CHECK(says(refusal_of("http", answers("HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n")),
             "cannot reach tcp://203.0.113.7:4400 (HTTP 503)"));
  CHECK(says(refusal_of("http", answers("\xff\x00garbage\r\n\r\n")), "does not connect to tcp://203.0.113.7:4400"));
  CHECK(says(refusal_of("http", [](int) {}), "does not connect to tcp://203.0.113.7:4400"));
}

TEST_CASE("each refusal of a proxy of SOCKS is one line that says what to do") {
  CHECK(says(refusal_of("socks5h", socks('\xff', 0, 0)), "asks for a name and password"));
  CHECK(says(refusal_of("socks5h", socks(2, 1, 0), "ali:sesame@"), "does not take the name and password"));
  CHECK(says(refusal_of("socks5h", socks(0, 0, 2)), "refuses to connect to tcp://203.0.113.7:4400"));
  CHECK(says(refusal_of("socks5h", socks(0, 0, 5)), "cannot reach tcp://203.0.113.7:4400"));
  CHECK(says(refusal_of("socks5h", [](int connection) { LoopbackServer::send_all(connection, "HTTP/1.1 400 No\r\n\r\n"); }),
             "is it a proxy of this kind?"));
}

TEST_CASE("a proxy that takes a connection and says nothing costs a dial's patience, and nothing stays open") {
  const auto hangs = [](int connection) {
    for (char byte = 0; ::recv(connection, &byte, 1, 0) == 1;) {
    }
  };
  (void)refusal_of("http", [](int) {});  // what libcurl opens once for all
  const std::size_t before = descriptors();
  for (const char* kind : {"http", "socks5h"}) {
    const TimePoint begin = now();
    CHECK(says(refusal_of(kind, hangs, "", 300ms), "has not opened a way to tcp://203.0.113.7:4400 within 300 ms"));
    CHECK(now() - begin < 3s);
  }
  LoopbackServer server(hangs);
  const ProxyRules rules = rules_of("http", server);
  {
    ProxyDials dials;
    for (std::uint64_t i = 0; i < 3; ++i) {
      dials.begin(i, *rules.proxy(), kTarget, 30s);
    }
    (void)dials.advance();
    dials.drop(1);
    CHECK(dials.advance().empty());
  }
  CHECK(descriptors() <= before + 2);  // the server's
}

TEST_CASE("the control link names what the proxy says, and gives up on one that says nothing") {
  const auto asked = [](const ProxyRules& rules) {
    ControlClientSettings settings;
    settings.address = "tcp://203.0.113.7:443";
    settings.keys = make_key_pair().value();
    settings.coordinator_key = make_key_pair().value().public_key;
    settings.log_changes = false;
    settings.connect_timeout = 400ms;
    settings.proxy = rules;
    const auto client = ZmqControlClient::open(settings);
    REQUIRE(client);
    Request request;
    request.id = 1;
    request.verb = "ping";
    const Result<Reply> reply = (*client)->ask(request, 10s);
    REQUIRE_FALSE(reply);
    CHECK(reply.error().code == Code::unavailable);
    CHECK(says(reply.error(), "cannot reach the coordinator at tcp://203.0.113.7:443: the proxy http://127.0.0.1:"));
    return reply.error();
  };
  const TimePoint begin = now();
  {
    LoopbackServer server([](int connection) {
      for (char byte = 0; ::recv(connection, &byte, 1, 0) == 1;) {
      }
    });
    CHECK(says(asked(rules_of("http", server)), "has not opened a way to tcp://203.0.113.7:443 within 350 ms"));
  }
  {
    LoopbackServer server(answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"));
    CHECK(says(asked(rules_of("http", server)), "refuses to connect to tcp://203.0.113.7:443 (HTTP 403)"));
  }
  CHECK(now() - begin < 8s);
}

TEST_CASE("what is posted and fetched goes through the proxy of --proxy, and what is on this machine does not") {
  std::string head;
  LoopbackServer server([&](int connection) {
    head = LoopbackServer::read_head(connection);
    LoopbackServer::send_all(connection, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  });
  struct Restored {
    ~Restored() { set_own_proxy({}); }
  } restored;
  set_own_proxy(rules_of("http", server));
  PostSettings settings;
  settings.url = "https://203.0.113.7/hook";
  settings.patience = 2s;
  CHECK(post(settings).error().code == Code::unavailable);
  CHECK(head.starts_with("CONNECT 203.0.113.7:443 HTTP/1.1\r\n"));
  head.clear();
  settings.url = server.url() + "/hook";  // of this machine: asked itself
  CHECK_FALSE(post(settings));
  CHECK(head.starts_with("POST /hook HTTP/1.1\r\n"));
}

}  // namespace of_proxy_dials_test

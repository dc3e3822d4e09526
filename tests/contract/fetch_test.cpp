// Fetching: resumed, verified, cached; and what comes of servers that drop, lie, refuse or stay silent.
#include "transport/http/fetch.hpp"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/catch.hpp"
#include "tests/http_server.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"

namespace of_fetch_test {

using namespace atl;
using namespace std::chrono_literals;
using atl_test::HttpServer;
using Answer = HttpServer::Answer;
using Request = HttpServer::Request;

namespace {

std::string content_of(std::size_t bytes) {
  Rng rng(9);
  std::string content(bytes, '\0');
  for (char& c : content) {
    c = static_cast<char>(rng.below(256));
  }
  return content;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Fixture {
  atl_test::TemporaryFolder folder;
  std::string content = content_of(3'000'000);

  [[nodiscard]] FetchSettings settings(const HttpServer& server) const {
    FetchSettings settings;
    settings.url = server.url("/corpus.bin?secret=1");
    settings.sha256 = sha256(as_bytes(content));
    settings.cache = folder.path() / "cache";
    settings.allow_loopback_http = true;
    settings.retry_first = 1ms;
    return settings;
  }
  [[nodiscard]] std::filesystem::path whole() const { return folder.path() / "cache" / to_hex(sha256(as_bytes(content))); }
  [[nodiscard]] std::filesystem::path partial() const { return whole().string() + ".partial"; }
  void leave_partial(const std::string& text) const { folder.write("cache/" + to_hex(sha256(as_bytes(content))) + ".partial", text); }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "fetch: a file arrives once, then comes from the cache, with progress told") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  FetchSettings with = settings(server);
  std::uint64_t last = 0;
  with.progress = [&](const FetchProgress& progress) {
    CHECK(progress.received_bytes >= last);
    last = progress.received_bytes;
    return true;
  };
  const Result<std::filesystem::path> path = fetch(with);
  INFO((path ? "" : path.error().why));
  REQUIRE(path);
  CHECK(*path == whole());
  CHECK(text_of(*path) == content);
  CHECK(last == content.size());
  CHECK_FALSE(std::filesystem::exists(partial()));
  CHECK(fetch(with).value() == *path);
  CHECK(server.requests().size() == 1);
}

TEST_CASE_METHOD(Fixture, "fetch: a dropped connection is resumed where it broke") {
  const HttpServer server(
      [&](const Request& request) { return Answer{200, content, "", request.number < 4 ? 500'000 : std::string::npos, false, false}; });
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
  const auto requests = server.requests();
  REQUIRE(requests.size() == 5);
  CHECK_FALSE(requests[0].ranged);
  for (std::size_t i = 1; i < requests.size(); ++i) {
    CHECK(requests[i].begin == i * 500'000);
  }
}

TEST_CASE_METHOD(Fixture, "fetch: after too many drops it is unavailable, and the next call goes on from there") {
  std::atomic<bool> healed = false;
  const HttpServer server([&](const Request&) { return Answer{200, content, "", healed ? std::string::npos : 1000, false, false}; });
  const Result<std::filesystem::path> failed = fetch(settings(server));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Code::unavailable);
  CHECK(contains(failed.error().why, "127.0.0.1"));
  CHECK_FALSE(contains(failed.error().why, "secret"));
  CHECK(server.requests().size() == 5);
  CHECK(std::filesystem::file_size(partial()) == 5000);
  healed = true;
  REQUIRE(fetch(settings(server)));
  CHECK(server.requests().back().begin == 5000);
  CHECK(text_of(whole()) == content);
}

TEST_CASE_METHOD(Fixture, "fetch: a wrong file is corrupt, both digests are named and nothing is left") {
  const std::string other = content_of(1000);
  const HttpServer server([&](const Request&) { return Answer{200, other, "", std::string::npos, false, false}; });
  const Result<std::filesystem::path> wrong = fetch(settings(server));
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Code::corrupt);
  CHECK(contains(wrong.error().why, to_hex(sha256(as_bytes(other)))));
  CHECK(contains(wrong.error().why, to_hex(sha256(as_bytes(content)))));
  CHECK_FALSE(std::filesystem::exists(partial()));
  CHECK_FALSE(std::filesystem::exists(whole()));
  CHECK(server.requests().size() == 1);
}

TEST_CASE_METHOD(Fixture, "fetch: what an earlier version of the file left behind is thrown away, once") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  leave_partial("the beginning of something else");
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
  CHECK(server.requests().size() == 2);
  std::filesystem::remove(whole());
  leave_partial(content + "more than there is");
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
  std::filesystem::remove(whole());
  leave_partial(content);  // whole, but not renamed yet
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
}

TEST_CASE_METHOD(Fixture, "fetch: a server that knows no ranges sends all of it again") {
  const HttpServer server(
      [&](const Request& request) { return Answer{200, content, "", request.number == 0 ? 500'000 : std::string::npos, true, false}; });
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
  CHECK(server.requests().size() == 2);
}

TEST_CASE_METHOD(Fixture, "fetch: a flipped bit in the cache is noticed and mended") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  REQUIRE(fetch(settings(server)));
  std::string rotten = content;
  rotten[12345] = static_cast<char>(rotten[12345] ^ 1);
  std::ofstream(whole(), std::ios::binary) << rotten;
  REQUIRE(fetch(settings(server)));
  CHECK(text_of(whole()) == content);
}

TEST_CASE_METHOD(Fixture, "fetch: what the server says is told, and only what may pass is tried again") {
  int status = 0;
  const HttpServer server([&](const Request&) { return Answer{status, "no", "", std::string::npos, false, false}; });
  struct Case {
    int status;
    Code code;
    std::size_t requests;
  };
  std::size_t before = 0;
  for (const Case& one :
       {Case{404, Code::not_found, 1}, Case{410, Code::not_found, 1}, Case{401, Code::unauthorized, 1}, Case{403, Code::unauthorized, 1},
        Case{400, Code::invalid_argument, 1}, Case{503, Code::unavailable, 5}, Case{429, Code::unavailable, 5}}) {
    INFO(one.status);
    status = one.status;
    const Result<std::filesystem::path> result = fetch(settings(server));
    REQUIRE_FALSE(result);
    CHECK(result.error().code == one.code);
    CHECK(contains(result.error().why, std::to_string(one.status)));
    CHECK(contains(result.error().why, server.url("/")));  // with its port
    CHECK(server.requests().size() - before == one.requests);
    before = server.requests().size();
  }
}

TEST_CASE_METHOD(Fixture, "fetch: redirects are followed, but not for ever and not to another protocol") {
  const HttpServer server([&](const Request& request) {
    if (request.path.starts_with("/corpus.bin")) {
      return Answer{302, "", "Location: /moved", std::string::npos, false, false};
    }
    if (request.path == "/loop") {
      return Answer{302, "", "Location: /loop", std::string::npos, false, false};
    }
    if (request.path == "/file") {
      return Answer{302, "", "Location: file:///etc/passwd", std::string::npos, false, false};
    }
    return Answer{200, content, "", std::string::npos, false, false};
  });
  REQUIRE(fetch(settings(server)));
  CHECK(server.requests().size() == 2);
  std::filesystem::remove(whole());
  FetchSettings looping = settings(server);
  looping.url = server.url("/loop");
  CHECK(fetch(looping).error().code == Code::invalid_argument);
  CHECK(server.requests().size() == 8);  // the first and five redirects
  FetchSettings other = settings(server);
  other.url = server.url("/file");
  CHECK(fetch(other).error().code == Code::invalid_argument);
}

TEST_CASE_METHOD(Fixture, "fetch: a silent server is given up") {
  const HttpServer server([&](const Request&) { return Answer{200, "", "", std::string::npos, false, true}; });
  FetchSettings with = settings(server);
  with.stall_timeout = 1s;
  with.attempts = 1;
  CHECK(fetch(with).error().code == Code::unavailable);
}

TEST_CASE_METHOD(Fixture, "fetch: a server that drips is given up, and what came is kept") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false, true}; });
  FetchSettings with = settings(server);
  with.stall_timeout = 1s;
  with.attempts = 1;
  const TimePoint begun = now();
  const auto fetched = fetch(with);
  REQUIRE_FALSE(fetched);
  CHECK(fetched.error().code == Code::unavailable);
  CHECK(contains(fetched.error().why, "the next try goes on from there"));
  CHECK(now() - begun < 20s);
  CHECK(std::filesystem::file_size(partial()) > 0);
}

TEST_CASE_METHOD(Fixture, "fetch: of a file over the bound nothing is kept") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  FetchSettings with = settings(server);
  with.max_bytes = 1'000'000;
  CHECK(fetch(with).error().code == Code::invalid_argument);
  CHECK_FALSE(std::filesystem::exists(partial()));
}

TEST_CASE_METHOD(Fixture, "fetch: a file without an end leaves the disk to others, and nothing of it is kept") {
  const HttpServer server([&](const Request&) {
    Answer endless{200, content, "", std::string::npos, false, false};
    endless.no_length = true;
    return endless;
  });
  FetchSettings with = settings(server);
  with.leave_free_bytes = std::uint64_t{1} << 62U;  // more than any disk has
  const Result<std::filesystem::path> result = fetch(with);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Code::io);
  CHECK(contains(result.error().why, "does not say how much"));
  CHECK_FALSE(std::filesystem::exists(partial()));
  CHECK(server.requests().size() == 1);
  REQUIRE(fetch(settings(server)));  // where there is room a length is not needed
}

TEST_CASE_METHOD(Fixture, "fetch: a file that does not fit the disk is refused before its first byte, and what was there is kept") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  leave_partial(content.substr(0, 500'000));
  FetchSettings with = settings(server);
  with.leave_free_bytes = std::uint64_t{1} << 62U;
  const Result<std::filesystem::path> result = fetch(with);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Code::io);
  CHECK(contains(result.error().why, "2.5 MB are still to come"));
  CHECK(std::filesystem::file_size(partial()) == 500'000);
  REQUIRE(fetch(settings(server)));
}

TEST_CASE_METHOD(Fixture, "fetch: cancelling keeps what is there") {
  const HttpServer server(
      [&](const Request& request) { return Answer{200, content, "", request.number == 0 ? std::size_t{500'000} : 0, false, false}; });
  FetchSettings with = settings(server);
  with.progress = [](const FetchProgress& progress) { return progress.received_bytes < 500'000; };
  CHECK(fetch(with).error().code == Code::cancelled);
  CHECK(std::filesystem::file_size(partial()) == 500'000);
}

TEST_CASE_METHOD(Fixture, "fetch: several at once fetch one file") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { good += fetch(settings(server)).has_value() ? 1 : 0; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == 4);
  CHECK(text_of(whole()) == content);
  CHECK(server.requests().size() == 1);
}

TEST_CASE_METHOD(Fixture, "fetch: only https, with a digest, to a folder that can be") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  FetchSettings plain = settings(server);
  plain.allow_loopback_http = false;
  CHECK(fetch(plain).error().code == Code::invalid_argument);
  CHECK(contains(fetch(plain).error().why, "https"));
  for (const char* url : {"", "corpus.bin", "file:///etc/passwd", "ftp://example.org/x", "http://example.org/x",
                          "http://127.0.0.1.example.org/x", "gopher://x"}) {
    INFO(url);
    FetchSettings bad = settings(server);
    bad.url = url;
    CHECK(fetch(bad).error().code == Code::invalid_argument);
  }
  FetchSettings loose = settings(server);
  loose.sha256 = {};
  CHECK(contains(fetch(loose).error().why, "SHA-256"));
  FetchSettings nowhere = settings(server);
  nowhere.cache = "/proc/atoll/cache";
  CHECK(fetch(nowhere).error().code == Code::io);
  CHECK(server.requests().empty());
}

TEST_CASE_METHOD(Fixture, "fetch: a disk that takes no more is said, and what is there is kept") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead
  const rlimit small{1'000'000, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Result<std::filesystem::path> result = fetch(settings(server));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Code::io);
  CHECK(contains(result.error().why, ".partial"));
  CHECK(std::filesystem::file_size(partial()) == 1'000'000);
  REQUIRE(fetch(settings(server)));
  CHECK(server.requests().back().begin == 1'000'000);
}

TEST_CASE_METHOD(Fixture, "fetch: something else in the partial file's place is an error") {
  const HttpServer server([&](const Request&) { return Answer{200, content, "", std::string::npos, false, false}; });
  std::filesystem::create_directories(folder.path() / "cache");
  std::filesystem::create_symlink("/dev/full", partial());
  CHECK(fetch(settings(server)).error().code == Code::io);
  std::filesystem::remove(partial());
  std::filesystem::create_directories(partial());
  CHECK(fetch(settings(server)).error().code == Code::io);
}

}  // namespace of_fetch_test

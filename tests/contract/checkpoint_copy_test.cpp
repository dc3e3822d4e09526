// Copies of checkpoints in a store: at stores that fail as told, and at a real S3-compatible server (PyPI's moto).
#include "agent/service/checkpoint_copy.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/checkpoint_to_copy.hpp"
#include "tests/s3_server.hpp"
#include "tests/s3_signature.hpp"
#include "tests/skip.hpp"
#include "tests/store_server.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/store_address.hpp"
#include "transport/identity/sha256.hpp"

namespace of_checkpoint_copy_test {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;
using atl_test::CheckpointToCopy;
using atl_test::S3Server;
using atl_test::StoreServer;
using atl_test::text_of;
using nlohmann::json;

namespace {

constexpr std::uint64_t kPart = 100'000;

// Counts how often somebody waited, and does not.
struct Waits {
  std::vector<Duration> waits;
  CopyPatience patience() {
    CopyPatience chosen;
    chosen.wait = [this](Duration time) {
      waits.push_back(time);
      return true;
    };
    return chosen;
  }
};

StoreCredentials keys_for(const std::string& endpoint) {
  StoreCredentials credentials;
  credentials.access_key = "AKIATEST";
  credentials.secret_key = "the-secret";
  credentials.endpoint = endpoint;
  return credentials;
}

// The two kinds of a store, of one server.
ObjectStore open_store(const StoreServer& server, bool s3, StoreTimes times = {}) {
  return s3 ? ObjectStore::open("s3://kept/lab", keys_for(server.url()), {}, times).value()
            : ObjectStore::open(server.url() + "/kept/lab", {}, {}, times).value();
}

Result<CopyDone> copy(const ObjectStore& store, const CheckpointToCopy& checkpoint, Waits& waits, std::size_t keep = 3) {
  return copy_checkpoint(store, checkpoint.job(kPart, keep), waits.patience());
}

std::string http_date_now() {
  const std::time_t time = std::time(nullptr);
  std::array<char, 64> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&time)));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a copy of a checkpoint comes back byte by byte, and the oldest copies go") {
  for (const bool s3 : {false, true}) {
    INFO((s3 ? "s3" : "https"));
    const StoreServer server;
    const ObjectStore store = open_store(server, s3);
    Waits waits;
    const CheckpointToCopy first(10);
    const CheckpointToCopy second(20);
    const CheckpointToCopy third(30);
    REQUIRE(copy(store, first, waits, 2).value().sent_bytes == 350'000);
    REQUIRE(copy(store, second, waits, 2));
    std::map<std::string, std::string> objects = server.objects();
    std::string together;
    for (int part = 0; part < 4 && !s3; ++part) {
      together += objects.at("/kept/lab/r-1/10/outer.safetensors." + std::to_string(part));
    }
    CHECK((s3 ? objects.at("/kept/lab/r-1/10/outer.safetensors") : together) == first.content);
    CHECK(json::parse(objects.at("/kept/lab/r-1/newest.json")).at("rounds") == json({10, 20}));
    CHECK(server.uploads() == 0);

    REQUIRE(copy(store, third, waits, 2));
    objects = server.objects();
    CHECK(json::parse(objects.at("/kept/lab/r-1/newest.json")).at("rounds") == json({20, 30}));
    CHECK(json::parse(objects.at("/kept/lab/newest.json")).at("run") == "r-1");
    for (const auto& [path, bytes] : objects) {
      CHECK_FALSE(contains(path, "/r-1/10/"));
    }
    const atl_test::TemporaryFolder folder;
    REQUIRE(newest_folder(store, waits.patience()).value() == "r-1/");
    const Result<CopiedCheckpoint> newest = fetch_copy(store, "r-1/", std::nullopt, folder.path() / "newest", waits.patience());
    REQUIRE(newest);
    CHECK(*newest == third.what);
    CHECK(text_of(folder.path() / "newest") == third.content);
    REQUIRE(fetch_copy(store, "r-1/", Round(20), folder.path() / "older", waits.patience()));
    CHECK(text_of(folder.path() / "older") == second.content);
    const Result<CopiedCheckpoint> gone = fetch_copy(store, "r-1/", Round(10), folder.path() / "gone", waits.patience());
    REQUIRE_FALSE(gone);
    CHECK(gone.error().code == Code::not_found);
    // What is whole is not sent again.
    CHECK(copy(store, third, waits).value().sent_bytes == 0);
    CHECK(waits.waits.empty());
  }
}

TEST_CASE("a small checkpoint is one file under its own name") {
  const StoreServer server;
  Waits waits;
  const CheckpointToCopy small(1, 5'000);
  for (const bool s3 : {false, true}) {
    REQUIRE(copy(open_store(server, s3), small, waits));
    CHECK(server.objects().at("/kept/lab/r-1/1/outer.safetensors") == small.content);
  }
}

TEST_CASE("a copy that broke off goes on: only parts that are not there are sent") {
  for (const bool s3 : {false, true}) {
    INFO((s3 ? "s3" : "https"));
    std::atomic<bool> broken = true;  // the store dies in the third part
    const StoreServer server([&](const StoreServer::Request& request) {
      const bool third = request.method == "PUT" && (contains(request.path, "outer.safetensors.2") ||
                                                     (request.query.contains("partNumber") && request.query.at("partNumber") == "3"));
      StoreServer::Failure failure;
      failure.hang_up_after = broken && third ? 1'000 : std::string::npos;
      return failure;
    });
    const ObjectStore store = open_store(server, s3);
    Waits waits;
    const CheckpointToCopy checkpoint(10);
    const Result<CopyDone> failed = copy(store, checkpoint, waits);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == Code::unavailable);
    CHECK(waits.waits == std::vector<Duration>{1s, 2s, 4s, 8s});
    CHECK_FALSE(server.objects().contains("/kept/lab/r-1/10/copy.json"));
    CHECK(look_at_copy(store, "r-1/", Round(10), waits.patience()).error().code == Code::not_found);
    broken = false;
    const CopyDone done = copy(store, checkpoint, waits).value();
    CHECK(done.present_bytes == 200'000);
    CHECK(done.sent_bytes == 150'000);
    const atl_test::TemporaryFolder folder;
    REQUIRE(fetch_copy(store, "r-1/", std::nullopt, folder.path() / "back", waits.patience()));
    CHECK(text_of(folder.path() / "back") == checkpoint.content);
  }
}

TEST_CASE("an upload that the store has given up begins anew, and one of an older checkpoint is dropped") {
  std::atomic<bool> broken = true;
  StoreServer server([&](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    failure.status = broken && request.query.contains("partNumber") && request.query.at("partNumber") == "2" ? 500 : 0;
    return failure;
  });
  const ObjectStore store = open_store(server, true);
  Waits waits;
  const CheckpointToCopy checkpoint(10);
  REQUIRE_FALSE(copy(store, checkpoint, waits));
  CHECK(server.uploads() == 1);
  broken = false;
  server.forget_uploads();
  const Result<CopyDone> gone = copy(store, checkpoint, waits);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == Code::unavailable);  // worth another try, which begins anew
  CHECK(copy(store, checkpoint, waits).value().sent_bytes == 350'000);
  CHECK(server.objects().at("/kept/lab/r-1/10/outer.safetensors") == checkpoint.content);

  broken = true;
  const CheckpointToCopy older(20);
  REQUIRE_FALSE(copy(store, older, waits));
  CHECK(server.uploads() == 1);
  broken = false;
  CheckpointToCopy newer(30);
  CopyJob job = newer.job(kPart, 3);
  job.progress = older.job(kPart, 3).progress;  // that of the same island
  REQUIRE(copy_checkpoint(store, job, waits.patience()));
  CHECK(server.uploads() == 0);
}

TEST_CASE("a store that is busy is asked again a bounded number of times, and one that refuses is not") {
  struct Row {
    int status;
    std::string body;
    unsigned fails;  // so many requests in a row
    std::optional<Code> code;
    std::string says;
    std::size_t waits;
  };
  for (const Row& row : std::vector<Row>{{503, "", 2, std::nullopt, "", 2},
                                         {500, "", 4, std::nullopt, "", 4},
                                         {503, "<Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>", 1000,
                                          Code::unavailable, "503 (SlowDown: reduce your rate)", 4},
                                         {403, "<Error><Code>AccessDenied</Code><Message>access\ndenied</Message></Error>", 1000,
                                          Code::unauthorized, "403 (AccessDenied: access denied): are the keys right", 0},
                                         {301, "", 1000, Code::invalid_argument, "set AWS_REGION", 0},
                                         {400, "", 1000, Code::invalid_argument, "400", 0}}) {
    std::atomic<unsigned> left = row.fails;
    const StoreServer server([&](const StoreServer::Request&) {
      StoreServer::Failure failure;
      if (left > 0) {
        --left;
        failure.status = row.status;
        failure.body = row.body;
      }
      return failure;
    });
    Waits waits;
    const CheckpointToCopy checkpoint(10, 1'000);
    const Result<CopyDone> done = copy(open_store(server, true), checkpoint, waits);
    INFO(row.status << " " << row.fails << " times: " << (done ? "copied" : done.error().why));
    CHECK(static_cast<bool>(done) == !row.code.has_value());
    CHECK(waits.waits.size() == row.waits);
    if (row.code && !done) {
      CHECK(done.error().code == *row.code);
      CHECK(contains(done.error().why, row.says));
      CHECK_FALSE(contains(done.error().why, "\n"));
    }
  }
}

TEST_CASE("a store that does not answer is given up after a time") {
  const StoreServer server([](const StoreServer::Request&) {
    StoreServer::Failure failure;
    failure.silent = true;
    return failure;
  });
  Waits waits;
  CopyPatience once = waits.patience();
  once.attempts = 1;
  const CheckpointToCopy checkpoint(10, 1'000);
  const TimePoint begun = now();
  const Result<CopyDone> done = copy_checkpoint(open_store(server, false, {1s, 1s}), checkpoint.job(kPart, 3), once);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == Code::unavailable);
  CHECK(contains(done.error().why, "the store cannot be reached, or broke off"));
  CHECK(now() - begun < 20s);
}

TEST_CASE("a store that drips holds up neither a copy nor a restore for ever") {
  std::atomic<bool> drips = false;
  std::atomic<bool> notes = false;
  const StoreServer server([&](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    failure.drips = drips && request.method == "GET" && request.path.ends_with(".json") == notes;
    return failure;
  });
  Waits waits;
  CopyPatience once = waits.patience();
  once.attempts = 1;
  const CheckpointToCopy checkpoint(10);
  REQUIRE(copy(open_store(server, false), checkpoint, waits));
  drips = true;
  const atl_test::TemporaryFolder folder;
  for (const bool of_notes : {false, true}) {
    notes = of_notes;
    StoreTimes times{5s, 1s, 2s};
    const TimePoint begun = now();
    const auto fetched = fetch_copy(open_store(server, false, times), "r-1/", std::nullopt, folder.path() / "back", once);
    REQUIRE_FALSE(fetched);
    INFO(fetched.error().why);
    CHECK(fetched.error().code == Code::unavailable);
    CHECK(now() - begun < 20s);
    CheckpointToCopy other(20);
    const Result<CopyDone> copied = copy_checkpoint(open_store(server, false, times), other.job(kPart, 3), once);
    REQUIRE_FALSE(copied);
    CHECK(copied.error().code == Code::unavailable);
    CHECK(now() - begun < 40s);
  }
}

TEST_CASE("half a body is fetched again, and other bytes than were put there are refused") {
  const CheckpointToCopy checkpoint(10);
  Waits waits;
  std::atomic<unsigned> halves = 0;
  StoreServer server([&](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    if (request.method == "GET" && contains(request.path, "outer.safetensors.1") && halves > 0) {
      --halves;
      failure.half_after = 500;
    }
    return failure;
  });
  const ObjectStore store = open_store(server, false);
  REQUIRE(copy(store, checkpoint, waits));
  const atl_test::TemporaryFolder folder;
  halves = 2;
  REQUIRE(fetch_copy(store, "r-1/", std::nullopt, folder.path() / "back", waits.patience()));
  CHECK(text_of(folder.path() / "back") == checkpoint.content);
  CHECK(waits.waits.size() == 2);
  halves = 1000;
  const std::filesystem::path never = folder.path() / "never";
  const Result<CopiedCheckpoint> broken = fetch_copy(store, "r-1/", std::nullopt, never, waits.patience());
  REQUIRE_FALSE(broken);
  CHECK(broken.error().code == Code::unavailable);
  halves = 0;
  const std::size_t before = server.requests("GET").size();
  REQUIRE(fetch_copy(store, "r-1/", std::nullopt, never, waits.patience()));
  CHECK(server.requests("GET").size() - before == 6);  // three notes and three parts: the first part lay here
  for (const auto& [name, bytes] : std::map<std::string, std::string>{{"other", std::string(kPart, 'x')}, {"shorter", "x"}, {"none", ""}}) {
    server.set("/kept/lab/r-1/10/outer.safetensors.1", bytes);
    const Result<CopiedCheckpoint> other = fetch_copy(store, "r-1/", std::nullopt, folder.path() / "other", waits.patience());
    INFO(name);
    REQUIRE_FALSE(other);
    CHECK(other.error().code == Code::corrupt);
    CHECK(contains(other.error().why, "10/outer.safetensors.1"));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "other"));
  }
  const std::string good = server.objects().at("/kept/lab/r-1/10/copy.json");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{good, ""},
                                                                                 {good, "[]"},
                                                                                 {good, "{\"format\":1}"},
                                                                                 {good, std::string(100'000, '[')},
                                                                                 {"\"outer.safetensors.1\"", "\"../../../etc/passwd\""},
                                                                                 {"\"bytes\": 350000", "\"bytes\": 18446744073709551615"},
                                                                                 {"\"bytes\": 350000", "\"bytes\": -5"},
                                                                                 {"\"run\": \"r-1\"", "\"run\": \"../r-1\""}}) {
    std::string note = good;
    REQUIRE(contains(note, from));
    note.replace(note.find(from), from.size(), to);
    server.set("/kept/lab/r-1/10/copy.json", note);
    const Result<CopiedCheckpoint> wrong = fetch_copy(store, "r-1/", std::nullopt, folder.path() / "other", waits.patience());
    INFO(to.substr(0, 100));
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().code == Code::corrupt);
  }
}

TEST_CASE("an HTTPS server that keeps other bytes than were sent is noticed, and the copy is not called whole") {
  const StoreServer server([](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    failure.spoils = request.method == "PUT" && contains(request.path, "outer.safetensors.3");
    return failure;
  });
  Waits waits;
  const CheckpointToCopy checkpoint(10);
  const Result<CopyDone> done = copy(open_store(server, false), checkpoint, waits);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == Code::corrupt);
  CHECK_FALSE(server.objects().contains("/kept/lab/r-1/10/copy.json"));
}

TEST_CASE("an upload of which the store lost a part is noticed by its size") {
  const StoreServer server([](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    if (request.query.contains("partNumber") && request.query.at("partNumber") == "2") {
      failure.forgets = true;
    }
    return failure;
  });
  Waits waits;
  const CheckpointToCopy checkpoint(10);
  const Result<CopyDone> done = copy(open_store(server, true), checkpoint, waits);
  REQUIRE_FALSE(done);
  CHECK(done.error().why == "the store has 250.0 kB of a file of 350.0 kB");
  CHECK_FALSE(server.objects().contains("/kept/lab/r-1/10/copy.json"));
}

TEST_CASE("a server that says 200 to everything and keeps nothing has no copy") {
  const std::string page = "<!doctype html><html><body>Console</body></html>";
  for (const bool s3 : {false, true}) {
    for (const std::size_t bytes : {std::size_t{1'000}, page.size(), std::size_t{350'000}}) {
      for (const char* tag : {"", "ETag: \"5f1c\"\r\n"}) {
        INFO((s3 ? "s3 " : "https ") << bytes << " " << tag);
        const StoreServer server([&](const StoreServer::Request&) {
          StoreServer::Failure failure;
          failure.status = 200;
          failure.body = page;
          failure.header = tag;
          return failure;
        });
        Waits waits;
        const CheckpointToCopy checkpoint(10, bytes);
        const Result<CopyDone> done = copy(open_store(server, s3), checkpoint, waits);
        REQUIRE_FALSE(done);
        INFO(done.error().why);
        const bool in_parts = s3 && bytes > kPart;  // whose first request asks for an id
        CHECK(contains(done.error().why, in_parts ? "the store gives no id for an upload in parts" : "the store's own address"));
        CHECK(waits.waits.empty());
        CHECK(server.objects().empty());
      }
    }
  }
}

TEST_CASE("a store that takes the file and loses the note about it has no copy") {
  for (const bool s3 : {false, true}) {
    for (const std::string lost : {"10/copy.json", "r-1/newest.json", "lab/newest.json"}) {
      INFO((s3 ? "s3 " : "https ") << lost);
      const StoreServer server([&](const StoreServer::Request& request) {
        StoreServer::Failure failure;
        failure.status = request.method == "PUT" && request.path.ends_with(lost) ? 200 : 0;
        return failure;
      });
      Waits waits;
      const CheckpointToCopy checkpoint(10);
      const Result<CopyDone> done = copy(open_store(server, s3), checkpoint, waits);
      REQUIRE_FALSE(done);
      CHECK(contains(done.error().why, "newest.json and has nothing under that name") == lost.ends_with("newest.json"));
      CHECK(contains(done.error().why, "and has nothing under that name"));
    }
  }
}

TEST_CASE("a clock beside the store's and keys that have run out are called so, and not a wrong key") {
  struct Row {
    std::string code;
    std::string date;  // that the store says, if any
    std::string says;
    std::string says_not;
  };
  const std::string key = "are the keys right";
  for (const Row& row : std::vector<Row>{
           {"RequestTimeTooSkewed", "", "this machine's clock and the store's differ: set the clock", key},
           {"RequestTimeTooSkewed", "Date: Tue, 01 Jan 2019 00:00:00 GMT\r\n", "the store's clock says 2019-01-01T00:00:00Z", key},
           {"", "Date: Tue, 01 Jan 2019 00:00:00 GMT\r\n", "the store's clock says 2019-01-01T00:00:00Z", key},
           {"AccessDenied", "Date: " + http_date_now() + "\r\n", key, "clock"},
           {"ExpiredToken", "", "the temporary keys have run out", key},
           {"AccessDenied", "Date: nonsense\r\n", key, "clock"}}) {
    const StoreServer server([&](const StoreServer::Request&) {
      StoreServer::Failure failure;
      failure.status = row.code == "ExpiredToken" ? 400 : 403;
      failure.body = row.code.empty() ? "" : "<Error><Code>" + row.code + "</Code><Message>no</Message></Error>";
      failure.header = row.date;
      return failure;
    });
    Waits waits;
    const CheckpointToCopy checkpoint(10, 1'000);
    const Result<CopyDone> done = copy(open_store(server, true), checkpoint, waits);
    REQUIRE_FALSE(done);
    INFO(row.code << ": " << done.error().why);
    CHECK(done.error().code == Code::unauthorized);
    CHECK(contains(done.error().why, row.says));
    CHECK_FALSE(contains(done.error().why, row.says_not));
  }
}

TEST_CASE("a bucket that does not exist is no store without copies") {
  const StoreServer server([](const StoreServer::Request&) {
    StoreServer::Failure failure;
    failure.status = 404;
    failure.body = "<Error><Code>NoSuchBucket</Code><Message>the bucket does not exist</Message></Error>";
    return failure;
  });
  Waits waits;
  const Result<std::string> newest = newest_folder(open_store(server, true), waits.patience());
  REQUIRE_FALSE(newest);
  CHECK(newest.error().code == Code::invalid_argument);
  CHECK(contains(newest.error().why, "is the bucket's name right?"));
}

TEST_CASE("a checkpoint that is not what was written is not called a copy") {
  for (const bool s3 : {false, true}) {
    const StoreServer server;
    CheckpointToCopy checkpoint(10);
    checkpoint.what.sha256 = sha256(as_bytes("other"));
    Waits waits;
    const Result<CopyDone> done = copy(open_store(server, s3), checkpoint, waits);
    REQUIRE_FALSE(done);
    CHECK(done.error().code == Code::corrupt);
    CHECK_FALSE(server.objects().contains("/kept/lab/r-1/10/copy.json"));
    CHECK(server.uploads() == 0);
  }
}

TEST_CASE("addresses of stores, and what lies below what an owner allows") {
  for (const char* good : {"s3://bucket", "s3://bucket/a/b", "s3://bucket/a/", "https://store.example.org/a", "https://store:8443",
                           "http://127.0.0.1:9000/a"}) {
    INFO(good);
    CHECK(check_store_address(good));
  }
  for (const char* bad :
       {"", "bucket/a", "s3://", "s3:///a", "s3://bucket//a", "s3://bucket/../a", "s3://buc ket/a", "s3://bucket/a?b", "ftp://h/a",
        "http://store.example.org/a", "https://", "https://user:word@host/a", "https://host/a?b=c", "https://host/ä"}) {
    INFO(bad);
    CHECK_FALSE(check_store_address(bad));
  }
  CHECK(is_below("s3://bucket/a", "s3://bucket/a/"));
  CHECK(is_below("s3://bucket/a/b", "s3://bucket/a"));
  CHECK(is_below("s3://bucket/a", "s3://bucket"));
  CHECK_FALSE(is_below("s3://bucket/ab", "s3://bucket/a"));
  CHECK_FALSE(is_below("s3://bucket", "s3://bucket/a"));
  CHECK_FALSE(is_below("s3://bucket2/a", "s3://bucket"));
}

TEST_CASE("keys come from the usual variables, and a token also from a file that nobody else can read") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.write("token", "of-the-lab\n");
  std::map<std::string, std::string> variables = {{"AWS_ACCESS_KEY_ID", "key"},
                                                  {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                  {"AWS_DEFAULT_REGION", "eu-west-3"},
                                                  {"AWS_ENDPOINT_URL", "https://store:9000"},
                                                  {"ATOLL_STORE_TOKEN_FILE", path.string()}};
  const auto look = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  CHECK(StoreCredentials::from(look).error().code == Code::unauthorized);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const StoreCredentials credentials = StoreCredentials::from(look).value();
  CHECK(credentials.access_key == "key");
  CHECK(credentials.secret_key == "secret");
  CHECK(credentials.region == "eu-west-3");
  CHECK(credentials.endpoint == "https://store:9000");
  CHECK(credentials.bearer_token == "of-the-lab");
  folder.write("token", "\xEF\xBB\xBFof-the-lab\r\n");  // saved by an editor of another system
  CHECK(StoreCredentials::from(look).value().bearer_token == "of-the-lab");
  variables["AWS_REGION"] = "eu-north-1";
  CHECK(StoreCredentials::from(look).value().region == "eu-north-1");
  CHECK(ObjectStore::open("s3://bucket/a", {}).error().code == Code::unauthorized);
  CHECK_FALSE(ObjectStore::open("s3://bucket/a", keys_for("http://store.example.org")));
}

TEST_CASE("a token goes to an HTTPS server with every request, and a signature to S3") {
  const StoreServer server;
  StoreCredentials credentials = keys_for(server.url());
  credentials.bearer_token = "of-the-lab";
  credentials.session_token = "for-an-hour";
  Waits waits;
  const CheckpointToCopy checkpoint(10);
  REQUIRE(copy(ObjectStore::open(server.url() + "/kept", credentials).value(), checkpoint, waits));
  for (const char* method : {"PUT", "GET"}) {
    for (const StoreServer::Request& request : server.requests(method)) {
      CHECK(request.headers.at("authorization") == "Bearer of-the-lab");
      CHECK_FALSE(request.headers.contains("x-amz-security-token"));
    }
  }
  const StoreServer s3;
  credentials.endpoint = s3.url();
  REQUIRE(copy(ObjectStore::open("s3://kept/a", credentials).value(), checkpoint, waits));
  REQUIRE(s3.requests("PUT").size() >= 5);
  REQUIRE(s3.requests("POST").size() == 2);
  REQUIRE(copy(ObjectStore::open("s3://kept/a", credentials).value(), CheckpointToCopy(20), waits, 1));
  REQUIRE_FALSE(s3.requests("DELETE").empty());
  for (const char* method : {"PUT", "GET", "POST", "DELETE", "HEAD"}) {
    for (const StoreServer::Request& request : s3.requests(method)) {
      const std::string& authorization = request.headers.at("authorization");
      INFO(method << " " << request.path << " ? " << request.query_text << "\n" << authorization);
      CHECK(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIATEST/"));
      CHECK(contains(authorization, "host;"));
      CHECK(contains(authorization, "x-amz-content-sha256"));
      CHECK(contains(authorization, "x-amz-security-token"));
      CHECK(request.headers.at("x-amz-security-token") == "for-an-hour");
      // As AWS's documentation computes it, from what came.
      CHECK(atl_test::signature_of(request.method, request.path, request.query_text, request.headers, "the-secret") ==
            authorization.substr(authorization.rfind('=') + 1));
      CHECK(atl_test::signature_of(request.method, request.path, request.query_text, request.headers, "other") !=
            authorization.substr(authorization.rfind('=') + 1));
    }
  }
}

// --------------------------------------------------------------------------------------------------------------- real S3

TEST_CASE("a real S3-compatible server keeps copies in parts, and refuses an unknown key and a wrong signature") {
  const S3Server server("kept");
  if (!server.ok()) {
    ATL_SKIP(server.why());
  }
  StoreCredentials credentials = keys_for(server.url());
  credentials.access_key = server.access_key();
  credentials.secret_key = server.secret_key();
  const ObjectStore store = ObjectStore::open("s3://kept/lab", credentials).value();
  Waits waits;
  constexpr std::uint64_t kLeastPart = 5ULL << 20U;  // S3 takes no smaller part but the last
  constexpr std::size_t kBytes = 2 * kLeastPart + 350'000;
  const CheckpointToCopy first(10, kBytes);
  const CheckpointToCopy second(20, kBytes);
  const Result<CopyDone> done = copy_checkpoint(store, first.job(kLeastPart, 1), waits.patience());
  INFO((done ? "" : done.error().why));
  REQUIRE(done);
  CHECK(done->sent_bytes == kBytes);
  CHECK(copy_checkpoint(store, second.job(kLeastPart, 1), waits.patience()).value().sent_bytes == kBytes);
  CHECK(look_at_copy(store, "r-1/", Round(10), waits.patience()).error().code == Code::not_found);
  CHECK_FALSE(store.size_of("r-1/10/outer.safetensors").value());
  CHECK(store.size_of("r-1/20/outer.safetensors").value() == std::optional<std::uint64_t>(kBytes));
  const atl_test::TemporaryFolder folder;
  REQUIRE(fetch_copy(store, newest_folder(store, waits.patience()).value(), std::nullopt, folder.path() / "back", waits.patience()));
  CHECK(text_of(folder.path() / "back") == second.content);
  CHECK(waits.waits.empty());
  CHECK(store.get("newest.json", 1000));
  credentials.secret_key = "not-the-secret";
  for (const std::string& key : {server.access_key(), std::string("SOMEBODY")}) {
    credentials.access_key = key;
    const Result<std::string> refused = ObjectStore::open("s3://kept/lab", credentials).value().get("newest.json", 1000);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Code::unauthorized);
    CHECK_FALSE(contains(refused.error().why, "not-the-secret"));
  }
}

}  // namespace of_checkpoint_copy_test

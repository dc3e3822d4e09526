// The thread that copies an island's checkpoints: nobody waits for it, and what it has begun it brings to its end.
#include "agent/service/checkpoint_copier.hpp"

#include <atomic>

#include "tests/catch.hpp"
#include "tests/checkpoint_to_copy.hpp"
#include "tests/store_server.hpp"
#include "tests/temporary_folder.hpp"

namespace of_checkpoint_copier_test {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;
using atl_test::CheckpointToCopy;
using atl_test::StoreServer;
using atl_test::text_of;

namespace {

CopierSettings settings_of(const CheckpointToCopy& checkpoint, std::vector<std::string> allowed) {
  CopierSettings settings;
  settings.island = "reef";
  settings.runs = checkpoint.folder.path() / "runs";
  settings.allowed = std::move(allowed);
  settings.patience.attempts = 1;
  settings.again_after = 20ms;
  settings.tries = 3;
  settings.part_bytes = 100'000;
  return settings;
}

std::optional<Event> next_event(CheckpointCopier& copier, Duration within = 20s) {
  for (const TimePoint until = now() + within; now() < until; std::this_thread::sleep_for(2ms)) {
    if (std::optional<Event> event = copier.take()) {
      return event;
    }
  }
  return std::nullopt;
}

Copied next_copied(CheckpointCopier& copier) {
  const std::optional<Event> event = next_event(copier);
  REQUIRE(event);
  REQUIRE(std::holds_alternative<CopyEnded>(*event));
  return std::get<CopyEnded>(*event).copied;
}

template <typename F>
bool soon(const F& holds) {
  for (const TimePoint until = now() + 20s; now() < until; std::this_thread::sleep_for(2ms)) {
    if (holds()) {
      return true;
    }
  }
  return false;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

StoreServer::Failure status(int value) {
  StoreServer::Failure failure;
  failure.status = value;
  return failure;
}

}  // namespace

TEST_CASE("a checkpoint is copied where the island's owner allows it, and what came of it is told") {
  const StoreServer server;
  const CheckpointToCopy checkpoint(10);
  const std::string to = server.url() + "/kept";
  CheckpointCopier copier(settings_of(checkpoint, {to}));
  copier.copy(checkpoint.order(to));
  const Copied copied = next_copied(copier);
  CHECK_FALSE(copied.error);
  CHECK(copied.run == RunId("r-1"));
  CHECK(copied.round == Round(10));
  CHECK(copied.digest == checkpoint.what.digest);
  CHECK(copied.bytes == 350'000);
  CHECK(copied.sent_bytes == 350'000);
  CHECK(copied.place == to + "/r-1");
  CHECK(server.objects().contains("/kept/r-1/10/copy.json"));
  // Of a state of its own, below its own name; and nobody takes it for that of all.
  CopyCheckpoint own = checkpoint.order(to);
  own.own_state = true;
  copier.copy(own);
  CHECK(next_copied(copier).place == to + "/r-1/reef");
  CHECK(server.objects().contains("/kept/r-1/reef/10/copy.json"));

  CopyCheckpoint elsewhere = checkpoint.order(server.url() + "/other");
  copier.copy(elsewhere);
  const Copied refused = next_copied(copier);
  REQUIRE(refused.error);
  CHECK(refused.error->code == Code::unauthorized);
  CHECK(contains(refused.error->why, "atoll agent --allow-copy " + server.url() + "/other"));
  copier.copy(elsewhere);
  CHECK_FALSE(next_event(copier, 300ms));  // said once
  for (const auto& [path, bytes] : server.objects()) {
    CHECK(path.starts_with("/kept/"));
  }
}

TEST_CASE("a copy that failed is tried again later, a bounded number of times") {
  std::atomic<int> failing = 2;
  const StoreServer server(
      [&](const StoreServer::Request& request) { return request.method == "PUT" && failing-- > 0 ? status(503) : StoreServer::Failure{}; });
  const CheckpointToCopy checkpoint(10);
  CheckpointCopier copier(settings_of(checkpoint, {server.url()}));
  copier.copy(checkpoint.order(server.url() + "/kept"));
  for (int failed = 0; failed < 2; ++failed) {
    const Copied copied = next_copied(copier);
    REQUIRE(copied.error);
    CHECK(contains(copied.error->why, "the store says 503; tried again in"));
  }
  CHECK_FALSE(next_copied(copier).error);
  failing = 1'000'000;
  const CheckpointToCopy next(20);
  CheckpointCopier hopeless(settings_of(next, {server.url()}));
  hopeless.copy(next.order(server.url() + "/kept"));
  for (int failed = 0; failed < 3; ++failed) {
    CHECK(next_copied(hopeless).error);
  }
  const std::size_t asked = server.requests("PUT").size();
  CHECK_FALSE(next_event(hopeless, 500ms));
  CHECK(server.requests("PUT").size() == asked);
}

TEST_CASE("a store that hangs holds up nobody, not even the agent's end, and its next start goes on with the copy") {
  std::atomic<bool> hangs = true;
  std::atomic<int> parts = 0;
  const StoreServer server([&](const StoreServer::Request& request) {
    StoreServer::Failure failure;
    const bool part = request.method == "PUT" && contains(request.path, "outer.safetensors");
    failure.hang_up_after = hangs && part && ++parts > 2 ? 100 : std::string::npos;
    return failure;
  });
  const CheckpointToCopy checkpoint(10);
  const std::string to = server.url() + "/kept";
  {
    CopierSettings settings = settings_of(checkpoint, {to});
    settings.patience.attempts = 1'000;
    settings.patience.first_wait = 1h;
    CheckpointCopier copier(settings);
    const TimePoint begun = now();
    copier.copy(checkpoint.order(to));
    CHECK(now() - begun < 1s);
    REQUIRE(soon([&] { return parts > 2; }));
    copier.finish(50ms);
    CHECK(now() - begun < 20s);
  }
  hangs = false;
  CheckpointCopier again(settings_of(checkpoint, {to}));  // nobody asks it
  const Copied copied = next_copied(again);
  REQUIRE_FALSE(copied.error);
  CHECK(copied.sent_bytes == 150'000);
  const CheckpointCopier third(settings_of(checkpoint, {to}));
  CHECK(soon([&] { return !std::filesystem::exists(checkpoint.folder.path() / "runs/r-1/copy.json"); }));
}

TEST_CASE("a copy is brought to its end, and the newest checkpoint follows, and fetching goes before both") {
  std::atomic<bool> slow = true;
  std::atomic<bool> begun = false;
  const StoreServer server([&](const StoreServer::Request& request) {
    if (request.method == "PUT" && contains(request.path, "/10/outer.safetensors.0")) {
      begun = true;
      for (const TimePoint until = now() + 20s; slow && now() < until; std::this_thread::sleep_for(2ms)) {
      }
    }
    return StoreServer::Failure{};
  });
  const CheckpointToCopy first(10);
  const std::string to = server.url() + "/kept";
  const auto write = [&](const CheckpointToCopy& later) {
    first.folder.write("runs/r-1/checkpoints/" + std::to_string(later.what.round.value) + "/outer.safetensors", later.content);
  };
  CheckpointCopier copier(settings_of(first, {to}));
  copier.copy(first.order(to));
  REQUIRE(soon([&] { return begun.load(); }));
  for (const std::uint64_t round : {20, 30}) {
    const CheckpointToCopy later(round);
    write(later);
    copier.copy(later.order(to));
  }
  slow = false;
  CHECK(next_copied(copier).round == Round(10));
  CHECK(next_copied(copier).round == Round(30));
  CHECK_FALSE(server.objects().contains("/kept/r-1/20/copy.json"));

  copier.fetch(FetchCopy{RunId("r-1"), to, Round(30), CheckpointToCopy(30).what.digest});
  const std::optional<Event> event = next_event(copier);
  REQUIRE(event);
  const auto* fetched = std::get_if<CopyFetched>(&*event);
  REQUIRE(fetched != nullptr);
  REQUIRE_FALSE(fetched->error);
  CHECK(text_of(first.folder.path() / "runs/r-1" / kFetchedCopy) == CheckpointToCopy(30).content);
  copier.fetch(FetchCopy{RunId("r-1"), to, Round(30), first.what.digest});
  const std::optional<Event> other = next_event(copier);
  REQUIRE(other);
  REQUIRE(std::get<CopyFetched>(*other).error);
  CHECK(contains(std::get<CopyFetched>(*other).error->why, "belongs to another history"));
}

}  // namespace of_checkpoint_copier_test

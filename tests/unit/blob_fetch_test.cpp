// Fetching a blob from several islands over the simulated network: sources that die, lie, refuse and lose frames.
#include "transport/bulk/blob_fetch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace of_blob_fetch_test {

namespace {

using namespace atl;
using namespace std::chrono_literals;

constexpr std::uint32_t kPiece = 1000;
const RunId kRun("r");
const BlobId kBlob{kRun, Epoch(), Round(40), Attempt(), BlobKind::checkpoint_file, 0};
const IslandId kReader("reader");

Bytes random_bytes(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(rng.below(256));
  }
  return bytes;
}

std::vector<Digest> piece_digests(ByteView bytes) {
  std::vector<Digest> digests;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    digests.push_back(sha256(bytes.subspan(at, std::min<std::size_t>(kPiece, bytes.size() - at))));
  }
  return digests;
}

class Sources {
 public:
  explicit Sources(std::uint64_t seed, PathConditions conditions = {}) : network_(seed) {
    network_.set_conditions(conditions);
    members_.push_back(Member{kReader, "", "", ""});
    reader_ = network_.bulk_link(kReader, std::make_shared<BlobStore>());
  }
  IslandId add(const Bytes& bytes) {
    const IslandId id("s" + std::to_string(links_.size()));
    auto store = std::make_shared<BlobStore>();
    store->set_readers(kRun, {kReader});
    const auto owned = std::make_shared<Bytes>(bytes);
    store->put(kBlob, Payload{*owned, owned});
    links_[id] = network_.bulk_link(id, store);
    stores_[id] = store;
    members_.push_back(Member{id, "", "", ""});
    connect();
    return id;
  }
  void kill(const IslandId& id) { links_.erase(id); }
  void serve(const IslandId& id, std::vector<IslandId> readers) { stores_.at(id)->set_readers(kRun, std::move(readers)); }
  void connect() {
    REQUIRE(reader_->set_peers(members_));
    for (const auto& [id, link] : links_) {
      REQUIRE(link->set_peers(members_));
    }
  }
  std::vector<IslandId> ids() const {
    std::vector<IslandId> ids;
    for (const auto& [id, link] : links_) {
      ids.push_back(id);
    }
    return ids;
  }
  // True once it is over.
  bool run(BlobFetch& fetch, Duration at_most) {
    const TimePoint end = network_.now() + at_most;
    while (!fetch.done() && !fetch.failure() && network_.now() < end) {
      const TimePoint now = network_.now();
      while (reader_->receive(now, fetch)) {
      }
      for (const OutgoingWant& want : fetch.take_wants(now)) {
        if (!reader_->want(want)) {
          fetch.not_sent(now, want);
        }
      }
      TimePoint next = end;
      if (const auto deadline = fetch.next_deadline()) {
        next = std::min(next, std::max(*deadline, now + 1ns));
      }
      if (const auto event = network_.next_event()) {
        next = std::min(next, *event);
      }
      network_.advance_to(next);
    }
    return fetch.done() || fetch.failure().has_value();
  }
  SimulatedNetwork& network() { return network_; }
  BulkLink& link(const IslandId& id) { return *links_.at(id); }

 private:
  SimulatedNetwork network_;
  std::unique_ptr<BulkLink> reader_;
  std::map<IslandId, std::unique_ptr<BulkLink>> links_;
  std::map<IslandId, std::shared_ptr<BlobStore>> stores_;
  std::vector<Member> members_;
};

BlobFetchPlan plan_of(const Bytes& bytes, const Sources& sources) {
  BlobFetchPlan plan;
  plan.blob = kBlob;
  plan.digest = sha256(bytes);
  plan.piece_bytes = kPiece;
  plan.sources = sources.ids();
  return plan;
}

}  // namespace

TEST_CASE("a blob comes from one to four sources over a bad network, its size known or not") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    const Bytes bytes = random_bytes(seed, rng.below(30'000));
    PathConditions conditions;
    conditions.loss = rng.uniform() * 0.3;
    conditions.duplication = 0.1;
    conditions.reordering = 0.2;
    conditions.replay = 0.1;
    Sources sources(seed, conditions);
    const std::uint64_t count = 1 + rng.below(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      sources.add(bytes);
    }
    BlobFetchPlan plan = plan_of(bytes, sources);
    if (rng.chance(0.5)) {
      plan.size = bytes.size();
    }
    CAPTURE(seed, bytes.size());
    BlobFetch::Settings settings;
    settings.give_up_after = 600s;  // half of all round trips may fail
    auto fetch = BlobFetch::begin(plan, sources.network().now(), settings).value();
    REQUIRE(sources.run(*fetch, 3600s));
    REQUIRE(fetch->done());
    CHECK(fetch->take_bytes() == bytes);
  }
}

TEST_CASE("several sources share the work") {
  const Bytes bytes = random_bytes(1, 200'000);
  PathConditions conditions;
  conditions.bytes_per_second = 100'000;
  Sources sources(1, conditions);
  for (int i = 0; i < 3; ++i) {
    sources.add(bytes);
  }
  BlobFetch::Settings settings;
  settings.wants.window_bytes = 8 * kPiece;
  auto fetch = BlobFetch::begin(plan_of(bytes, sources), sources.network().now(), settings).value();
  REQUIRE(sources.run(*fetch, 60s));
  REQUIRE(fetch->done());
  for (const IslandId& id : sources.ids()) {
    CHECK(sources.link(id).store().bytes_served(kRun) > bytes.size() / 5);
  }
}

TEST_CASE("a source that dies in the middle is replaced by the others, and dropped when it stays away") {
  const Bytes bytes = random_bytes(2, 300'000);
  PathConditions conditions;
  conditions.bytes_per_second = 50'000;
  Sources sources(2, conditions);
  const IslandId dying = sources.add(bytes);
  sources.add(bytes);
  auto fetch = BlobFetch::begin(plan_of(bytes, sources), sources.network().now()).value();
  REQUIRE_FALSE(sources.run(*fetch, 1s));
  CHECK(fetch->progress(sources.network().now()).bytes_done > 0);
  sources.kill(dying);
  REQUIRE(sources.run(*fetch, 600s));
  REQUIRE(fetch->done());
  CHECK(fetch->take_bytes() == bytes);
}

TEST_CASE("a source that does not know yet who reads is asked again, and dropped when it never learns it") {
  const Bytes bytes = random_bytes(2, 30'000);
  Sources sources(2);
  const IslandId late = sources.add(bytes);
  sources.serve(late, {});
  auto fetch = BlobFetch::begin(plan_of(bytes, sources), sources.network().now()).value();
  REQUIRE_FALSE(sources.run(*fetch, 500ms));
  SECTION("it is told") {
    sources.serve(late, {kReader});
    REQUIRE(sources.run(*fetch, 1s));
    REQUIRE(fetch->done());
    CHECK(fetch->take_bytes() == bytes);
    CHECK(fetch->dropped().empty());
  }
  SECTION("it is not told") {
    REQUIRE(sources.run(*fetch, 3s));
    REQUIRE(fetch->failure());
    CHECK(fetch->failure()->code == Code::unauthorized);
  }
}

TEST_CASE("with piece digests a liar is dropped at its first piece") {
  const Bytes bytes = random_bytes(3, 50'000);
  Bytes forged = bytes;
  std::fill(forged.begin(), forged.end(), std::byte{7});
  Sources sources(3);
  const IslandId liar = sources.add(forged);
  sources.add(bytes);
  BlobFetchPlan plan = plan_of(bytes, sources);
  plan.piece_digests = piece_digests(bytes);
  auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
  REQUIRE(sources.run(*fetch, 60s));
  REQUIRE(fetch->done());
  REQUIRE(fetch->dropped().size() == 1);
  CHECK(fetch->dropped()[0].source == liar);
  CHECK(fetch->dropped()[0].error.code == Code::corrupt);
  CHECK(fetch->take_bytes() == bytes);
}

TEST_CASE("with the whole digest alone the liar is found by asking one at a time") {
  const Bytes bytes = random_bytes(4, 50'000);
  Bytes flipped = bytes;
  flipped[20'500] ^= std::byte{1};
  for (int liar_at = 0; liar_at < 3; ++liar_at) {
    Sources sources(static_cast<std::uint64_t>(10 + liar_at));
    for (int i = 0; i < 3; ++i) {
      sources.add(i == liar_at ? flipped : bytes);
    }
    BlobFetch::Settings settings;
    settings.wants.window_bytes = 2 * kPiece;
    auto fetch = BlobFetch::begin(plan_of(bytes, sources), sources.network().now(), settings).value();
    REQUIRE(sources.run(*fetch, 60s));
    REQUIRE(fetch->done());
    CHECK(fetch->take_bytes() == bytes);
  }
  Sources lonely(20);
  lonely.add(flipped);
  auto fetch = BlobFetch::begin(plan_of(bytes, lonely), lonely.network().now()).value();
  REQUIRE(lonely.run(*fetch, 60s));
  REQUIRE(fetch->failure());
  CHECK(fetch->failure()->code == Code::corrupt);
}

TEST_CASE("a file fetch is resumed where it stopped") {
  const atl_test::TemporaryFolder folder;
  const Bytes bytes = random_bytes(5, 400'000);
  PathConditions conditions;
  conditions.bytes_per_second = 100'000;
  Sources sources(5, conditions);
  sources.add(bytes);
  BlobFetchPlan plan = plan_of(bytes, sources);
  const std::filesystem::path path = folder.path() / "outer.safetensors";
  plan.path = on_this_machine(path);
  {
    auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
    REQUIRE_FALSE(sources.run(*fetch, 2s));
    CHECK_FALSE(std::filesystem::exists(path));
  }
  {
    std::ofstream torn(path.string() + ".have", std::ios::app | std::ios::binary);
    torn << "ab";  // an entry that a crash tore
  }
  auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
  REQUIRE(sources.run(*fetch, 60s));
  REQUIRE(fetch->done());
  CHECK(fetch->progress(sources.network().now()).bytes_received < bytes.size() * 9 / 10);
  CHECK(sha256_of_file(path).value() == sha256(bytes));
  CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
  CHECK_FALSE(std::filesystem::exists(path.string() + ".have"));
}

TEST_CASE("a file fetch of unknown size ends, also where an earlier process had every piece and only the name was missing") {
  const atl_test::TemporaryFolder folder;
  const Bytes bytes = random_bytes(8, 20'000);
  Sources sources(8);
  sources.add(bytes);
  BlobFetchPlan plan = plan_of(bytes, sources);
  plan.size.reset();
  plan.digest.reset();
  const std::filesystem::path path = folder.path() / "result";
  plan.path = on_this_machine(path);
  {
    auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
    REQUIRE(sources.run(*fetch, 60s));
  }
  std::filesystem::rename(path, path.string() + ".part");
  std::ofstream have(path.string() + ".have", std::ios::binary);
  have << "atoll 1: " << describe(plan.blob) << ", 20000 bytes in pieces of " << plan.piece_bytes << ", sha256 unknown\n";
  for (std::uint32_t piece = 0; piece * plan.piece_bytes < bytes.size(); ++piece) {
    have.write(reinterpret_cast<const char*>(&piece), sizeof piece);
  }
  have.close();
  auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
  REQUIRE(sources.run(*fetch, 60s));
  REQUIRE(fetch->done());
  CHECK(sha256_of_file(path).value() == sha256(bytes));
}

TEST_CASE("a partial file with wrong bytes costs time, not correctness") {
  const atl_test::TemporaryFolder folder;
  const Bytes bytes = random_bytes(6, 20'000);
  Sources sources(6);
  sources.add(bytes);
  BlobFetchPlan plan = plan_of(bytes, sources);
  plan.size = bytes.size();
  const std::filesystem::path path = folder.path() / "f";
  plan.path = on_this_machine(path);
  { auto fetch = BlobFetch::begin(plan, sources.network().now()).value(); }
  {
    std::ofstream have(path.string() + ".have", std::ios::app | std::ios::binary);
    have.write("\0\0\0\0\x01\0\0\0\xff\xff\xff\xff", 12);  // two pieces it does not have, one that cannot be
  }
  auto fetch = BlobFetch::begin(plan, sources.network().now()).value();
  CHECK(fetch->progress(sources.network().now()).bytes_done == 2 * kPiece);
  REQUIRE(sources.run(*fetch, 60s));
  REQUIRE(fetch->done());
  CHECK(fetch->dropped().empty());
  CHECK(sha256_of_file(path).value() == sha256(bytes));
}

TEST_CASE("why a fetch cannot succeed is said") {
  const Bytes bytes = random_bytes(7, 5'000);
  Sources sources(7);
  const IslandId id = sources.add(bytes);
  const TimePoint now = sources.network().now();
  SECTION("the blob is not there") {
    BlobFetchPlan plan = plan_of(bytes, sources);
    plan.blob.round = Round(41);
    auto fetch = BlobFetch::begin(plan, now).value();
    REQUIRE(sources.run(*fetch, 60s));
    REQUIRE(fetch->failure());
    CHECK(fetch->failure()->code == Code::not_found);
    CHECK(fetch->failure()->why.find("s0") != std::string::npos);
  }
  SECTION("nobody answers") {
    sources.kill(id);
    BlobFetchPlan plan = plan_of(bytes, sources);
    plan.sources = {id};
    auto fetch = BlobFetch::begin(plan, now).value();
    REQUIRE(sources.run(*fetch, 120s));
    REQUIRE(fetch->failure());
    CHECK(fetch->failure()->code == Code::timeout);
  }
  SECTION("it is larger than allowed") {
    BlobFetchPlan plan = plan_of(bytes, sources);
    plan.max_bytes = 4'999;
    auto fetch = BlobFetch::begin(plan, now).value();
    REQUIRE(sources.run(*fetch, 60s));
    REQUIRE(fetch->failure());
  }
  SECTION("the folder does not exist") {
    BlobFetchPlan plan = plan_of(bytes, sources);
    plan.path = on_this_machine("/nonexistent/folder/file");
    auto fetch = BlobFetch::begin(plan, now).value();
    REQUIRE(sources.run(*fetch, 60s));
    REQUIRE(fetch->failure());
    CHECK(fetch->failure()->code == Code::io);
    CHECK(fetch->dropped().empty());
  }
  SECTION("nobody is asked") {
    BlobFetchPlan plan = plan_of(bytes, sources);
    plan.sources.clear();
    CHECK_FALSE(BlobFetch::begin(plan, now));
  }
}

}  // namespace of_blob_fetch_test

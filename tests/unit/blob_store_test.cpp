// What an island serves, to whom, and which wants wait.
#include "transport/bulk/blob_store.hpp"

#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"

namespace of_blob_store_test {

namespace {

using namespace atl;

const RunId kRun("r");
const IslandId kMember("m");

BlobId exchanged(std::uint64_t epoch, std::uint64_t round, std::uint32_t attempt, BlobKind kind = BlobKind::contribution) {
  return BlobId{kRun, Epoch(epoch), Round(round), Attempt(attempt), kind, 0};
}

Payload bytes_of(std::size_t count) {
  const auto bytes = std::make_shared<Bytes>(count, std::byte{7});
  return Payload{*bytes, bytes};
}

bool served(const StoreAnswer& answer) { return std::holds_alternative<Served>(answer); }
bool parked(const StoreAnswer& answer) { return std::holds_alternative<Parked>(answer); }
bool gone(const StoreAnswer& answer) { return std::holds_alternative<Gone>(answer); }

}  // namespace

TEST_CASE("a want waits until its whole range is ready, however the ranges arrive") {
  BlobStore store;
  store.set_readers(kRun, {kMember});
  int told = 0;
  store.set_listener([&] { ++told; });
  const BlobId blob = exchanged(1, 1, 1, BlobKind::reduced);
  store.announce(blob, bytes_of(100));
  const Want want{blob, 10, 50};
  CHECK(parked(store.answer(kMember, want)));
  CHECK(parked(store.answer(kMember, want)));
  CHECK(store.parked() == 1);  // once
  store.mark_ready(blob, 40, 60);
  store.mark_ready(blob, 0, 20);
  CHECK(told == 0);
  CHECK(parked(store.answer(kMember, want)));
  store.mark_ready(blob, 20, 20);
  CHECK(told == 1);
  const auto released = store.take_unparked();
  REQUIRE(released.size() == 1);
  CHECK(released[0].want == want);
  CHECK(store.take_unparked().empty());
  const StoreAnswer answer = store.answer(kMember, want);
  REQUIRE(served(answer));
  CHECK(std::get<Served>(answer).piece == BlobPiece{blob, 10, 100, 50});
  CHECK(std::get<Served>(answer).payload.bytes.size() == 50);
  CHECK(store.bytes_served(kRun) == 50);
  const auto reading = store.read_of_round(kRun, Round(1));
  REQUIRE(reading.has_value());
  CHECK(reading->bytes == 50);
  CHECK(reading->last >= reading->first);
  CHECK_FALSE(store.read_of_round(kRun, Round(2)).has_value());
  store.finish_rounds_before(kRun, Round(2));
  CHECK(store.read_of_round(kRun, Round(1)).has_value());  // of the newest finished round still
  store.finish_rounds_before(kRun, Round(3));
  CHECK_FALSE(store.read_of_round(kRun, Round(1)).has_value());
}

TEST_CASE("older attempts and finished rounds are refused, later ones are waited for") {
  BlobStore store;
  store.set_readers(kRun, {kMember});
  const auto ask = [&](const BlobId& blob) { return store.answer(kMember, Want{blob, 0, 10}); };
  CHECK(parked(ask(exchanged(1, 5, 1))));
  store.put(exchanged(1, 5, 2), bytes_of(10));
  REQUIRE(store.take_unparked().size() == 1);  // to be refused now
  CHECK(gone(ask(exchanged(1, 5, 1))));
  CHECK(served(ask(exchanged(1, 5, 2))));
  CHECK(parked(ask(exchanged(1, 5, 3))));
  CHECK(parked(ask(exchanged(1, 6, 1))));
  store.put(exchanged(2, 5, 1), bytes_of(10));  // a later epoch numbers its attempts anew
  CHECK(gone(ask(exchanged(1, 5, 2))));
  CHECK(served(ask(exchanged(2, 5, 1))));
  store.finish_rounds_before(kRun, Round(6));
  CHECK(gone(ask(exchanged(2, 5, 1))));
  CHECK(parked(ask(exchanged(2, 6, 1))));
  store.forget(kRun);
  CHECK(store.parked() == 0);
  CHECK(parked(ask(exchanged(2, 6, 1))));
}

TEST_CASE("members read everything, visitors checkpoints and results, others nothing") {
  BlobStore store;
  const IslandId visitor("v");
  const BlobId checkpoint{kRun, Epoch(), Round(4), Attempt(), BlobKind::checkpoint_file, 0};
  const BlobId result{kRun, Epoch(), Round(4), Attempt(), BlobKind::result, 0};
  store.put(checkpoint, bytes_of(10));
  store.put(result, bytes_of(10));
  store.put(exchanged(1, 5, 1), bytes_of(10));
  store.set_readers(kRun, {kMember}, {visitor});
  for (const BlobId& blob : {checkpoint, result, exchanged(1, 5, 1)}) {
    CHECK(served(store.answer(kMember, Want{blob, 0, 10})));
    CHECK(served(store.answer(visitor, Want{blob, 0, 10})) == (blob != exchanged(1, 5, 1)));
    CHECK_FALSE(served(store.answer(IslandId("x"), Want{blob, 0, 10})));
  }
  CHECK(std::get<Gone>(store.answer(IslandId("x"), Want{checkpoint, 0, 10})).code == Code::unauthorized);
  store.withdraw_results_up_to(kRun, Round(4));
  CHECK(gone(store.answer(kMember, Want{result, 0, 10})));
  store.withdraw(checkpoint);
  CHECK(gone(store.answer(kMember, Want{checkpoint, 0, 10})));
  // Who asks before it is known to be a member waits.
  CHECK(store.parked() == 2);
  store.set_readers(kRun, {kMember, IslandId("x"), visitor});
  CHECK(store.take_unparked().size() == 2);
}

TEST_CASE("who asks for a round's result before its owner has heard of the commit waits for it, where results are kept") {
  BlobStore store;
  store.set_readers(kRun, {kMember});
  const auto result = [](std::uint64_t round) { return BlobId{kRun, Epoch(), Round(round), Attempt(), BlobKind::result, 0}; };
  const auto ask = [&](std::uint64_t round) { return store.answer(kMember, Want{result(round), 0, 10}); };
  CHECK(gone(ask(5)));
  store.expect_results_after(kRun, Round(4));
  CHECK(gone(ask(4)));
  CHECK(parked(ask(5)));
  CHECK(parked(ask(6)));
  store.put(result(5), bytes_of(10));
  store.expect_results_after(kRun, Round(5));
  CHECK(store.take_unparked().size() == 1);
  CHECK(served(ask(5)));
  store.expect_results_after(kRun, Round(6));  // it could not be kept
  CHECK(store.take_unparked().size() == 1);
  CHECK(gone(ask(6)));
  CHECK(parked(ask(7)));
  store.expect_results_after(kRun, std::nullopt);
  CHECK(store.take_unparked().size() == 1);
  CHECK(gone(ask(7)));
}

TEST_CASE("parking is bounded for each reader, and a reader that goes takes its wants along") {
  BlobStore store(BlobStore::Limits{4});
  for (std::uint64_t i = 0; i < 10; ++i) {
    CHECK(parked(store.answer(kMember, Want{exchanged(1, 1, 1), i, 1})));
    CHECK(parked(store.answer(IslandId("n"), Want{exchanged(1, 1, 1), i, 1})));
  }
  CHECK(store.parked() == 8);
  store.drop_reader(kMember);
  CHECK(store.parked() == 4);
}

TEST_CASE("files are served piece by piece, also after they are unlinked, and a shortened one is an error") {
  const atl_test::TemporaryFolder folder;
  const auto path = folder.write("outer.safetensors", std::string(1000, 'x') + std::string(24, 'y'));
  BlobStore store;
  store.set_readers(kRun, {kMember});
  const BlobId blob{kRun, Epoch(), Round(4), Attempt(), BlobKind::checkpoint_file, 0};
  REQUIRE(store.put_file(blob, on_this_machine(path)));
  std::filesystem::resize_file(path, 1010);
  CHECK(std::get<Gone>(store.answer(kMember, Want{blob, 1000, 100})).code == Code::io);
  std::filesystem::remove(path);
  const StoreAnswer answer = store.answer(kMember, Want{blob, 990, 20});
  REQUIRE(served(answer));
  CHECK(std::get<Served>(answer).piece.total == 1024);
  CHECK(as_text(std::get<Served>(answer).payload.bytes) == std::string(10, 'x') + std::string(10, 'y'));
  CHECK(std::get<Gone>(store.answer(kMember, Want{blob, 1025, 1})).code == Code::invalid_argument);
  const Status missing = store.put_file(blob, on_this_machine(path));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == Code::io);
  CHECK(missing.error().why.find(path.string()) != std::string::npos);
  CHECK_FALSE(store.put_file(blob, on_this_machine(folder.path())));
}

TEST_CASE("bytes stay while a piece of them is on its way") {
  BlobStore store;
  store.set_readers(kRun, {kMember});
  auto bytes = std::make_shared<Bytes>(10);
  const std::weak_ptr<Bytes> alive = bytes;
  store.put(exchanged(1, 1, 1), Payload{*bytes, bytes});
  bytes.reset();
  StoreAnswer answer = store.answer(kMember, Want{exchanged(1, 1, 1), 0, 10});
  store.forget(kRun);
  CHECK_FALSE(alive.expired());
  answer = Parked{};
  CHECK(alive.expired());
}

TEST_CASE("a reduced shard's pieces are packed once for all readers, and what is kept is bounded whatever ranges are asked for") {
  BlobStore store;
  const IslandId other("n");
  store.set_readers(kRun, {kMember, other});
  constexpr std::uint32_t kSize = 4096;
  const BlobId shard = exchanged(1, 1, 1, BlobKind::reduced);
  const BlobId contribution = exchanged(1, 1, 1);
  store.put(shard, bytes_of(kSize));
  store.put(contribution, bytes_of(kSize));
  const auto pieces_of = [&](const IslandId& reader, const BlobId& blob, std::uint64_t offset, std::uint32_t length) {
    const StoreAnswer answer = store.answer(reader, Want{blob, offset, length, true});
    REQUIRE(served(answer));
    const Served& got = std::get<Served>(answer);
    CHECK(got.piece.packed == got.payload.bytes.size());
    CHECK(got.piece.packed < length);
    return got.payload;
  };
  const Payload first = pieces_of(kMember, shard, 0, kSize / 2);
  CHECK(pieces_of(other, shard, 0, kSize / 2).bytes.data() == first.bytes.data());
  CHECK(pieces_of(other, contribution, 0, kSize).owner != pieces_of(kMember, contribution, 0, kSize).owner);
  // Half of the shard is left to keep: whoever asks for ever other ranges gets them, and they are not kept.
  const Payload second = pieces_of(kMember, shard, kSize / 2, kSize / 2);
  for (std::uint64_t offset = 1; offset < 50; ++offset) {
    const Payload once = pieces_of(kMember, shard, offset, kSize / 2);
    CHECK(pieces_of(kMember, shard, offset, kSize / 2).owner != once.owner);
  }
  CHECK(pieces_of(other, shard, kSize / 2, kSize / 2).owner == second.owner);
  // Other bytes under the same name are packed anew.
  store.put(shard, bytes_of(kSize));
  CHECK(pieces_of(kMember, shard, 0, kSize / 2).owner != first.owner);
}

}  // namespace of_blob_store_test

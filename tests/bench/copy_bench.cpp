// A joining island's copy of a checkpoint against a plain transfer of the same bytes: two processes serve, a third reads from both, sealed,
// on loopback.
//   plain   from the sources' memory to the reader's, nothing checked but the seal
//   copy    from the sources' files to the reader's file, which is verified by its SHA-256, as catching up does it
//   bench_copy [megabytes=800] [times=3]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "transport/base/own_disk.hpp"
#include "transport/bulk/blob_fetch.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/sha256.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace {

using namespace atl;
namespace fs = std::filesystem;

const RunId kRun("bench");
constexpr std::size_t kSources = 2;

struct Party {
  KeyPair keys = make_key_pair().value();
  IslandId id = island_of(keys.public_key);
  std::string address;
};

BlobId blob_of(Round round) {
  BlobId blob;
  blob.run = kRun;
  blob.round = round;
  blob.kind = BlobKind::checkpoint_file;
  return blob;
}

std::unique_ptr<ZmqBulkLink> open_link(const Party& party, const std::shared_ptr<BlobStore>& store) {
  ZmqBulkSettings settings;
  settings.island = party.id;
  settings.public_key = party.keys.public_key;
  settings.secret_key = party.keys.secret_key;
  settings.bind = "tcp://127.0.0.1:0";
  return ZmqBulkLink::open(settings, store).value();
}

// Serves until it is killed: round 1 from memory, round 2 from the file.
[[noreturn]] void serve(const Party& self, const Party& reader, const fs::path& file, int tell) {
  const auto store = std::make_shared<BlobStore>();
  const std::unique_ptr<ZmqBulkLink> link = open_link(self, store);
  const auto bytes = std::make_shared<std::vector<std::byte>>(fs::file_size(file));
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  store->set_readers(kRun, {reader.id});
  store->put(blob_of(Round(1)), {ByteView(bytes->data(), bytes->size()), bytes});
  if (!store->put_file(blob_of(Round(2)), on_this_machine(file)) ||
      !link->set_peers(std::vector<Member>{{reader.id, "", reader.keys.public_key, ""}})) {
    ::_exit(1);
  }
  const std::string address = link->bound_address() + "\n";
  if (::write(tell, address.data(), address.size()) < 0) {
    ::_exit(1);
  }
  while (true) {
    ::pause();
  }
}

double fetch(ZmqBulkLink& link, BlobFetchPlan plan) {
  const TimePoint start = now();
  const std::unique_ptr<BlobFetch> blob = BlobFetch::begin(std::move(plan), start).value();
  while (!blob->done()) {
    for (const OutgoingWant& want : blob->take_wants(now())) {
      if (!link.want(want)) {
        blob->not_sent(now(), want);
      }
    }
    if (blob->failure()) {
      std::printf("failed: %s\n", blob->failure()->why.c_str());
      std::exit(1);
    }
    if (!link.receive(now(), *blob)) {
      link.wait(std::chrono::milliseconds(50));
    }
  }
  return seconds(now() - start);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 800;
  const auto times = static_cast<unsigned>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 3);
  if (megabytes == 0 || times == 0) {
    std::printf("usage: bench_copy [megabytes] [times]\n");
    return 2;
  }
  std::string folder = (fs::temp_directory_path() / "atoll-copy-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return 1;
  }
  const fs::path file = fs::path(folder) / "outer";
  {
    std::ofstream out(file, std::ios::binary);
    std::vector<char> block(1'000'000);
    for (std::uint64_t i = 0; i < megabytes; ++i) {
      std::fill(block.begin(), block.end(), static_cast<char>(i));
      out.write(block.data(), static_cast<std::streamsize>(block.size()));
    }
  }
  const Party reader;
  std::vector<Party> sources(kSources);
  std::vector<pid_t> served;
  for (Party& source : sources) {
    int tell[2] = {};
    if (::pipe(tell) != 0) {
      return 1;
    }
    const pid_t child = ::fork();
    if (child == 0) {
      serve(source, reader, file, tell[1]);
    }
    served.push_back(child);
    for (char c = 0; ::read(tell[0], &c, 1) == 1 && c != '\n';) {
      source.address += c;
    }
  }
  BlobFetchPlan plan;
  plan.size = fs::file_size(file);
  std::vector<Member> peers;
  for (const Party& source : sources) {
    plan.sources.push_back(source.id);
    peers.push_back({source.id, "", source.keys.public_key, source.address});
  }
  const std::unique_ptr<ZmqBulkLink> link = open_link(reader, std::make_shared<BlobStore>());
  if (!link->set_peers(peers)) {
    return 1;
  }
  const Digest digest = sha256_of_file(file).value();
  std::vector<double> plain;
  std::vector<double> copy;
  for (unsigned i = 0; i < times; ++i) {
    plan.blob = blob_of(Round(1));
    plan.path = DiskPath();
    plan.digest.reset();
    plain.push_back(fetch(*link, plan));
    plan.blob = blob_of(Round(2));
    plan.path = on_this_machine(fs::path(folder) / "copied");
    plan.digest = digest;
    plan.durable = false;
    copy.push_back(fetch(*link, plan));
    if (!plan.path.remove()) {
      return 1;
    }
    std::printf("plain %.2f s, copy %.2f s\n", plain.back(), copy.back());
  }
  for (const pid_t child : served) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  fs::remove_all(folder);
  std::sort(plain.begin(), plain.end());
  std::sort(copy.begin(), copy.end());
  const double size = static_cast<double>(megabytes) / 1000;
  std::printf("%llu MB from two islands, medians of %u: plain %.3f GB/s, copy %.3f GB/s, %.2f of it\n",
              static_cast<unsigned long long>(megabytes), times, size / plain[times / 2], size / copy[times / 2],
              plain[times / 2] / copy[times / 2]);
  return 0;
}

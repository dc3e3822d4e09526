// Writes what the fuzz targets begin with: FOLDER/TARGET/NUMBER, good bytes of every kind, made by our own writers.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "agent/island_link/messages.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "cli/run_file/run_file.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/message_samples.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/bulk/piece.hpp"

namespace fs = std::filesystem;
namespace wire = atl::island_link;

namespace {

class Corpora {
 public:
  explicit Corpora(fs::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, std::string_view bytes) {
    fs::create_directories(folder_ / target);
    std::ofstream(folder_ / target / ("seed-" + std::to_string(++count_)), std::ios::binary) << bytes;
  }

 private:
  fs::path folder_;
  int count_ = 0;
};

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void add_messages(Corpora& corpora) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const atl::Message& message : atl::test::MessageSampler(seed).all()) {
      corpora.add("message", atl::as_text(atl::encode(message).value()));
    }
  }
}

void add_pieces(Corpora& corpora) {
  const atl::BlobId blob{atl::RunId("r-7f3a9c12"), atl::Epoch(3), atl::Round(17), atl::Attempt(1), atl::BlobKind::reduced, 2};
  for (const atl::Frame& frame : {atl::Frame(atl::Want{blob, 65'536, 4096}), atl::Frame(atl::BlobPiece{blob, 65'536, 1 << 20, 4096}),
                                  atl::Frame(atl::Gone{blob, atl::Code::not_found, "it was pruned"})}) {
    corpora.add("piece", atl::as_text(atl::encode_head(frame)));
  }
}

void add_island_link(Corpora& corpora) {
  for (const wire::TrainerMessage& message : std::initializer_list<wire::TrainerMessage>{
           wire::Hello{1, "t", "1", 1, 0, 1, {}}, wire::Manifest{{{"a", {2, 3}, -1}, {"b", {1}, 0}}, "about"}, wire::Ready{1, 2, 3},
           wire::PublishedNow{{0, 1}, 5, 6}, wire::Published{1, 0, 10, 160, 2048, 10, 2.5, 1.0, false, 1.0, 2.0},
           wire::Merged{1, 0, 10, 160, 0.5, 2.0, true, "x"}, wire::Loaded{{0}, 1, 2}, wire::Saved{"/d", 1, 2, "full"},
           wire::Evaluated{2.0, 3, 4}}) {
    corpora.add("island_link", encode(message));
  }
  for (const wire::AgentMessage& message : std::initializer_list<wire::AgentMessage>{
           wire::Configure{"r",
                           "i",
                           1,
                           {},
                           {{"/a"}, "bytes", 0.1, 0, 1},
                           {},
                           wire::Payload::parameters,
                           wire::Diffusion{},
                           wire::Work{"experts/1", {{"clustering", "/c", "ab", 1}}},
                           wire::Resume{"/d", 1, 2}},
           wire::ArenaLayout{"/a", 64, {{0, 0}}, {{0, 4}}}, wire::Plan{40, {{1, 0, 40, true}}, {{1, 0, 42, 0.5, true, false, "/state/1"}}},
           wire::Stop{"the run has ended"}}) {
    corpora.add("island_link", encode(message));
  }
}

void add_runs(Corpora& corpora, const fs::path& examples) {
  for (const fs::directory_entry& entry : fs::directory_iterator(examples)) {
    if (entry.path().extension() != ".toml") {
      continue;
    }
    const std::string text = text_of(entry.path());
    corpora.add("run_file", text);
    if (const atl::RunFile file = atl::parse_run_file(text, "seed"); file.valid()) {
      corpora.add("run_spec", atl::to_json(file.spec));
    }
  }
}

// A checkpoint as an island writes it: its meta.json, and the header of its outer.safetensors behind the size of the data.
void add_checkpoint(Corpora& corpora) {
  const atl_test::TemporaryFolder folder;
  atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(folder.path())).value();
  const std::vector<float> values(24, 1.5F);
  const atl::RunSpec spec;
  atl::CheckpointMeta meta;
  meta.run = atl::RunId("r-1");
  meta.round = atl::Round(1);
  const fs::path partial = store.begin(meta.round).value().text();
  fs::create_directories(partial / atl::kTrainerFolder);
  std::ofstream(partial / atl::kTrainerFolder / "optimizer") << "state";
  (void)store
      .write_outer(meta.round, {{"layers.0.weight", {4, 6}, values}, {"momentum/layers.0.weight", {4, 6}, values}},
                   atl::outer_metadata(meta.run, meta.round, meta.digest, spec, "[]"))
      .value();
  (void)store.finish(meta).value();
  corpora.add("checkpoint", text_of((store.folder_of(meta.round) / "meta.json").text()));
  const std::string outer = text_of((store.folder_of(meta.round) / atl::kOuterFile).text());
  const std::string data_bytes("\xC0\0\0\0\0\0\0\0", 8);  // two tensors of 24 floats
  corpora.add("safetensors", data_bytes + outer.substr(8, outer.size() - 8 - 0xC0));
}

void add_requests(Corpora& corpora) {
  for (const char* address : {"/", "/r/text/summary", "/page.js", "/metrics", "/api/runs", "/api/runs/text", "/api/islands",
                              "/api/runs/text/metrics?after=41&island=a", "/api/runs/text/spans?after=7",
                              "/api/runs/text/strips?from=17&to=%34%32", "/api/runs/text/events?since=4"}) {
    corpora.add("web", "GET " + std::string(address) + " HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
  }
  corpora.add("web",
              "HEAD /api/runs/text/events HTTP/1.1\r\nHost: [::1]:80\r\nLast-Event-ID: 7\r\nRange: bytes=0-1,2-3\r\n\r\n"
              "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
              "3\r\nabc\r\n0\r\n\r\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: seed_corpora FOLDER EXAMPLES\n";
    return 2;
  }
  Corpora corpora(arguments[1]);
  add_messages(corpora);
  add_pieces(corpora);
  add_island_link(corpora);
  add_runs(corpora, arguments[2]);
  add_checkpoint(corpora);
  add_requests(corpora);
  return 0;
}

// A run whose model a command can fetch: a scripted coordinator, and one island that serves the checkpoint over a real bulk link.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/storage/safetensors.hpp"
#include "tests/cli/scripted_coordinator.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/sha256.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl {

class ServedModel {
 public:
  // The document of an export before it is answered, which names the one island that serves.
  using Change = std::function<void(nlohmann::json& document)>;

  explicit ServedModel(Change change = {})
      : change_(std::move(change)),
        keys_(make_key_pair().value()),
        coordinator_([this](const std::string& verb, const nlohmann::json& arguments) { return answer(verb, arguments); }) {
    static const std::vector<float> kValues = {1, 2, 3, 4};
    REQUIRE(write_safetensors({{"a", {4}, kValues}, {"momentum/a", {4}, kValues}}, {{"atoll.format", "1"}}, [&](ByteView some) {
      bytes_ += as_text(some);
      return Status();
    }));
    checkpoint_ = folder_.write("outer.safetensors", bytes_);
    ZmqBulkSettings settings;
    settings.island = island_of(keys_.public_key);
    settings.public_key = keys_.public_key;
    settings.secret_key = keys_.secret_key;
    settings.bind = "tcp://127.0.0.1:0";
    blob_.run = RunId("r-7f3a9c12");
    blob_.round = Round(20);
    blob_.kind = BlobKind::checkpoint_file;
    REQUIRE(store_->put_file(blob_, on_this_machine(checkpoint_)));
    island_ = ZmqBulkLink::open(settings, store_).value();
  }

  Called call(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) const {
    environment["ATOLL_STATE"] = coordinator_.state().string();
    return atl::call(std::move(arguments), environment);
  }
  ScriptedCoordinator& coordinator() { return coordinator_; }

 private:
  Reply answer(const std::string& verb, const nlohmann::json& arguments) {
    if (verb != "export") {
      nlohmann::json document = documented(verb);
      if (verb == "spans" && arguments["after"] != 0) {
        document["spans"] = nlohmann::json::array();
      }
      return document_reply(document);
    }
    const std::string reader = arguments["reader_key"];
    store_->set_readers(blob_.run, {}, {island_of(reader)});
    const std::vector<Member> peers = {{island_of(reader), "operator", reader, ""}};
    if (!island_->set_peers(peers)) {
      return error_reply(Code::internal, "the island cannot serve");
    }
    nlohmann::json document = documented("export");
    document["file_bytes"] = bytes_.size();
    document["file_sha256"] = to_hex(sha256_of_file(checkpoint_).value());
    document["sources"] = nlohmann::json::array({{{"id", island_of(keys_.public_key).text},
                                                  {"name", "cloud-a"},
                                                  {"public_key", keys_.public_key},
                                                  {"bulk_address", island_->bound_address()}}});
    document["alternatives"] = nlohmann::json::array();
    if (change_) {
      change_(document);
    }
    return document_reply(document);
  }

  Change change_;
  atl_test::TemporaryFolder folder_;
  KeyPair keys_;
  std::string bytes_;
  std::filesystem::path checkpoint_;
  BlobId blob_;
  std::shared_ptr<BlobStore> store_ = std::make_shared<BlobStore>();
  std::unique_ptr<ZmqBulkLink> island_;
  ScriptedCoordinator coordinator_;  // last: it answers from a thread of its own
};

}  // namespace atl

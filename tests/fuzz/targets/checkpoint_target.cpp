// libFuzzer: any bytes as a checkpoint's meta.json, as they are and, where they are a JSON object, with the digest that fits them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "agent/storage/checkpoint.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace {

using Json = nlohmann::json;

void read_as_meta(const std::string& text) {
  static const atl_test::TemporaryFolder folder;
  folder.write("1/meta.json", text);
  atl::Result<atl::CheckpointStore> store = atl::CheckpointStore::open(atl::on_this_machine(folder.path()));
  if (!store) {
    std::abort();
  }
  for (const atl::CheckpointMeta& meta : store->list()) {
    if (meta.round != atl::Round(1)) {
      std::abort();
    }
  }
  if (store->verify(atl::Round(1))) {  // no other file is there
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_as_meta(text);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_object()) {
    json.erase("sha256");
    const std::string content = json.dump();
    json["sha256"] = atl::to_hex(atl::sha256(atl::as_bytes(content)));
    read_as_meta(json.dump());
  }
  return 0;
}

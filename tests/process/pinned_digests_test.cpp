// The digests and the parameters that the example runs come to with the arithmetic trainer, which computes the same on every machine.
// A change of the code that moves one of these numbers changes what a run computes: it is a decision, never an accident.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/storage/checkpoint.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace of_pinned_digests_test {

using atl_test::Cluster;
namespace fs = std::filesystem;

namespace {

using Changes = std::vector<std::pair<std::string, std::string>>;

struct Pinned {
  std::string example;
  Changes changes;
  std::uint64_t rounds;
  std::set<std::string> digests;     // of the last round, of both islands
  std::set<std::string> parameters;  // SHA-256 of both islands' outer parameters after it
};

std::string shortened(const Pinned& pinned) {
  std::string file = atl_test::text_of(atl_test::source_folder() + "/examples/" + pinned.example);
  Changes changes = {{"set = \"text\"", "set = \"corpus\""}, {"steps = 2000", "steps = 60"}};
  changes.insert(changes.end(), pinned.changes.begin(), pinned.changes.end());
  for (const auto& [line, instead] : changes) {
    const std::size_t at = file.find(line);
    INFO(pinned.example << " has no line '" << line << "'");
    REQUIRE(at != std::string::npos);
    file.replace(at, line.size(), instead);
  }
  return file;
}

std::string parameters_of(const fs::path& outer) {
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(outer).value();
  atl::Sha256 hash;
  for (const char* name : {"embedding", "layer", "head"}) {
    hash.update(std::as_bytes(file.floats(name).value()));
  }
  return atl::to_hex(hash.finish());
}

}  // namespace

TEST_CASE("process: the example runs come to the digests and the parameters that they always came to") {
  const Changes two_of_four = {{"inner_steps = 30", "inner_steps = 12"}, {"max = 4", "max = 2"}};
  const std::vector<Pinned> all = {
      {"diloco-text.toml",
       two_of_four,
       5,
       {"b9ddb9d69228614cbf0a0a8e1185a2af0560f08ed145cea6c8086c65faebfe22"},
       {"160d95a351fd2c6dd229251925c5de12f2cfa6e6065ab821e95808ae0947347d"}},
      {"diloco-text.toml",
       {{"inner_steps = 30", "inner_steps = 12\ncodec = \"fp4\"\nerror_feedback = true"}, {"max = 4", "max = 2"}},
       5,
       {"3182666473ad97a5a132a210d839e1520bb454ef21606a3c0b18939bf9a4f374"},
       {"b3b8999f8d68a1775c342158339829b151b6531729f0fed0c197798693021dee"}},
      {"streaming-diloco-text.toml",
       {{"fragments = 2", "fragments = 2\ngrouping = \"balanced\""},
        {"inner_steps = 30", "inner_steps = 12"},
        {"max = 4", "max = 2"},
        {"every_rounds = 30", "every_rounds = 5"}},
       10,
       {"ae3cdef1350bedc90cccc1baa3d22248d8c44f927cd04a1cd75076b7218ae2ac"},
       {"9c5553a08b9656596696529fb718de6d249a4f5daf69c0a42812c3faa5480fc3"}},
      {"noloco-text.toml",
       {{"inner_steps = 30", "inner_steps = 12\npace = \"fixed\""}, {"max = 8", "max = 2"}},
       6,
       {"6659045a21e223ce19c3e619c653e3cdfb428c7f6704de71f4cdd4a2ed931f2a"},
       {"3fdf50958823cfeb488776c10b3bcb7c8fa9fba4e4b7d7809afd8d1677a9fa6e"}},
      {"data-parallel-text.toml",
       {{"max = 4", "max = 2"}, {"every_rounds = 500", "every_rounds = 20"}},
       60,
       {"cbb27592c19aaa069fc1c898e29080d2631d9631c5884daf55fcf8bc52191d86"},
       {"d9d1cab88088bc5cf23543937bc96891a97fbeeac9c859048725ed2e3bb6df1e"}},
      {"local-text.toml",
       {{"inner_steps = 100", "inner_steps = 12"}, {"max = 4", "max = 2"}},
       5,
       {"4516c4d6233ea26f4f5665b9738f17ac6f77710371e3a6c1587ebd48d879425f",
        "c23d00f00e7024e726d5a70d762c65a7dab96b34d6b088d81409c3ca1dd44e45"},
       {"29a293e79732382be0c120daf93d96d8f10eedc18d86175f167e0b6fbe4c477f",
        "b9ade554f8aec9026e98e1bcead3b298cc620454a8115219c7a1ffe571de643c"}},
  };
  for (const Pinned& pinned : all) {
    Cluster cluster;
    for (const char* name : {"a", "b"}) {
      cluster.start_island(name);
    }
    const std::string run = cluster.submit(shortened(pinned));
    const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
    INFO(pinned.example << "\n" << waited.out << waited.err << cluster.logs());
    REQUIRE(waited.exit == 0);
    std::set<std::string> digests;
    std::set<std::string> parameters;
    for (const char* name : {"a", "b"}) {
      const fs::path folder = cluster.state(name) / "runs" / run / "checkpoints";
      atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(folder)).value();
      const std::optional<atl::CheckpointMeta> meta = store.newest_good();
      REQUIRE(meta.has_value());
      CHECK(meta->round == atl::Round(pinned.rounds));
      digests.insert(atl::to_hex(meta->digest));
      parameters.insert(parameters_of(folder / std::to_string(meta->round.value) / atl::kOuterFile));
    }
    CHECK(digests == pinned.digests);
    CHECK(parameters == pinned.parameters);
  }
}

TEST_CASE(
    "process: strategies are composed freely: outer steps alone, parameters among all, a whole period of overlap, an early first round") {
  struct Case {
    std::string what;
    std::string strategy;
    std::uint64_t rounds;
    bool alone = false;  // only island a
  };
  const auto whole_period = [](const std::string& payload) {
    return "inner_steps = 2\noffset = 1\noverlap_steps = 2\nmerge_alpha = 0.5\ngrouping = \"balanced\"\nfragments = 3\n" + payload;
  };
  const std::vector<Case> all = {
      {"one island among all", "inner_steps = 12\n", 5, true},
      {"one island with nobody", "inner_steps = 12\ngroup = \"nobody\"\n", 5, true},
      {"parameters among all, in more fragments than inner steps",
       "inner_steps = 2\ngrouping = \"balanced\"\nfragments = 3\npayload = \"parameters\"\nouter_optimizer = \"adopt\"\n", 90},
      {"outer gradients, a whole period late", whole_period("outer_optimizer = \"sgd\"\nouter_learning_rate = 0.5\n"), 0},
      {"parameters, a whole period late", whole_period("payload = \"parameters\"\nouter_optimizer = \"adopt\"\n"), 0},
  };
  std::map<std::string, std::set<std::string>> parameters;
  for (const Case& one : all) {
    Cluster cluster;
    const std::vector<std::string> islands = one.alone ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"};
    for (const std::string& name : islands) {
      cluster.start_island(name);
    }
    const std::string count = std::to_string(islands.size());
    const std::string run =
        cluster.submit("[run]\nname = \"free\"\nseed = 11\n[data]\nset = \"corpus\"\n[training]\nsteps = 60\n[strategy]\n" + one.strategy +
                       "[islands]\nmin = " + count + "\nmax = " + count + "\n");
    const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
    INFO(one.what << "\n" << waited.out << waited.err << cluster.logs());
    REQUIRE(waited.exit == 0);
    std::set<std::string> digests;
    for (const std::string& name : islands) {
      const fs::path folder = cluster.state(name) / "runs" / run / "checkpoints";
      atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(folder)).value();
      const std::optional<atl::CheckpointMeta> meta = store.newest_good();
      REQUIRE(meta.has_value());
      if (one.rounds > 0) {
        CHECK(meta->round == atl::Round(one.rounds));
      }
      digests.insert(atl::to_hex(meta->digest));
      parameters[one.what].insert(parameters_of(folder / std::to_string(meta->round.value) / atl::kOuterFile));
    }
    CHECK(digests.size() == 1);
    CHECK(parameters[one.what].size() == 1);
  }
  CHECK(parameters["one island among all"] == parameters["one island with nobody"]);
  CHECK(parameters["outer gradients, a whole period late"] != parameters["parameters, a whole period late"]);
}

}  // namespace of_pinned_digests_test

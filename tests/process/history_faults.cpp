#include "tests/process/history_faults.hpp"

#include <sys/mman.h>

#include <array>
#include <cstdlib>

#include "tests/places.hpp"

namespace atl_test {

using std::chrono::milliseconds;

namespace {

int number_of(const std::string& island) { return island.front() - 'a' + 1; }

}  // namespace

Trouble::Trouble(std::uint64_t seed, std::function<double()> now, std::map<std::string, std::string> environment,
                 std::set<std::string> only)
    : rng_(seed, atl::stream_of("faults")),
      now_(std::move(now)),
      environment_(std::move(environment)),
      only_(std::move(only)),
      cluster_(std::make_unique<Cluster>(bridge_.ok() ? "10.77.0.254" : "127.0.0.1")) {
  REQUIRE(Cluster::eventually([&] { return cluster().run({"runs"}).exit == 0; }));
  cluster().coordinator.signal(SIGTERM);
  CHECK(cluster().coordinator.wait() == 0);
  disk_ = std::make_unique<SmallDisk>(cluster().folder() / "disk", 64);
  cluster().copy_coordinator_to(cluster().folder() / "disk" / "coordinator");
  (void)of("coordinator");
  cluster().coordinator_environment = environment_of("coordinator");
  cluster().start_coordinator();
  for (const char* island : {"a", "b", "c"}) {
    start(island);
  }
}

void Trouble::start(const std::string& island) {
  (void)of(island);
  const auto begin = [&] { cluster().start_island(island, environment_of(island)); };
  bridge_.ok() ? bridge_.inside(number_of(island), begin) : begin();
}

std::map<std::string, std::string> Trouble::environment_of(const std::string& process) const {
  std::map<std::string, std::string> all = environment_;
  all["ATOLL_TEST_STEP_MS"] = "10";
  all["LD_PRELOAD"] = atl_test::faulty_libc();
#ifdef __SANITIZE_ADDRESS__
  const char* told = std::getenv("ASAN_OPTIONS");
  all["ASAN_OPTIONS"] = std::string(told == nullptr ? "" : told) + ":verify_asan_link_order=0";  // the library comes before the runtime
#endif
  all[kFaultyLibcVariable] = (cluster_->folder() / (process + ".libc")).string();
  return all;
}

FaultyLibc& Trouble::of(const std::string& process) {
  FaultyLibc*& faults = libc_[process];
  if (faults == nullptr) {
    const fs::path path = cluster().folder() / (process + ".libc");
    std::ofstream(path, std::ios::binary) << std::string(sizeof(FaultyLibc), '\0');
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* at = ::mmap(nullptr, sizeof(FaultyLibc), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);  // until this process ends
    ::close(fd);
    REQUIRE(at != MAP_FAILED);
    faults = static_cast<FaultyLibc*>(at);
  }
  return *faults;
}

void Trouble::wait_a_while(int most_milliseconds) {
  std::this_thread::sleep_for(milliseconds(rng_.below(static_cast<std::uint64_t>(most_milliseconds))));
}
std::string Trouble::some_island() { return std::string(1, static_cast<char>('b' + rng_.below(2))); }
std::string Trouble::some_process() {
  const std::string island = some_island();
  return rng_.chance(0.5) ? "coordinator" : island;
}

const std::array<Trouble::Named, 14> Trouble::kFaults = {{{"the coordinator is killed", &Trouble::kill_coordinator, Needs::nothing},
                                                          {"the coordinator stops", &Trouble::stop_coordinator, Needs::nothing},
                                                          {"an island is killed", &Trouble::kill_island, Needs::nothing},
                                                          {"an island stops", &Trouble::stop_island, Needs::nothing},
                                                          {"an island's link is cut", &Trouble::cut_link, Needs::links},
                                                          {"nothing comes to an island", &Trouble::deafen_island, Needs::links},
                                                          {"an island's large packets vanish", &Trouble::lower_mtu, Needs::links},
                                                          {"a clock is set", &Trouble::set_clock, Needs::nothing},
                                                          {"the coordinator's disk is full", &Trouble::fill_disk, Needs::disk},
                                                          {"a disk is slow", &Trouble::slow_disk, Needs::nothing},
                                                          {"the store is copied", &Trouble::copy_store, Needs::no_copy},
                                                          {"the store is backed up", &Trouble::back_store_up, Needs::no_copy},
                                                          {"an island is drained", &Trouble::drain_island, Needs::nothing},
                                                          {"an island is revoked", &Trouble::revoke_island, Needs::nothing}}};

std::set<std::string> Trouble::every_second(std::uint64_t which) {
  std::set<std::string> names;
  for (std::size_t i = which % 2; i < kFaults.size(); i += 2) {
    names.insert(kFaults.at(i).name);
  }
  return names;
}

void Trouble::strike(const std::function<void()>& before_restore) {
  before_restore_ = before_restore;
  make_newest();
  const bool links = bridge_.ok();
  const auto can_be = [&](Needs needs) {
    return needs == Needs::links ? links : needs == Needs::disk ? disk_->there() : needs == Needs::no_copy ? !kept_ : true;
  };
  std::vector<const Named*> there;
  for (const Named& named : kFaults) {
    if (can_be(named.needs) && (only_.empty() || only_.contains(named.name))) {
      there.push_back(&named);
    }
  }
  if (kept_ && now_() - kept_->copied > 10) {
    kinds_.insert(kept_->backup ? "a backup is put in place" : "a copy is put in place");
    told_ += std::to_string(now_()) + " s: the store of " + std::to_string(kept_->copied) + " s is put back\n";
    put_store_back();
  } else if (!there.empty()) {
    const Named& chosen = *there.at(rng_.below(there.size()));
    kinds_.insert(chosen.name);
    told_ += std::to_string(now_()) + " s: " + chosen.name + "\n";
    (this->*chosen.fault)();
  }
}

void Trouble::mend() {
  make_newest();
  for (const char* process : {"coordinator", "a", "b", "c"}) {
    of(process).sync_milliseconds = 0;
  }
  for (const char* island : {"b", "c"}) {
    if (!cluster().islands[island].running()) {
      start(island);
    }
  }
}

// ---- processes
void Trouble::kill_coordinator() {
  cluster().coordinator.signal(SIGKILL);
  (void)cluster().coordinator.wait();
  wait_a_while(1500);
  cluster().start_coordinator();
}
void Trouble::stop_for_a_while(const Process& process) {
  process.signal(SIGSTOP);
  wait_a_while(3000);
  process.signal(SIGCONT);
}
void Trouble::stop_coordinator() { stop_for_a_while(cluster().coordinator); }
void Trouble::kill_island() {
  const std::string island = some_island();
  cluster().islands[island].signal(SIGKILL);
  (void)cluster().islands[island].wait();
  wait_a_while(1500);
  start(island);
}
void Trouble::stop_island() { stop_for_a_while(cluster().islands[some_island()]); }

// ---- links
void Trouble::with_link(void (*fault)(int), void (*repair)(int)) {
  const int island = number_of(some_island());
  fault(island);
  wait_a_while(6000);
  repair(island);
}
void Trouble::cut_link() { with_link(&Bridge::cut, &Bridge::join); }
void Trouble::deafen_island() { with_link(&Bridge::deafen, &Bridge::undeafen); }
void Trouble::lower_mtu() {
  with_link([](int island) { Bridge::largest_packet(island, 1200); }, [](int island) { Bridge::largest_packet(island, 1500); });
}

// ---- clocks and disks
void Trouble::set_clock() {
  static constexpr std::array<long, 6> kSeconds = {0, -3600, 3600, -100'000'000, 100'000'000, 2};
  of(some_process()).clock_seconds = kSeconds.at(rng_.below(kSeconds.size()));
}
void Trouble::fill_disk() {
  disk_->fill();
  wait_a_while(3000);
  disk_->empty();
}
void Trouble::slow_disk() {
  FaultyLibc& faults = of(some_process());
  faults.sync_milliseconds = 100 + static_cast<long>(rng_.below(700));
  wait_a_while(5000);
  faults.sync_milliseconds = 0;
}

// ---- the store
void Trouble::copy_store() {
  (void)Cluster::eventually([&] { return cluster().run({"runs"}).exit == 0; });  // a signal before it listens ends it without a word
  cluster().coordinator.signal(SIGTERM);
  CHECK(cluster().coordinator.wait() == 0);
  kept_ = Kept{cluster().folder() / ("copy-" + std::to_string(restores_.size())), false, now_()};
  fs::copy(cluster().coordinator_state(), kept_->path, fs::copy_options::recursive);
  cluster().start_coordinator();
}
void Trouble::back_store_up() {
  const Kept kept{cluster().folder() / ("backup-" + std::to_string(restores_.size()) + ".db"), true, now_()};
  fs::remove(kept.path);
  if (cluster().run({"coordinator", "backup", kept.path.string()}).exit == 0) {
    kept_ = kept;
  }
}
// An island has met the coordinator after more starts than this older store knows of. Its owner does what it then asks for.
void Trouble::make_newest() {
  if (!cluster().coordinator.running()) {
    told_ += std::to_string(now_()) + " s: it says that it was superseded, and is made the newest\n";
    cluster().make_coordinator_newest();
  }
}
void Trouble::put_store_back() {
  before_restore_();
  Restore restore{kept_->copied, now_(), 0};
  cluster().coordinator.signal(SIGKILL);
  (void)cluster().coordinator.wait();
  const fs::path state = cluster().coordinator_state();
  if (kept_->backup) {
    cluster().restore_coordinator(kept_->path);
  } else {
    fs::remove_all(state);
    fs::copy(kept_->path, state, fs::copy_options::recursive);
    cluster().start_coordinator();
  }
  kept_.reset();
  REQUIRE(Cluster::eventually([&] {
    make_newest();
    return cluster().run({"runs"}).exit == 0;
  }));
  restore.end = now_();
  restores_.push_back(restore);
}

// ---- operators
void Trouble::drain_island() {
  const std::string island = some_island();
  if (cluster().run({"drain", island}).exit == 0) {
    CHECK(cluster().islands[island].wait() == 0);
    wait_a_while(1500);
    start(island);
  }
}
void Trouble::revoke_island() {
  const std::string island = some_island();
  if (cluster().run({"islands", "revoke", island}).exit == 0) {
    CHECK(cluster().islands[island].wait() == 7);
    cluster().forget_island(island);
    kept_.reset();  // it knows nothing of the new one
    start(island);
  }
}

}  // namespace atl_test

// A coordinator and islands as processes of the real executable, in a folder of their own, with the arithmetic trainer.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/free_port.hpp"
#include "transport/base/time.hpp"

namespace atl_test {

namespace fs = std::filesystem;

inline std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A started process; killed when it goes.
class Process {
 public:
  Process() = default;
  Process(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment, const fs::path& out,
          const fs::path& err) {
    std::vector<std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text(*entry);
      if (!environment.contains(text.substr(0, text.find('=')))) {
        variables.push_back(text);
      }
    }
    for (const auto& [name, value] : environment) {
      variables.push_back(name + "=" + value);
    }
    std::vector<char*> argv = pointers(arguments);
    std::vector<char*> envp = pointers(variables);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    if (pid_ <= 0) {  // no assertion where all is well: several threads start processes
      FAIL("cannot start " << arguments.front());
    }
  }
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // The exit status, 128 + signal, or -1 if it still runs after that time.
  int wait(std::chrono::seconds at_most = std::chrono::seconds(60)) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (std::chrono::steady_clock::now() < until) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }
  [[nodiscard]] bool running() const {
    siginfo_t ended{};
    return pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) {
      result.push_back(const_cast<char*>(text.c_str()));
    }
    result.push_back(nullptr);
    return result;
  }
  pid_t pid_ = -1;
};

// The processes whose parent is `parent`.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const std::string stat = text_of(entry.path() / "stat");
    const std::size_t after = stat.rfind(')');
    if (after == std::string::npos) {
      continue;
    }
    std::istringstream rest(stat.substr(after + 1));
    char state = 0;
    pid_t ppid = 0;
    rest >> state >> ppid;
    if (ppid == parent && state != 'Z') {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

struct CommandResult {
  int exit = 0;
  std::string out;
  std::string err;
};

class Cluster {
 public:
  // host: the address of this machine at which the coordinator listens. network: how soon silence counts as a loss; a test in which
  // nobody may be taken for lost asks for "wan", since a busy machine stands still for seconds.
  explicit Cluster(std::string host = "127.0.0.1", std::string network = "lan") : host_(std::move(host)), network_(std::move(network)) {
    data_ = folder_.write("data/text.txt", std::string(100'000, 'x'));
    start_coordinator(true);
  }

  // A tcp:// address of this machine that nobody uses at the moment.
  static std::string free_address(const std::string& host = "127.0.0.1") {
    return "tcp://" + host + ":" + std::to_string(atl::free_port(host).value());
  }

  void start_coordinator(bool init = false) {
    if (init) {
      address_ = free_address(host_);
      const CommandResult made = run({"coordinator", "init", "--bind", address_, "--advertise", address_, "--network", network_});
      INFO(made.err);
      REQUIRE(made.exit == 0);
    }
    coordinator = spawn_coordinator(coordinator_name_);
  }
  // One in another state directory, beside the one there is.
  Process spawn_coordinator(const std::string& name) {
    return spawn({"coordinator", "--state", state(name).string()}, fs::path(name).filename().string(), coordinator_environment);
  }

  // Where the coordinator made at first listens.
  [[nodiscard]] const std::string& address() const { return address_; }

  // From now on the coordinator is the one made of a backup in another state directory, at another address, which is returned.
  std::string move_coordinator(const std::string& name, const fs::path& backup) {
    coordinator_name_ = name;
    const std::string at = free_address();
    const CommandResult made = run({"coordinator", "init", "--from", backup.string(), "--bind", at, "--advertise", at});
    INFO(made.err);
    REQUIRE(made.exit == 0);
    start_coordinator();
    return at;
  }

  // Makes the coordinator anew of this backup, in the place and at the address of the one before, which has ended.
  void restore_coordinator(const fs::path& backup) {
    fs::remove_all(coordinator_state());
    const CommandResult made = run({"coordinator", "init", "--from", backup.string(), "--bind", address_, "--advertise", address_});
    INFO(made.err);
    REQUIRE(made.exit == 0);
    start_coordinator();
  }
  // What the coordinator asks for that has ended because an island has met a newer one.
  void make_coordinator_newest() {
    CHECK(coordinator.wait() == 8);
    CHECK(run({"coordinator"}).err.find("atoll coordinator backup FILE") != std::string::npos);
    const fs::path backup = folder() / "superseded.db";
    fs::remove(backup);
    const CommandResult written = run({"coordinator", "backup", backup.string()});
    INFO(written.err);
    REQUIRE(written.exit == 0);
    restore_coordinator(backup);
  }

  // Trainers started from now on go no further than this step until release(): what a test does before that happens before that,
  // however slow the machine is.
  void hold_at(std::uint64_t step) { hold_at_ = step; }
  void release() { folder_.write("release", ""); }
  void release_until(std::uint64_t step) { folder_.write("release", std::to_string(step)); }

  // Starts an island's agent; the first time it joins.
  void start_island(const std::string& name, const std::map<std::string, std::string>& environment = {},
                    std::vector<std::string> options = {}) {
    if (!tokens_.contains(name)) {
      const bool made = eventually([&] {
        const CommandResult token = run({"token", "create", "-q"});
        tokens_[name] = token.out.substr(0, token.out.find('\n'));
        return token.exit == 0;
      });
      REQUIRE(made);
    }
    spawn_agent(name, {"--join", tokens_[name]}, environment, options);
  }
  void start_island_with_token_file(const std::string& name, const fs::path& token) {
    spawn_agent(name, {"--join-file", token.string()}, {}, {});
  }

  // From now on the coordinator's state directory is that one, with what the former has.
  void copy_coordinator_to(const fs::path& path) {
    fs::copy(state(coordinator_name_), path, fs::copy_options::recursive);
    coordinator_name_ = fs::relative(path, folder_.path() / "state").string();
  }

  // Runs a command against the coordinator.
  CommandResult run(std::vector<std::string> arguments) { return run_in(coordinator_name_, std::move(arguments)); }
  // Runs a command with the state directory of this island, or of the coordinator.
  CommandResult run_in(const std::string& name, std::vector<std::string> arguments) { return call(name, std::move(arguments), "command"); }
  // As run, by one of several clients at a time.
  CommandResult run_as(int client, std::vector<std::string> arguments) {
    return call(coordinator_name_, std::move(arguments), "client-" + std::to_string(client));
  }

  nlohmann::json status(const std::string& id) {
    const CommandResult result = run({"status", id, "--json"});
    return nlohmann::json::parse(result.out.empty() ? "{}" : result.out, nullptr, false);
  }
  std::uint64_t round_of(const std::string& id) {
    const nlohmann::json document = status(id);
    return document.is_object() && document.contains("run") ? document["run"].value("round", std::uint64_t{0}) : 0;
  }
  // Whether status shows this island as one of the run's active ones.
  bool takes_part(const std::string& id, const std::string& island) {
    const nlohmann::json document = status(id);
    if (document.is_object() && document.contains("islands")) {
      for (const nlohmann::json& entry : document["islands"]) {
        if (entry.value("name", "") == island) {
          return entry.value("active", false);
        }
      }
    }
    return false;
  }
  std::vector<nlohmann::json> events(const std::string& id) { return events_in(coordinator_name_, id); }
  // As the coordinator in this state directory has them.
  std::vector<nlohmann::json> events_in(const std::string& name, const std::string& id) {
    std::vector<nlohmann::json> all;
    std::istringstream lines(run_in(name, {"logs", id, "--json"}).out);
    for (std::string line; std::getline(lines, line);) {
      all.push_back(nlohmann::json::parse(line));
    }
    return all;
  }

  // A run file's path.
  std::string write_run(const std::string& toml) { return folder_.write("run.toml", toml).string(); }
  std::string submit(const std::string& toml) {
    const CommandResult submitted = run({"submit", write_run(toml), "-q"});
    INFO(submitted.err);
    REQUIRE(submitted.exit == 0);
    return submitted.out.substr(0, submitted.out.find('\n'));
  }

  // Polls until the condition holds; false after `at_most`.
  static bool eventually(const std::function<bool()>& condition, std::chrono::seconds at_most = std::chrono::seconds(60)) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= until) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return true;
  }

  // The island's identity is gone with its state: the next start joins anew.
  void forget_island(const std::string& name) {
    fs::remove_all(state(name));
    tokens_.erase(name);
  }
  [[nodiscard]] fs::path coordinator_state() const { return state(coordinator_name_); }
  [[nodiscard]] fs::path state(const std::string& name) const { return folder_.path() / "state" / name; }
  [[nodiscard]] std::string log(const std::string& name) const { return text_of(folder_.path() / (name + ".log")); }
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }
  // Everything that was said, for a failing test.
  [[nodiscard]] std::string logs() const {
    std::string all = "---- coordinator\n" + log("coordinator");
    for (const auto& [name, process] : islands) {
      all += "---- " + name + "\n" + log(name);
    }
    return all;
  }

  // The executable that coordinators, agents and commands are.
  static inline std::string program = atl_test::atoll_program();

  Process coordinator;
  std::map<std::string, std::string> coordinator_environment;  // of those that are started from now on
  std::map<std::string, Process> islands;

 private:
  void spawn_agent(const std::string& name, const std::vector<std::string>& join, const std::map<std::string, std::string>& environment,
                   const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {
        "agent", "--state", state(name).string(), "--name", name, "--data", "corpus=" + data_.string(), "--log-level", "debug"};
    arguments.insert(arguments.end(), join.begin(), join.end());
    arguments.insert(arguments.end(), options.begin(), options.end());
    islands[name] = spawn(arguments, name, environment);
  }
  CommandResult call(const std::string& name, std::vector<std::string> arguments, const std::string& files) {
    const fs::path out = folder_.path() / (files + ".out");
    const fs::path err = folder_.path() / (files + ".err");
    std::error_code ignored;
    fs::remove(out, ignored);
    fs::remove(err, ignored);
    arguments.push_back("--state");
    arguments.push_back(state(name).string());
    arguments.insert(arguments.begin(), program);
    Process process(arguments, {}, out, err);
    const int exit = process.wait(std::chrono::seconds(120));
    return {exit, text_of(out), text_of(err)};
  }
  Process spawn(std::vector<std::string> arguments, const std::string& name, std::map<std::string, std::string> environment) {
    arguments.insert(arguments.begin(), program);
    environment.emplace("ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer());
    if (hold_at_ > 0) {
      environment.emplace("ATOLL_TEST_HOLD_AT", std::to_string(hold_at_));
      environment.emplace("ATOLL_TEST_RELEASE", (folder_.path() / "release").string());
    }
    const fs::path file = folder_.path() / (name + ".log");
    return Process(arguments, environment, file, file);
  }

  TemporaryFolder folder_;
  std::string host_;
  std::string network_;
  std::string coordinator_name_ = "coordinator";
  std::string address_;
  fs::path data_;
  std::map<std::string, std::string> tokens_;
  std::uint64_t hold_at_ = 0;
};

}  // namespace atl_test

// A real trainer process (`atoll trainer`) and the agent's end of its link, for tests.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "agent/island_link/agent_end.hpp"
#include "agent/island_link/arena.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "transport/base/rng.hpp"

namespace atl {

using namespace island_link;
using namespace std::chrono_literals;

// A folder of a test's own, removed at the end.
struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-trainer-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  // A text that can be learned: words of a small random vocabulary.
  std::string write_text(std::size_t bytes, std::uint64_t seed = 1) const {
    Rng rng(seed);
    std::vector<std::string> words;
    for (int i = 0; i < 30; ++i) {
      std::string word;
      for (std::uint64_t c = 2 + rng.below(5); c > 0; --c) {
        word.push_back(static_cast<char>('a' + rng.below(26)));
      }
      words.push_back(word);
    }
    std::string text;
    while (text.size() < bytes) {
      text += words[rng.below(words.size())] + " ";
    }
    const std::string file = path + "/text" + std::to_string(seed);
    std::ofstream(file) << text.substr(0, bytes);
    return file;
  }
};

// A small model that trains in milliseconds, on the processor or on ATOLL_TEST_DEVICE.
inline Configure small_run(const std::string& file) {
  Configure configure;
  configure.run = "r-test";
  configure.island = "here";
  configure.seed = 7;
  configure.model = {2, 32, 2, 64, 256, false};
  configure.data = {{file}, "bytes", 0.1, 0, 1};
  configure.training.steps = 100;
  configure.training.batch = 4;
  configure.training.sequence_length = 16;
  configure.training.accumulation = 1;
  configure.training.learning_rate = 3e-3;
  configure.training.warmup_steps = 5;
  configure.training.final_learning_rate = 0.1;
  configure.training.weight_decay = 0.1;
  configure.training.beta1 = 0.9;
  configure.training.beta2 = 0.95;
  configure.training.epsilon = 1e-8;
  configure.training.clip_norm = 1.0;
  const char* device = std::getenv("ATOLL_TEST_DEVICE");
  configure.training.device = device == nullptr ? "cpu" : device;
  configure.training.precision = "float32";
  configure.training.threads = 1;
  configure.training.evaluate_batches = 4;
  return configure;
}

class TrainerProcess {
 public:
  // `environment`: NAME=VALUE, beside what every trainer of a test gets.
  explicit TrainerProcess(const std::string& folder, std::vector<std::string> environment = {})
      : folder_(folder), end_(AgentEnd::bind(folder + "/link" + std::to_string(next_++)).value()) {
    const std::string program = atl_test::atoll_program();
    const std::string module = "ATOLL_TRAINER_MODULE=" + atl_test::built_in_trainer();
    const std::string link = "ATOLL_ISLAND_LINK=" + end_.path();
    log_ = folder + "/trainer.log";
    pid_ = ::fork();
    if (pid_ == 0) {
      const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(log, STDERR_FILENO);
      ::putenv(const_cast<char*>(module.c_str()));
      ::putenv(const_cast<char*>(link.c_str()));
      ::putenv(const_cast<char*>("OMP_NUM_THREADS=1"));
      ::putenv(const_cast<char*>("OPENBLAS_NUM_THREADS=1"));
      for (std::string& variable : environment) {
        ::putenv(variable.data());
      }
      ::execl(program.c_str(), "atoll", "trainer", nullptr);
      ::_exit(127);
    }
  }
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;
  ~TrainerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void send(const AgentMessage& message) { REQUIRE(end_.send(message).ok()); }

  // The next message of one of these types; reports of progress and of preparations are passed over, anything else fails the test.
  template <typename... Wanted>
  std::variant<Wanted...> expect_any() {
    while (true) {
      const auto message = end_.receive(60s);
      REQUIRE(message.has_value());
      REQUIRE(message->has_value());
      std::optional<std::variant<Wanted...>> found;
      const auto look = [&]<typename Wants>(const Wants* said) { found = said == nullptr ? std::move(found) : *said; };
      (look(std::get_if<Wanted>(&**message)), ...);
      if (found) {
        return *std::move(found);
      }
      INFO(encode(**message));
      const auto* doing = std::get_if<Preparing>(&**message);
      preparing = doing != nullptr ? doing->what : preparing;
      REQUIRE((doing != nullptr || std::holds_alternative<Progress>(**message)));
    }
  }
  template <typename Message>
  Message expect() {
    return std::get<Message>(expect_any<Message>());
  }

  // hello … ready, with one fragment for each list of blocks of parameters (default: the whole model is one).
  Ready open(const Configure& configure, std::size_t fragments = 1) {
    hello = expect<Hello>();
    send(configure);
    manifest = expect<Manifest>();
    return attach(fragments);
  }
  Ready attach(std::size_t fragments) {
    lay_out_arena(fragments);
    return expect<Ready>();
  }
  void lay_out_arena(std::size_t fragments) {
    std::vector<std::vector<std::uint32_t>> parts(fragments);
    for (std::uint32_t i = 0; i < manifest.parameters.size(); ++i) {
      parts[i % fragments].push_back(i);
    }
    layout = lay_out(manifest, parts).value();
    layout.path = end_.path() + ".arena";
    arena.emplace(Arena::create(layout.path, layout.bytes).value());
    send(layout);
  }

  std::vector<float> fragment(std::uint32_t index = 0) const {
    const std::span<float> range = arena->range(layout.fragments[index]);
    return {range.begin(), range.end()};
  }
  // The parameters as they are now, of all fragments.
  std::vector<std::vector<float>> parameters() {
    std::vector<std::uint32_t> all;
    for (std::uint32_t f = 0; f < layout.fragments.size(); ++f) {
      all.push_back(f);
    }
    send(PublishNow{all});
    expect<PublishedNow>();
    std::vector<std::vector<float>> values;
    for (const std::uint32_t f : all) {
      values.push_back(fragment(f));
    }
    return values;
  }
  // Trains up to a step without any exchange.
  Published train_until(std::uint64_t step) {
    send(Plan{step, {{step, 0, step, false}}, {}});
    return expect<Published>();
  }

  // The exit status, or minus the signal; nothing if it still runs after ten seconds.
  std::optional<int> exit_status() {
    for (const auto deadline = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < deadline;) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      std::this_thread::sleep_for(5ms);
    }
    return std::nullopt;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string log() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Hello hello;
  std::string preparing;  // what it said last that it was
  Manifest manifest;
  ArenaLayout layout;
  std::optional<Arena> arena;

 private:
  inline static int next_ = 0;
  std::string folder_;
  std::string log_;
  AgentEnd end_;
  pid_t pid_ = -1;
};

}  // namespace atl

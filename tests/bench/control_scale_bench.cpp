// The coordinator with 1,000 islands on real sockets: what it takes of a core and of memory, and how soon it decides.
//
// The coordinator is a process of the real executable. The islands are CURVE-encrypted connections of this process: each beats once a
// second with a report, and some of them carry a run: they say Ready a second after each commit and Exchanged at once. A decision's time is
// from the last message that it needs (sent here) to the message that tells of it (received here): Ready to Exchange, Exchanged to Commit,
// on every member. Usage: bench_control_scale [ISLANDS [SECONDS [MEMBERS]]]
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "coordinator/ledger/admission.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "coordinator/service/init.hpp"
#include "strategies/codec.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"
#include "transport/control/message.hpp"
#include "transport/identity/identity.hpp"

extern char** environ;

using namespace atl;
using Clock = std::chrono::steady_clock;

namespace {

pid_t coordinator_process = -1;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  if (coordinator_process > 0) {
    ::kill(coordinator_process, SIGKILL);
  }
  std::exit(1);
}

double ms_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

double cpu_seconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) {
    rest >> skipped;
  }
  double user = 0;
  double system = 0;
  rest >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double peak_mib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::strtod(line.c_str() + 6, nullptr) / 1024;
    }
  }
  return 0;
}

Digest digest_of(Round round) {
  Digest digest;
  const std::uint64_t number = round.value + 1;
  std::memcpy(digest.bytes.data(), &number, sizeof number);
  return digest;
}

struct Island {
  std::uint64_t boot = 0;  // from 1
  std::string name;
  KeyPair keys;
  void* socket = nullptr;
  Clock::time_point next_beat;
  bool welcomed = false;
  RunId run;
  Epoch epoch;
  Round committed;
  bool initialised = false;
  std::optional<Clock::time_point> ready_at;  // when it says so next
};

// All islands, in this thread.
class Islands {
 public:
  Islands(std::size_t count, const std::string& address, const std::string& coordinator_key) : context_(zmq_ctx_new()) {
    zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, static_cast<int>(count) + 16);
    for (std::size_t i = 0; i < count; ++i) {
      islands_.push_back({i + 1, "island-" + std::to_string(i), make_key_pair().value(), nullptr, {}, false, {}, {}, {}, false, {}});
    }
    address_ = address;
    coordinator_key_ = coordinator_key;
  }
  ~Islands() {
    for (Island& island : islands_) {
      if (island.socket != nullptr) {
        zmq_close(island.socket);
      }
    }
    zmq_ctx_term(context_);
  }
  [[nodiscard]] const std::vector<Island>& all() const { return islands_; }
  [[nodiscard]] std::size_t welcomed() const {
    return static_cast<std::size_t>(std::count_if(islands_.begin(), islands_.end(), [](const Island& island) { return island.welcomed; }));
  }

  // Some at a time: a coordinator bears no more strangers at once (kMostStrangers).
  void connect() {
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      if (i > 0 && i % 100 == 0) {
        run_for(std::chrono::milliseconds(500));
      }
      Island& island = islands_[i];
      island.socket = zmq_socket(context_, ZMQ_DEALER);
      const int linger = 0;
      zmq_setsockopt(island.socket, ZMQ_LINGER, &linger, sizeof linger);
      set(island.socket, ZMQ_CURVE_SERVERKEY, coordinator_key_);
      set(island.socket, ZMQ_CURVE_PUBLICKEY, island.keys.public_key);
      set(island.socket, ZMQ_CURVE_SECRETKEY, island.keys.secret_key);
      if (zmq_connect(island.socket, address_.c_str()) != 0) {
        give_up(std::string("cannot connect: ") + zmq_strerror(zmq_errno()));
      }
      polled_.push_back({island.socket, 0, ZMQ_POLLIN, 0});
      island.next_beat = begin + std::chrono::milliseconds(1000 * i / islands_.size());
      say_hello(island);
    }
  }

  void run_for(Clock::duration time) {
    const Clock::time_point end = Clock::now() + time;
    while (Clock::now() < end) {
      zmq_poll(polled_.data(), static_cast<int>(polled_.size()), 1);
      const Clock::time_point at = Clock::now();
      for (std::size_t i = 0; i < polled_.size(); ++i) {
        if ((polled_[i].revents & ZMQ_POLLIN) != 0) {
          hear(i, at);
        }
        beat(i, at);
      }
    }
  }

  std::vector<double> decisions;  // ms
  std::uint64_t commits = 0;

 private:
  static void set(void* socket, int option, const std::string& text) { zmq_setsockopt(socket, option, text.data(), text.size()); }
  static void say(const Island& island, const Message& message) {
    const Bytes frame = encode(message).value();
    zmq_send(island.socket, frame.data(), frame.size(), ZMQ_DONTWAIT);
  }
  static void say_hello(const Island& island) {
    Hello hello;
    hello.version = "0.1.0";
    hello.name = island.name;
    hello.boot = island.boot;
    hello.bulk_address = "tcp://127.0.0.1:" + std::to_string(10'000 + island.boot);
    hello.platform = "Linux x86_64, 2 cores, AVX2";
    hello.data_sets = {"corpus"};
    hello.codec_version = kCodecVersion;
    say(island, hello);
  }
  void beat(std::size_t i, Clock::time_point at) {
    Island& island = islands_[i];
    if (island.ready_at && at >= *island.ready_at) {
      island.ready_at.reset();
      say_ready(island);
    }
    if (at < island.next_beat) {
      return;
    }
    island.next_beat += std::chrono::seconds(1);
    Heartbeat heartbeat{island.boot, {}};
    IslandReport report;
    report.run = island.run;
    report.state = "training";
    report.step = Step(island.committed.value * 10);
    report.tokens_per_second = 11'000;
    if (!island.run.empty()) {
      heartbeat.reports.push_back(report);
    }
    say(island, heartbeat);
  }
  void say_ready(const Island& island) {
    const Round round = island.initialised ? island.committed.next() : Round(0);
    Ready ready;
    ready.run = island.run;
    ready.epoch = island.epoch;
    ready.round = round;
    ready.facts.tokens = 20'480;
    ready.facts.steps = 10;
    ready.digest = digest_of(island.committed);
    said_ready_ = Clock::now();
    say(island, ready);
  }
  void hear(std::size_t i, Clock::time_point at) {
    Island& island = islands_[i];
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    while (zmq_msg_recv(&frame, island.socket, ZMQ_DONTWAIT) >= 0) {
      const Result<Message> message = decode(ByteView(static_cast<const std::byte*>(zmq_msg_data(&frame)), zmq_msg_size(&frame)));
      if (message) {
        take(island, *message, at);
      }
    }
    zmq_msg_close(&frame);
  }
  void take(Island& island, const Message& message, Clock::time_point at) {
    if (std::holds_alternative<Welcome>(message)) {
      island.welcomed = true;
    } else if (const auto* refused = std::get_if<Refused>(&message)) {
      if (refused->error.code != Code::unavailable) {
        give_up("the coordinator refuses " + island.name + ": " + refused->error.why);
      }
      say_hello(island);
    } else if (const auto* invite = std::get_if<Invite>(&message)) {
      island.run = invite->run;
      island.epoch = invite->epoch;
      say_ready(island);
    } else if (const auto* membership = std::get_if<NewEpoch>(&message)) {
      island.epoch = membership->epoch;
      if (!island.ready_at) {
        say_ready(island);
      }
    } else if (const auto* exchange = std::get_if<Exchange>(&message)) {
      decisions.push_back(ms_between(said_ready_, at));
      said_exchanged_ = Clock::now();
      say(island, Exchanged{exchange->run, exchange->epoch, exchange->round, exchange->attempt, digest_of(exchange->round), 4'000'000,
                            4'000'000, 0.4});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      if (island.initialised && commit->round <= island.committed) {
        return;
      }
      if (island.initialised) {
        decisions.push_back(ms_between(said_exchanged_, at));
      }
      island.initialised = true;
      island.committed = commit->round;
      ++commits;
      if (commit->checkpoint) {
        say(island, Checkpointed{commit->run, commit->round, commit->digest, commit->digest, 7'000'000, std::nullopt});
      }
      island.ready_at = at + std::chrono::seconds(1);
    }
  }

  void* context_;
  std::string address_;
  std::string coordinator_key_;
  std::vector<Island> islands_;
  std::vector<zmq_pollitem_t> polled_;
  Clock::time_point said_ready_;
  Clock::time_point said_exchanged_;
};

pid_t start(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& text : arguments) {
    argv.push_back(text.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
    give_up("cannot start " + arguments[0]);
  }
  return pid;
}

double at_share(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
  const std::chrono::seconds time(argc > 2 ? std::atoi(argv[2]) : 60);
  const std::size_t members = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 16;
  set_log_sink([](LogLevel, std::string_view) {});
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const atl_test::TemporaryFolder folder;
  const auto state = folder.path() / "state";
  const std::string address = "tcp://127.0.0.1:" + std::to_string(20'000 + ::getpid() % 20'000);
  if (const Status made = coordinator::init_coordinator(state, {"bench", address, address}); !made) {
    give_up(made.error().why);
  }
  Islands islands(count, address, read_key_file(coordinator::coordinator_key_file(state)).value().public_key);
  {
    coordinator::Ledger ledger = coordinator::Ledger::open(state).value();
    coordinator::Admission admission = coordinator::Admission::load(ledger.database()).value();
    for (const Island& island : islands.all()) {
      if (const Status admitted = admission.admit(island.keys.public_key, coordinator::Role::island, island.name, now()); !admitted) {
        give_up(admitted.error().why);
      }
    }
  }
  std::string names;
  for (std::size_t i = 0; i < members; ++i) {
    names += (i == 0 ? "\"" : ", \"") + islands.all()[i].name + "\"";
  }
  const auto file = folder.write("run.toml",
                                 "[run]\nname = \"scale\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = "
                                 "\"corpus\"\n[training]\nsteps = 10000000\n[strategy]\n"
                                 "inner_steps = 10\n[islands]\nmin = " +
                                     std::to_string(members) + "\nmax = " + std::to_string(members) + "\nnames = [" + names + "]\n");
  coordinator_process = start({ATOLL_BENCH_PROGRAM, "coordinator", "--state", state.string(), "--log-level", "error"});
  islands.run_for(std::chrono::seconds(1));
  islands.connect();
  for (int i = 0; i < 120 && islands.welcomed() < count; ++i) {
    islands.run_for(std::chrono::seconds(1));
  }
  if (islands.welcomed() < count) {
    give_up("only " + std::to_string(islands.welcomed()) + " of " + std::to_string(count) + " islands were welcomed");
  }
  const pid_t submit = start({ATOLL_BENCH_PROGRAM, "submit", file.string(), "-q", "--state", state.string()});
  islands.run_for(std::chrono::seconds(5));
  int status = 0;
  ::waitpid(submit, &status, 0);
  islands.decisions.clear();
  const std::uint64_t commits = islands.commits;
  const double cpu = cpu_seconds(coordinator_process);
  const Clock::time_point begin = Clock::now();
  islands.run_for(time);
  const double seconds = ms_between(begin, Clock::now()) / 1000;
  const double share = (cpu_seconds(coordinator_process) - cpu) / seconds;
  double load = 0;
  (void)::getloadavg(&load, 1);
  std::printf("%zu islands, a heartbeat each second; %zu of them in a run; %.0f s; load %.1f\n", count, members, seconds, load);
  std::printf("coordinator: %.1f %% of one core, %.1f MiB at the peak\n", share * 100, peak_mib(coordinator_process));
  std::printf("%llu rounds, %zu decisions: median %.2f ms, p99 %.2f ms, longest %.2f ms\n",
              static_cast<unsigned long long>((islands.commits - commits) / members), islands.decisions.size(),
              at_share(islands.decisions, 0.5), at_share(islands.decisions, 0.99), at_share(islands.decisions, 1));
  ::kill(coordinator_process, SIGTERM);
  ::waitpid(coordinator_process, &status, 0);
  return islands.decisions.empty() ? 1 : 0;
}

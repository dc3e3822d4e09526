// The module's entries: arguments, signals and exceptions; the work is elsewhere.
#include "agent/trainer/module.hpp"

#include <torch/version.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/island_link/trainer_link.hpp"
#include "agent/trainer/bench.hpp"
#include "agent/trainer/conversation.hpp"
#include "agent/trainer/diffusion/sample.hpp"
#include "agent/trainer/language/generate.hpp"
#include "agent/trainer/torch_runtime.hpp"

namespace atl {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInternal = 70;

void complain(const std::string& why) { std::fprintf(stderr, "trainer: %s\n", why.c_str()); }

std::vector<std::string> arguments_of(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    arguments.emplace_back(argv[i]);
  }
  return arguments;
}

// SIGTERM ends the trainer at once, whatever the process that started it had arranged; Ctrl-C is the agent's affair.
void set_signals() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file size is an error of the write, as a full disk is
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

int serve(const std::vector<std::string>& arguments) {
  const char* variable = std::getenv(island_link::kLinkVariable);
  std::string path = variable == nullptr ? "" : variable;
  if (arguments.size() == 2 && arguments[0] == "--link") {
    path = arguments[1];
  } else if (!arguments.empty()) {
    complain("it takes --link PATH and nothing else");
    return kUsage;
  }
  if (path.empty()) {
    complain(std::string("no agent: give --link PATH or set ") + island_link::kLinkVariable + " (trainers are started by an agent)");
    return kUsage;
  }
  set_signals();
  if (!island_link::die_with_parent()) {
    complain("the agent that started it is gone");
    return kFailed;
  }
  auto link = island_link::TrainerLink::connect(path);
  if (!link) {
    complain(link.error().why);
    return kFailed;
  }
  Conversation conversation(std::move(*link));
  if (const Status status = conversation.run(); !status) {
    complain(status.error().why);
    return kFailed;
  }
  return 0;
}

template <typename Body>
int guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    complain(thrown.what());
    return kInternal;
  }
}

}  // namespace

}  // namespace atl

const char* atoll_trainer_misfit(const char* program) {
  static std::string why;
  if (const std::string loaded = atl::version_of_libtorch(); !std::string_view(TORCH_VERSION).starts_with(loaded)) {
    why = "it was made for LibTorch " TORCH_VERSION ", and " + loaded + " is there";
  } else if (std::string_view(program) != ATOLL_VERSION) {
    why = std::string("it is of atoll " ATOLL_VERSION ", and this is ") + program;
  }
  return why.empty() ? nullptr : why.c_str();
}

int atoll_trainer_main(int argc, const char* const* argv) {
  return atl::guarded([&] { return atl::serve(atl::arguments_of(argc, argv)); });
}

int atoll_trainer_facts_main(int, const char* const*) {
  return atl::guarded([] {
    std::printf("%s\n%d %zu\n", atl::computes_with().c_str(), atl::built_for_gpus() ? 1 : 0, atl::usable_gpus());
    return 0;
  });
}

int atoll_generate_main(int argc, const char* const* argv) {
  return atl::guarded([&] { return atl::generate(atl::arguments_of(argc, argv)); });
}

int atoll_sample_main(int argc, const char* const* argv) {
  return atl::guarded([&] { return atl::sample(atl::arguments_of(argc, argv)); });
}

int atoll_trainer_bench_main(int argc, const char* const* argv) {
  return atl::guarded([&] { return atl::bench(atl::arguments_of(argc, argv)); });
}

// How fast the trainer's loop is (agent/trainer/bench.cpp), through the module as `atoll trainer` loads it, for trainer_bench.py, which
// compares it with PyTorch. Arguments are handed on: bench_trainer --steps 5 --threads 1 …
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "cli/settings/trainer_module.hpp"

int main(int argc, char** argv) {
  const atl::Environment environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "ATOLL_TRAINER_MODULE") {
      return ATOLL_BENCH_MODULE;
    }
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto status = atl::call_trainer_module(environment, "atoll_trainer_bench_main", "bench_trainer", {argv + 1, argv + argc});
  if (!status) {
    std::fprintf(stderr, "%s\n", status.error().why.c_str());
    return 70;
  }
  return *status;
}

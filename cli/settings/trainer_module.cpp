#include "cli/settings/trainer_module.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

constexpr const char* kModule = "atoll_trainer.so";
constexpr const char* kRemedy =
    "; `python -m atoll.build_trainer` makes one for the PyTorch of an environment with Atoll's wheel, `cmake -DATOLL_TORCH=…` in a clone";
using Entry = int (*)(int, const char* const*);
using Misfit = const char* (*)(const char*);

Result<std::filesystem::path> find_module(const Environment& environment) {
  std::string tried;
  for (const std::filesystem::path& place : trainer_module_places(environment)) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place, error)) {
      return place;
    }
    tried += (tried.empty() ? "" : ", ") + place.string();
  }
  return Error{Code::not_found, "the built-in trainer is not installed (no file " + tried + ")" + kRemedy};
}

}  // namespace

std::vector<std::filesystem::path> trainer_module_places(const Environment& environment) {
  if (const auto set = environment("ATOLL_TRAINER_MODULE"); set && !set->empty()) {
    return {*set};
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::filesystem::path> places = {folder / kModule, (folder / "../lib/atoll" / kModule).lexically_normal()};
  const std::filesystem::path installed = (folder / ".." / ATOLL_LIBRARY_FOLDER / kModule).lexically_normal();
  if (std::ranges::find(places, installed) == places.end()) {
    places.push_back(installed);
  }
  return places;
}

Result<int> call_trainer_module(const Environment& environment, const std::string& entry, const std::string& name,
                                const std::vector<std::string>& arguments) {
  ATOLL_ASSIGN(const std::filesystem::path path, find_module(environment));
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* why = ::dlerror();
    return Error{Code::unavailable, "the built-in trainer cannot be loaded: " + printable(why == nullptr ? path.string() : why, 400) +
                                        " (is the LibTorch that it was made for still there?)" + kRemedy};
  }
  const auto misfit = reinterpret_cast<Misfit>(::dlsym(module, "atoll_trainer_misfit"));
  const char* unfit = misfit == nullptr ? "it is of another version of Atoll" : misfit(ATOLL_VERSION);
  if (unfit != nullptr) {
    return Error{Code::unavailable, path.string() + " is not this program's built-in trainer: " + printable(unfit, 400) + kRemedy};
  }
  const auto function = reinterpret_cast<Entry>(::dlsym(module, entry.c_str()));
  if (function == nullptr) {
    return Error{Code::unavailable, path.string() + " is not this program's built-in trainer: it has no " + entry};
  }
  std::vector<const char*> argv = {name.c_str()};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  argv.push_back(nullptr);
  // The module stays loaded: LibTorch's threads outlive the call.
  return function(static_cast<int>(argv.size()) - 1, argv.data());
}

}  // namespace atl

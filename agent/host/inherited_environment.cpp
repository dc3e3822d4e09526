#include "agent/host/inherited_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace atl::agent {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}
template <std::size_t N>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, N>& beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

}  // namespace

bool is_secret_variable(std::string_view name, std::string_view value) {
  static constexpr std::array<std::string_view, 6> kNames = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",  "AWS_SESSION_TOKEN",
                                                             "ATOLL_STORE_TOKEN", "ATOLL_STORE_TOKEN_FILE", "ATOLL_JOIN_TOKEN"};
  static constexpr std::array<std::string_view, 6> kProxies = {"all_proxy",   "ALL_PROXY",  "https_proxy",
                                                               "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"};
  return is_one_of(name, kNames) || (is_one_of(name, kProxies) && value.find('@') != std::string_view::npos);
}

bool is_group_variable(std::string_view name) {
  static constexpr std::array<std::string_view, 20> kNames = {
      "WORLD_SIZE",      "RANK",         "LOCAL_RANK",   "LOCAL_WORLD_SIZE",      "GROUP_RANK",      "GROUP_WORLD_SIZE", "ROLE_RANK",
      "ROLE_WORLD_SIZE", "NODE_RANK",    "CROSS_RANK",   "MASTER_ADDR",           "MASTER_PORT",     "SLURM_PROCID",     "SLURM_LOCALID",
      "SLURM_NODEID",    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  static constexpr std::array<std::string_view, 6> kBeginnings = {"TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_",
                                                                  "PMIX_",         "MV2_COMM_WORLD_",  "SLURM_STEP"};
  return is_one_of(name, kNames) || begins_with_one_of(name, kBeginnings);
}

bool is_launcher(std::string_view program) {
  static constexpr std::array<std::string_view, 10> kNames = {"srun",     "mpirun",     "mpiexec",   "orterun", "prterun",
                                                              "torchrun", "accelerate", "deepspeed", "jsrun",   "horovodrun"};
  return is_one_of(program.substr(program.rfind('/') + 1), kNames);
}

std::vector<std::string> group_variables_here() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (const std::string_view name = text.substr(0, text.find('=')); is_group_variable(name)) {
      names.emplace_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace atl::agent

#include "agent/host/blas_kernels.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace atl {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kTrainerPatience = std::chrono::seconds(20);
constexpr std::size_t kMostText = 4096;

// How wide the vectors of OpenBLAS' kernels for a processor are.
enum class Vectors { sse, avx, avx2, avx512 };

struct KnownKernels {
  std::string_view name;  // lower case
  Vectors vectors;
};
// Excavator's use 128 bits of its AVX2, which is what that processor has units for. Names that are not here are newer than this list.
constexpr auto kKnown = std::to_array<KnownKernels>({
    {"generic", Vectors::sse},     {"katmai", Vectors::sse},        {"coppermine", Vectors::sse},
    {"northwood", Vectors::sse},   {"prescott", Vectors::sse},      {"banias", Vectors::sse},
    {"atom", Vectors::sse},        {"core2", Vectors::sse},         {"penryn", Vectors::sse},
    {"dunnington", Vectors::sse},  {"nehalem", Vectors::sse},       {"athlon", Vectors::sse},
    {"opteron", Vectors::sse},     {"opteron_sse3", Vectors::sse},  {"barcelona", Vectors::sse},
    {"bobcat", Vectors::sse},      {"nano", Vectors::sse},          {"sandybridge", Vectors::avx},
    {"bulldozer", Vectors::avx},   {"piledriver", Vectors::avx},    {"steamroller", Vectors::avx},
    {"excavator", Vectors::avx2},  {"haswell", Vectors::avx2},      {"zen", Vectors::avx2},
    {"skylakex", Vectors::avx512}, {"cooperlake", Vectors::avx512}, {"sapphirerapids", Vectors::avx512},
});

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::optional<Vectors> vectors_of(std::string_view kernels) {
  const auto found = std::ranges::find(kKnown, lower(kernels), &KnownKernels::name);
  return found == kKnown.end() ? std::nullopt : std::optional(found->vectors);
}

// "0.3.21" before "0.3.0"? Numbers, part by part; what is no number counts as 0.
bool older(std::string_view version, const std::array<int, 3>& than) {
  std::array<int, 3> parts{};
  std::size_t part = 0;
  for (const char c : version) {
    if (c == '.') {
      if (++part == parts.size()) {
        break;
      }
    } else if (c >= '0' && c <= '9' && parts[part] < 100'000) {
      parts[part] = parts[part] * 10 + (c - '0');
    } else {
      break;
    }
  }
  return parts < than;
}

// In the child: three lines (configuration, kernels, file) on `out`, and the end.
[[noreturn]] void tell_of_blas(const char* core_type, int out) {
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDOUT_FILENO);
  ::dup2(nothing, STDERR_FILENO);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  if (*core_type != '\0') {
    ::setenv(kCoreTypeVariable, core_type, 1);
  }
  void* library = ::dlopen("libblas.so.3", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    ::_exit(1);
  }
  const auto text_of = [library](const char* name) -> std::string {
    const auto function = reinterpret_cast<const char* (*)()>(::dlsym(library, name));
    const char* text = function == nullptr ? nullptr : function();
    return text == nullptr ? "" : text;
  };
  std::string told = text_of("openblas_get_config") + "\n" + text_of("openblas_get_corename") + "\n";
  Dl_info where{};
  void* product = ::dlsym(library, "sgemm_");
  if (product != nullptr && ::dladdr(product, &where) != 0 && where.dli_fname != nullptr) {
    char* real = ::realpath(where.dli_fname, nullptr);
    told += real == nullptr ? where.dli_fname : real;
  }
  told += "\n";
  told.resize(std::min(told.size(), kMostText));  // a pipe takes that much at once
  [[maybe_unused]] const ssize_t written = ::write(out, told.data(), told.size());
  ::_exit(0);
}

// What the child says until it ends or time is over: its end is the end of what can be read.
std::string read_all(int in, std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::string text;
  std::array<char, kMostText> piece{};
  while (text.size() < kMostText) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd watched{in, POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    const ssize_t count = ready > 0 ? ::read(in, piece.data(), piece.size()) : 0;
    if (count <= 0) {
      break;
    }
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      lines.back() += c;
    }
  }
  return lines;
}

// What a child process that runs `body`, which does not return, writes to the descriptor that it is given.
template <typename Body>
std::vector<std::string> lines_of_child(std::chrono::seconds patience, const Body& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return lines_of("");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    body(ends[1]);
    ::_exit(1);
  }
  ::close(ends[1]);
  std::string text;
  if (child > 0) {
    text = read_all(ends[0], patience);
    ::kill(child, SIGKILL);  // it has ended or hangs
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(ends[0]);
  return lines_of(text);
}

std::string list_of(const std::vector<std::string>& gpus) {
  const bool alike = std::ranges::all_of(gpus, [&](const std::string& gpu) { return gpu == gpus.front(); });
  std::string text = gpus.size() > 1 && alike ? std::to_string(gpus.size()) + " × " + gpus.front() : "";
  for (std::size_t i = 0; text.empty() || (!alike && i < gpus.size()); ++i) {
    text += (i == 0 ? "" : ", ") + gpus[i];
  }
  return text;
}

BlasFacts facts_of(const std::vector<std::string>& lines) {
  BlasFacts facts;
  if (lines.size() < 3) {
    return facts;
  }
  const std::string& configuration = lines[0];  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Cooperlake MAX_THREADS=64"
  facts.file = lines[2];
  constexpr std::string_view kName = "OpenBLAS ";
  if (configuration.starts_with(kName)) {
    facts.version = configuration.substr(kName.size(), configuration.find(' ', kName.size()) - kName.size());
    facts.kernels = lines[1];
    facts.chooses = configuration.find("DYNAMIC_ARCH") != std::string::npos;
  }
  return facts;
}

}  // namespace

ProcessorFacts this_processor() {
  ProcessorFacts facts;
#if defined(__x86_64__)
  __builtin_cpu_init();
  facts.amd = __builtin_cpu_is("amd") != 0;
  facts.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  facts.avx512 = facts.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return facts;
}

BlasFacts probe_blas(const std::string& core_type) {
  return facts_of(lines_of_child(kPatience, [&](int out) { tell_of_blas(core_type.c_str(), out); }));
}

AskedTrainer::AskedTrainer(const std::string& program) : until_(std::chrono::steady_clock::now() + kTrainerPatience) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return;
  }
  in_ = FileDescriptor(ends[0]);
  const FileDescriptor out(ends[1]);
  child_ = ::fork();
  if (child_ == 0) {
    const int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(out.get(), STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
    ::unsetenv("ATOLL_ISLAND_LINK");
    ::execl(program.c_str(), "atoll", "trainer", "--facts", nullptr);
    ::_exit(1);
  }
}

AskedTrainer::~AskedTrainer() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);  // it has ended or hangs
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::optional<TrainerFacts> AskedTrainer::take() {
  std::array<char, kMostText> piece{};
  ssize_t count = 0;
  while (in_.is_open() && text_.size() < kMostText && (count = ::read(in_.get(), piece.data(), piece.size())) > 0) {
    text_.append(piece.data(), static_cast<std::size_t>(count));
  }
  const bool more = in_.is_open() && count < 0 && (errno == EAGAIN || errno == EINTR);
  if (more && std::chrono::steady_clock::now() < until_) {
    return std::nullopt;
  }
  TrainerFacts facts;
  if (const std::vector<std::string> lines = lines_of(text_); lines.size() == 3 && lines[0].starts_with("LibTorch ")) {
    facts.text = lines[0];
    std::istringstream(lines[1]) >> facts.for_gpus >> facts.gpus;
  }
  return facts;
}

TrainerFacts ask_trainer(const std::string& program) {
  AskedTrainer asked(program);
  std::optional<TrainerFacts> facts;
  while (!(facts = asked.take())) {
    pollfd watched{asked.fd(), POLLIN, 0};
    ::poll(&watched, 1, 1000);
  }
  return *facts;
}

std::vector<std::string> gpus_of(const std::filesystem::path& driver) {
  std::vector<std::string> models;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(driver / "gpus", failure)) {
    std::string model = "NVIDIA GPU";
    std::ifstream information(entry.path() / "information");  // "Model: \t\t NVIDIA H100 80GB HBM3"
    for (std::string line; std::getline(information, line);) {
      if (const std::size_t name = line.find_first_not_of(" \t", 6); line.starts_with("Model:") && name != std::string::npos) {
        model = line.substr(name, 128);
      }
    }
    models.push_back(model);
  }
  std::ranges::sort(models);
  return models;
}

std::string computes_text(const TrainerFacts& trainer, const Kernels& kernels, const std::vector<std::string>& gpus) {
  if (trainer.text.empty()) {
    return kernels.text;
  }
  const std::size_t reason = kernels.text.find(" (");
  const bool chosen = trainer.text.find(", OpenBLAS ") != std::string::npos && reason != std::string::npos;
  const std::string text = trainer.text + (chosen ? kernels.text.substr(reason) : "");
  if (trainer.gpus > 0) {
    return text + ", on " + (gpus.size() == trainer.gpus ? list_of(gpus) : std::to_string(trainer.gpus) + " of this machine's GPUs");
  }
  return text + ", on the processor" + (gpus.empty() ? "" : " although there is a GPU: " + list_of(gpus));
}

std::string idle_gpus_text(const TrainerFacts& trainer, const std::vector<std::string>& gpus) {
  if (trainer.text.empty() || trainer.gpus > 0 || gpus.empty()) {
    return "";
  }
  const std::string library = trainer.text.substr(0, trainer.text.find_first_of(" ,", std::string_view("LibTorch ").size()));
  return "the built-in trainer trains on the processor although there is a GPU (" + list_of(gpus) + "): " +
         (trainer.for_gpus ? library + " sees none; look at CUDA_VISIBLE_DEVICES, and whether nvidia-smi works for this user"
                           : "its " + library +
                                 " is for processors alone (pip install torch, and build it with cmake --preset product "
                                 "-DATOLL_TORCH=python)");
}

KernelChoice decide_kernels(const ProcessorFacts& processor, const BlasFacts& blas, const std::optional<std::string>& set) {
  if (set) {
    return {"", std::string(kCoreTypeVariable) + "=" + *set + " is set"};
  }
  if (blas.version.empty()) {
    return {"", ""};
  }
  if (!blas.chooses) {
    return {"", "it was built for these alone"};
  }
  const std::optional<Vectors> own = vectors_of(blas.kernels);
  // Kernels for AVX-512 came with OpenBLAS 0.3.0.
  const bool avx512 = processor.avx512 && !older(blas.version, {0, 3, 0});
  const Vectors best = avx512 ? Vectors::avx512 : processor.avx2 ? Vectors::avx2 : Vectors::sse;
  if (!own || *own >= best) {
    return {"", "its own choice"};
  }
  const std::string by_itself = "by itself it takes " + blas.kernels + " kernels, and this processor has ";
  if (avx512) {
    return {"SKYLAKEX", by_itself + "AVX-512"};
  }
  return {processor.amd ? "ZEN" : "HASWELL", by_itself + "AVX2 and FMA"};
}

std::string blas_text(const BlasFacts& blas) {
  if (!blas.version.empty()) {
    return "OpenBLAS " + blas.version + " with " + blas.kernels + " kernels";
  }
  return blas.file.empty() ? "no BLAS of the system" : "a BLAS that is not OpenBLAS: " + blas.file;
}

bool is_reference_blas(const BlasFacts& blas) {
  const std::filesystem::path file(blas.file);
  const std::string folder = file.parent_path().filename().string();
  return blas.version.empty() && file.filename().string().starts_with("libblas.so") && !folder.starts_with("blis") &&
         !folder.starts_with("atlas");
}

Kernels choose_kernels(const std::optional<std::string>& set) {
  BlasFacts blas = probe_blas();
  KernelChoice choice = decide_kernels(this_processor(), blas, set);
  if (!choice.core_type.empty()) {
    const BlasFacts told = probe_blas(choice.core_type);
    if (lower(told.kernels) == lower(choice.core_type)) {
      blas = told;
    } else {
      choice = {"", choice.reason + ", but it was built without " + choice.core_type + " kernels"};
    }
  }
  return {choice.core_type, blas_text(blas) + (choice.reason.empty() ? "" : " (" + choice.reason + ")")};
}

}  // namespace atl

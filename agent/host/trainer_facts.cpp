#include "agent/host/trainer_facts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace atl {
namespace {

constexpr auto kTrainerPatience = std::chrono::seconds(20);
constexpr std::size_t kMostText = 4096;

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

std::string list_of(const std::vector<std::string>& gpus) {
  const bool alike = std::ranges::all_of(gpus, [&](const std::string& gpu) { return gpu == gpus.front(); });
  std::string text = gpus.size() > 1 && alike ? std::to_string(gpus.size()) + " × " + gpus.front() : "";
  for (std::size_t i = 0; text.empty() || (!alike && i < gpus.size()); ++i) {
    text += (i == 0 ? "" : ", ") + gpus[i];
  }
  return text;
}

}  // namespace

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

std::string computes_text(const TrainerFacts& trainer, const std::vector<std::string>& gpus) {
  if (trainer.text.empty()) {
    return "";
  }
  if (trainer.gpus > 0) {
    return trainer.text + ", on " +
           (gpus.size() == trainer.gpus ? list_of(gpus) : std::to_string(trainer.gpus) + " of this machine's GPUs");
  }
  return trainer.text + ", on the processor" + (gpus.empty() ? "" : " although there is a GPU: " + list_of(gpus));
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

bool has_slow_blas(const TrainerFacts& trainer) {
  constexpr std::string_view kOther = "a BLAS that is not OpenBLAS: ";  // agent/trainer/torch_runtime says so
  const std::size_t at = trainer.text.find(kOther);
  if (at == std::string::npos) {
    return false;
  }
  const std::filesystem::path file(trainer.text.substr(at + kOther.size()));
  const std::string folder = file.parent_path().filename().string();
  return file.filename().string().starts_with("libblas.so") && !folder.starts_with("blis") && !folder.starts_with("atlas");
}

}  // namespace atl

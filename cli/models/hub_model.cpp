#include "cli/models/hub_model.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "agent/host/inherited_environment.hpp"
#include "cli/models/asked_program.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

// Its last line is the folder, or why there is none. What is beside the weights (a tokenizer) is small; copies of them in other formats
// are not fetched.
constexpr const char* kFetch = R"(
import sys
sys.path = [place for place in sys.path if place]
try:
    from huggingface_hub import snapshot_download
except ImportError as why:
    print(why)
    sys.exit(3)
try:
    print(snapshot_download(sys.argv[1], revision=sys.argv[2], allow_patterns=["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"],
                            ignore_patterns=["*/*", "consolidated*"]))
except Exception as why:
    print(" ".join(f"{type(why).__name__}: {why}".split()))
    sys.exit(1)
)";
constexpr int kNoLibrary = 3;

// This process's, without secrets that are not the hub's. A proxy's user is: the hub may be behind it.
std::vector<std::string> environment_for_the_hub() {
  std::vector<std::string> variables = own_environment();
  std::erase_if(variables,
                [](const std::string& variable) { return agent::is_secret_variable(variable.substr(0, variable.find('=')), ""); });
  if (::isatty(STDERR_FILENO) == 0) {
    variables.emplace_back("HF_HUB_DISABLE_PROGRESS_BARS=1");
  }
  return variables;
}

std::string last_line_of(ByteView out) {
  std::string text(as_text(out));
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Result<std::filesystem::path> fetch_hub_model(const HubModel& model, const Environment& environment, Duration patience) {
  const std::string python = environment("ATOLL_PYTHON").value_or("python3");
  const Result<ProgramAnswer> answer =
      ask_program({python, "-c", kFetch, model.repository, model.revision}, {}, environment_for_the_hub(), ProgramTalk::shown, patience);
  const std::string advice = ": pip install huggingface_hub, and name its Python: ATOLL_PYTHON=/path/to/python3";
  if (!answer) {
    return answer.error().code == Code::not_found
               ? Error{Code::not_found, "models of the hub are fetched by huggingface_hub, and '" + python + "' cannot be started (" +
                                            answer.error().why + ")" + advice}
               : with_context(answer.error(), python + " with huggingface_hub");
  }
  const std::string line = last_line_of(answer->out);
  if (answer->status == kNoLibrary) {
    return Error{Code::not_found,
                 "'" + python + "' has no huggingface_hub, which fetches models of the hub (" + printable(line) + ")" + advice};
  }
  std::filesystem::path folder = line.empty() ? std::filesystem::path() : std::filesystem::absolute(line);
  if (answer->status != 0) {
    return Error{Code::unavailable, "huggingface_hub: " + (line.empty() ? "it ended without a word" : printable(line, 400))};
  }
  if (!is_commit(folder.filename().string())) {
    return Error{Code::internal, "huggingface_hub gives '" + printable(line) + "', which is no folder of a commit"};
  }
  return folder;
}

}  // namespace atl

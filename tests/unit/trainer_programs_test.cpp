// The training programs that an island's owner names: words without a shell, and what is refused.
#include "agent/host/trainer_programs.hpp"

#include "tests/catch.hpp"

namespace of_trainer_programs_test {

using namespace atl;
using namespace atl::agent;

namespace {

std::string refusal(const TrainerOptions& options) {
  const Result<TrainerPrograms> programs = trainer_programs(options, "/bin");
  return programs ? "" : programs.error().why;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what an owner writes wrong about a trainer is refused with the option and what is wrong") {
  CHECK(refusal({{"gpt=sh train.sh"}, {"gpt=A=b=c"}, {"gpt=/"}}).empty());
  CHECK(refusal({{"gpt=attach"}, {}, {}}).empty());
  CHECK(contains(refusal({{"gpt=attach"}, {"gpt=A=b"}, {}}), "no --trainer gpt=COMMAND"));
  CHECK(contains(refusal({{"gpt"}, {}, {}}), "'gpt' is not NAME=COMMAND"));
  CHECK(contains(refusal({{"../gpt=sh"}, {}, {}}), "is not NAME=COMMAND"));
  CHECK(contains(refusal({{"gpt=sh", "gpt=cat"}, {}, {}}), "given twice"));
  CHECK(contains(refusal({{"gpt=nosuchprogram"}, {}, {}}), "there is no program 'nosuchprogram'"));
  CHECK(contains(refusal({{"gpt=/etc/passwd"}, {}, {}}), "there is no program /etc/passwd"));
  CHECK(contains(refusal({{"gpt=sh"}, {"bert=A=b"}, {}}), "no --trainer bert=COMMAND"));
  CHECK(contains(refusal({{"gpt=sh"}, {"gpt=AB"}, {}}), "is not NAME=KEY=VALUE"));
  CHECK(contains(refusal({{"gpt=sh"}, {}, {"gpt=/no/such/folder"}}), "there is no folder /no/such/folder"));
}

}  // namespace of_trainer_programs_test

// Programs that are asked for one answer, and those that give none.
#include "cli/models/asked_program.hpp"

#include "tests/catch.hpp"

namespace of_asked_program_test {

using namespace atl;

namespace {

Result<ProgramAnswer> ask(std::vector<std::string> words, Duration patience = std::chrono::minutes(1),
                          std::vector<std::string> environment = {}) {
  return ask_program(std::move(words), as_bytes(std::string_view("given")), std::move(environment), ProgramTalk::kept, patience);
}

}  // namespace

TEST_CASE("a program that is asked gets its input and variables alone, and its words and status come back") {
  const Result<ProgramAnswer> answer =
      ask({"sh", "-c", "cat; echo \"$WORD $HOME\"; echo said >&2; exit 7"}, std::chrono::minutes(1), {"WORD=x"});
  REQUIRE(answer);
  CHECK(answer->status == 7);
  CHECK(as_text(answer->out) == "givenx \n");
  CHECK(as_text(answer->said) == "said\n");
  CHECK(ask({"sh", "-c", "kill -9 $$"})->status == -1);
  CHECK(ask({"/nonexistent/program"}).error() == Error{Code::not_found, "No such file or directory"});
}

TEST_CASE("a program that does not end is ended") {
  const Result<ProgramAnswer> late = ask({"sh", "-c", "trap '' TERM; sleep 600 & wait"}, std::chrono::milliseconds(50));
  CHECK(late.error().code == Code::timeout);
}

}  // namespace of_asked_program_test

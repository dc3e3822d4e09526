// The words of a command: split as a shell would, and nothing in them means anything else.
#include "agent/host/command_words.hpp"

#include "tests/catch.hpp"

namespace of_command_words_test {

using namespace atl;

TEST_CASE("a command is split as a shell would, and no shell is there to make anything of it") {
  using Words = std::vector<std::string>;
  CHECK(split_command("torchrun --nproc-per-node 8 /srv/train.py").value() == Words{"torchrun", "--nproc-per-node", "8", "/srv/train.py"});
  CHECK(split_command("  a\t'b c' \"d 'e'\" f\\ g ''").value() == Words{"a", "b c", "d 'e'", "f g", ""});
  CHECK(split_command("a'b'\"c\"d").value() == Words{"abcd"});
  CHECK(split_command("echo $HOME; rm -rf * | cat > x").value() == Words{"echo", "$HOME;", "rm", "-rf", "*", "|", "cat", ">", "x"});
  CHECK_FALSE(split_command("").has_value());
  CHECK_FALSE(split_command("   ").has_value());
  CHECK(split_command("a 'b").error().why.find("a quote that does not end") != std::string::npos);
}

}  // namespace of_command_words_test

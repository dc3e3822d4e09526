// Stands where the trainer's module stands, to test how it is found and called: its exit codes tell what it was given.
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" const char* atoll_trainer_misfit(const char* program) {
  return *program == '\0' ? "no version" : std::getenv("ATOLL_TEST_MISFIT");
}

extern "C" int atoll_trainer_main(int argc, const char* const* argv) {
  if (std::strcmp(argv[0], "trainer") != 0 || argv[argc] != nullptr || (argc == 2 && std::strcmp(argv[1], "fail") == 0)) {
    return 1;
  }
  return 40 + argc;
}

extern "C" int atoll_generate_main(int argc, const char* const* argv) {
  if (std::strcmp(argv[0], "generate") != 0 || std::strcmp(argv[1], "--model") != 0) {
    return 1;
  }
  std::FILE* model = std::fopen(argv[2], "rb");
  const bool readable = model != nullptr && std::fgetc(model) != EOF;
  if (model != nullptr) {
    std::fclose(model);
  }
  return readable ? 20 + argc : 2;
}

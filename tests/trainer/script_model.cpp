#include "tests/trainer/script_model.hpp"

#include <torch/csrc/jit/api/module.h>

namespace atl_test {

void write_script_model(const std::string& path, const std::string& result) {
  torch::jit::Module module("features");
  module.define("def forward(self, x: Tensor):\n  return " + result + "\n");
  module.save(path);
}

}  // namespace atl_test

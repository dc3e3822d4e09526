// What a run trains follows from its trainer and the format of its data, and everything else from that.
#include "strategies/specification/model_kind.hpp"

#include "tests/catch.hpp"

namespace of_model_kind_test {

using namespace atl;

TEST_CASE("model kind: by the format of the data, and the model of an own trainer whatever that says", "[specification]") {
  RunSpec spec;
  spec.training.batch = 8;
  spec.training.sequence_length = 32;
  spec.trainer.tokens_per_sample = 5;
  for (const std::string_view format : kDataFormats) {
    INFO(format);
    spec.trainer.name.clear();
    spec.data.format = format;
    const bool tokens = format == "bytes" || format == "uint16" || format == "uint32";
    CHECK(model_kind(spec) == (tokens ? ModelKind::language : ModelKind::diffusion));
    CHECK(tokens_per_sequence(spec) == (tokens ? 32 : 1));
    CHECK(most_tokens_per_step(spec) == (tokens ? 8 * 32 : 0));
    CHECK(model_parameter_bytes(spec) > 0);
    spec.trainer.name = "gpt";
    CHECK(model_kind(spec) == ModelKind::own);
    CHECK(tokens_per_sequence(spec) == 5);
    CHECK(most_tokens_per_step(spec) == 0);
    CHECK(model_parameter_bytes(spec) == 0);
  }
}

}  // namespace of_model_kind_test

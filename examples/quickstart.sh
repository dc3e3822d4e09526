#!/bin/sh
# From a fresh clone to a trained language model: installs what is missing, builds, trains with DiLoCo on three islands on this
# machine (about three minutes on two cores), prints what it cost, exports the model and lets it write.
#   examples/quickstart.sh [RUN.toml]
set -eu
cd "$(dirname "$0")/.."

examples/install-packages.sh
cmake --preset product >/dev/null
cmake --build build/product -j "$(nproc)"
atoll=build/product/atoll
where=build/quickstart
rm -rf "$where"

"$atoll" local "${1:-examples/quickstart.toml}" --islands 3 --state "$where" --export "$where/model.safetensors"

echo
echo "the model writes:"
"$atoll" generate --model "$where/model.safetensors" --prompt "namespace std {" --tokens 400 --temperature 0.7 --top-k 40 --seed 1
echo
echo "see it: $atoll coordinator --state $where/coordinator --web 127.0.0.1:4480, then open http://127.0.0.1:4480/"
echo "model: $where/model.safetensors; try: $atoll generate --model $where/model.safetensors --prompt \"template <\""

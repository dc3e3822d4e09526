#!/bin/sh
# From a fresh clone to a trained language model: installs what is missing, builds, trains with DiLoCo on three islands on this
# machine (about three minutes on two cores), prints what it cost, exports the model, lets it write, and on a terminal shows the run in
# a browser until Ctrl-C.
#   examples/quickstart.sh [RUN.toml [FOLDER]]     everything lies in FOLDER, else in build/quickstart, which is made anew
# $ATOLL is a program to use instead of building one, $ATOLL_WEB where the page is served instead of 127.0.0.1:4480.
set -eu
cd "$(dirname "$0")/.."

atoll=${ATOLL:-build/product/atoll}
web=${ATOLL_WEB:-127.0.0.1:4480}
where=${2:-build/quickstart}
if [ -z "${ATOLL:-}" ]; then
  examples/install-packages.sh
  cmake --preset product >/dev/null
  cmake --build build/product -j "$(nproc)"
fi
[ -n "${2:-}" ] || rm -rf "$where"
mkdir -p "$where"

echo "watch it in a browser: http://$web/"
"$atoll" local "${1:-examples/quickstart.toml}" --islands 3 --state "$where" --export "$where/model.safetensors" --web "$web"

echo
echo "the model writes:"
"$atoll" generate --model "$where/model.safetensors" --prompt "namespace std {" --tokens 400 --temperature 0.7 --top-k 40 --seed 1
echo
echo "model: $where/model.safetensors; try: $atoll generate --model $where/model.safetensors --prompt \"template <\""
if [ -t 1 ]; then
  echo "open http://$web/ to see the run that just ended; Ctrl-C ends the page"
  exec "$atoll" coordinator --state "$where/coordinator" --web "$web" >"$where/page.log" 2>&1
fi
echo "to see the run: $atoll coordinator --state $where/coordinator --web $web, and"
echo "open http://$web/"

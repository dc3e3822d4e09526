#!/bin/sh
# Quality at equal tokens: trains the same model on the same text with one strategy after the other and prints a table row for each:
# final validation loss (outer parameters; for `local` the mean of the islands') and payload bytes each island sent.
#   tests/bench/quality.sh ATOLL TEXT STEPS 'STRATEGY INNER_STEPS LEARNING_RATE OUTER_LEARNING_RATE OUTER_MOMENTUM' …
# for example: tests/bench/quality.sh build/product/atoll input.txt 600 'data-parallel 1 3e-3 - -' 'diloco 30 3e-3 0.7 0.9' 'local 30 3e-3 - -'
# Four islands, 2,048 tokens a step and island, about 0.9 M parameters. Every summary is kept as JSON in $ATOLL_RESULTS (default: a new folder).
set -eu
atoll=$1
text=$(realpath "$2")
steps=$3
shift 3
results=${ATOLL_RESULTS:-$(mktemp -d)}
mkdir -p "$results"
echo "results in $results" >&2

for setting in "$@"; do
  # shellcheck disable=SC2086
  set -- $setting
  name="$1-h$2-steps$steps-lr$3-outer$4-$5-seed${SEED:-1}"
  file="$results/$name.toml"
  every=$((steps / 10))
  {
    printf '[run]\nname = "%s"\nseed = %s\n[model]\nlayers = 4\nwidth = 128\nheads = 4\n' "$name" "${SEED:-1}"
    printf '[data]\nset = "text"\n[training]\nsteps = %s\nbatch = 16\nsequence_length = 128\nlearning_rate = %s\nwarmup_steps = 50\nevaluate_batches = 32\nevaluate_every = %s\n' \
      "$steps" "$3" "$((every / $2 > 0 ? every / $2 : 1))"
    printf '[strategy]\nname = "%s"\n' "$1"
    [ "$1" = data-parallel ] || printf 'inner_steps = %s\n' "$2"
    [ "$4" = - ] || printf 'outer_learning_rate = %s\nouter_momentum = %s\n' "$4" "$5"
    printf '[islands]\nmin = 4\nmax = 4\ndeadline = "10m"\n[checkpoint]\nevery_rounds = 1000000\n'
  } > "$file"
  rm -rf "$results/$name.state"
  "$atoll" local "$file" --islands 4 --state "$results/$name.state" --data "text=$text" --json --log-level warning > "$results/$name.json"
  rm -rf "$results/$name.state"
  echo "$name: $(tail -n 1 "$results/$name.json" | tr -d '\n' | cut -c1-2000)"
done

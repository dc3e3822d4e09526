#!/bin/sh
# One hostile island of four: its steps climb the loss. The final validation loss of the outer parameters with the weighted mean and with
# trimmed-mean, where all are waited for and where rounds close with a quorum and one honest island is late. Needs PyTorch.
#
# Usage: tests/bench/hostile.sh PATH_TO_ATOLL TEXT [STEPS]
# From the environment: SEED ("1 2 3"), PYTHON (/usr/bin/python3), STEP_MS (60: the least time of a step).
set -eu
here=$(realpath "$(dirname "$0")")
atoll=$(realpath "$1")
TEXT=$(realpath "$2")
steps=${3:-600}
STEP_MS=${STEP_MS:-60}
PYTHONPATH=$here/../../agent/island_link/python
ATOLL_TRAINER_LIBRARY=${ATOLL_TRAINER_LIBRARY:-$(dirname "$atoll")/libatoll_trainer.so}
export TEXT STEP_MS PYTHONPATH ATOLL_TRAINER_LIBRARY
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# one NAME HOSTILE SLOW: the lines of [strategy] come from stdin
one() {
  name=$1
  export HOSTILE="$2" SLOW="$3"
  strategy=$(cat)
  losses=
  for seed in ${SEED:-1 2 3}; do
    cat > "$folder/run.toml" << END
[run]
name = "hostile"
seed = $seed
[trainer]
name = "gpt"
command = "${PYTHON:-/usr/bin/python3} $here/hostile_trainer.py"
tokens_per_sample = 64
[training]
steps = $steps
[strategy]
$strategy
outer_learning_rate = 1.0
outer_momentum = 0.0
[islands]
min = $min
max = 4
deadline = "10m"
[checkpoint]
every_rounds = 100000
END
    rm -rf "$folder/state"
    "$atoll" local "$folder/run.toml" --islands 4 --state "$folder/state" --json --log-level warning > "$folder/out" 2> "$folder/err" || cat "$folder/err"
    losses="$losses $(grep -o '"run":{.*' "$folder/out" | grep -o '"outer_loss":[0-9.e+-]*' | head -n 1 | cut -d: -f2)"
  done
  # shellcheck disable=SC2086
  echo $losses | awk -v name="$name" '{ for (i = 1; i <= NF; ++i) sum += $i; printf "%s: loss %.3f (%s)\n", name, sum / NF, $0 }'
}

diloco='name = "diloco"
inner_steps = 30'
quorum='name = "decoupled-diloco"
inner_steps = 30
fragments = 3
grace = "100ms"'
min=4
for mean in weighted-mean trimmed-mean; do
  for hostile in none island-4; do
    printf '%s\naggregator = "%s"\n' "$diloco" "$mean" | one "diloco, $mean, hostile: $hostile" "$hostile" ""
  done
done
min=3
for mean in radial-directional trimmed-mean; do
  for hostile in none island-4; do
    printf '%s\nquorum = 3\naggregator = "%s"\n' "$quorum" "$mean" | one "decoupled-diloco, quorum 3, island-3 half as fast, $mean, hostile: $hostile" "$hostile" "island-3=2"
  done
done
min=4
printf '%s\nquorum = 4\naggregator = "trimmed-mean"\n' "$quorum" | one "decoupled-diloco, quorum 4, island-3 half as fast, trimmed-mean, hostile: island-4" island-4 "island-3=2"

#!/bin/sh
# How long a round of next to nothing takes, decision included: real agents and a real coordinator around the tests' arithmetic trainer, which
# takes no time for a step. What is measured is from one commit to the next: the trainer's step, contributions, the plan, the exchange, the
# digests, the commit, the outer step and the merge.
#   tests/bench/small_rounds.sh ATOLL TRAINER_MODULE [PARAMETERS [ISLANDS [ROUNDS]]]
# for example: tests/bench/small_rounds.sh build/release/atoll build/release/tests/atoll_arithmetic_trainer.so 256 4 1000
set -eu
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
parameters=${3:-256}
islands=${4:-4}
rounds=${5:-1000}
ATOLL_TEST_HEAD=$((parameters - 200))
ATOLL_TEST_STEP_MS=0
export ATOLL_TRAINER_MODULE ATOLL_TEST_HEAD ATOLL_TEST_STEP_MS

where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
head -c 100000 /dev/zero | tr '\0' x > "$where/text"
cat > "$where/run.toml" <<EOF
[run]
name = "small"
[model]
layers = 1
width = 32
heads = 2
[data]
files = ["text"]
[training]
steps = $rounds
batch = 4
sequence_length = 16
[strategy]
inner_steps = 1
outer_momentum = 0.5
[islands]
min = $islands
max = $islands
[checkpoint]
every_rounds = 1000000
EOF
"$atoll" local "$where/run.toml" --islands "$islands" --state "$where/state" --json --log-level warning > "$where/out" 2> "$where/err" ||
  { cat "$where/err" >&2; exit 1; }
"$atoll" coordinator --state "$where/state/coordinator" --log-level error > /dev/null 2>&1 &
coordinator=$!
trap 'kill "$coordinator" 2>/dev/null; wait "$coordinator" 2>/dev/null; rm -rf "$where"' EXIT
for _ in 1 2 3 4 5 6 7 8 9 10; do
  "$atoll" events small --state "$where/state/coordinator" -o json > "$where/events" 2>/dev/null && [ -s "$where/events" ] && break
  sleep 0.5
done
# The seconds since the last commit of each round but the first, which waits for the trainers to start.
tr ',' '\n' < "$where/events" | grep -o '"seconds":[0-9.e-]*' | cut -d: -f2 | tail -n +3 | sort -g |
  awk -v p="$parameters" -v n="$islands" '{ all[NR] = $1 } END { if (NR == 0) exit 1; printf "%d parameters, %d islands, %d rounds: median %.2f ms, 0.9 of them within %.2f ms\n", p, n, NR, 1000 * all[int((NR + 1) / 2)], 1000 * all[int(NR * 0.9)] }'

#!/bin/sh
# Memory of real agents and a real coordinator over many rounds, around the tests' arithmetic trainer (whose own memory is not counted): what
# is resident now and at the peak, and how that compares with the bound of 16 bytes a parameter + 100 MiB for an agent, or 14 with its momentum
# in bf16.
#   tests/bench/memory.sh ATOLL TRAINER_MODULE [PARAMETERS [ROUNDS [OUTER_STATE]]]
# for example: tests/bench/memory.sh build/release/atoll build/release/tests/atoll_arithmetic_trainer.so 1000000 1000 bf16
set -eu
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
parameters=${3:-1000000}
rounds=${4:-1000}
outer_state=${5:-f32}
ATOLL_TEST_HEAD=$((parameters - 200))
ATOLL_TEST_STEP_MS=0
export ATOLL_TRAINER_MODULE ATOLL_TEST_HEAD ATOLL_TEST_STEP_MS

where=$(mktemp -d)
trap 'kill "$cluster" 2>/dev/null && wait "$cluster" 2>/dev/null; rm -rf "$where"' EXIT
trap 'exit 130' INT TERM
head -c 100000 /dev/zero | tr '\0' x > "$where/text"
cat > "$where/run.toml" <<EOF
[run]
name = "memory"
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
outer_state = "$outer_state"
[islands]
min = 2
max = 2
[checkpoint]
every_rounds = 100
EOF
"$atoll" local "$where/run.toml" --islands 2 --state "$where/state" --json --log-level warning > "$where/out" 2> "$where/err" &
cluster=$!

mebibytes() { # mebibytes PID FIELD of /proc/PID/status
  awk -v field="$2:" '$1 == field { printf "%.1f", $2 / 1024 }' "/proc/$1/status"
}

echo "$parameters parameters, outer state in $outer_state, two islands, $rounds rounds; MiB resident (of it shared memory), at the peak"
shown=-1
while kill -0 "$cluster" 2>/dev/null; do
  round=$("$atoll" status memory --state "$where/state/coordinator" -o json 2>/dev/null | grep -o '"round":[0-9]*,"rounds"' | head -n 1 | tr -dc 0-9) || round=""
  if [ -n "$round" ] && [ $((round * 10 / rounds)) -gt "$shown" ]; then
    shown=$((round * 10 / rounds))
    line="round $round:"
    for pid in $(cat /proc/"$cluster"/task/*/children); do
      case $(tr '\0' ' ' < "/proc/$pid/cmdline") in
        *" coordinator "*) line="$line coordinator $(mebibytes "$pid" VmRSS), peak $(mebibytes "$pid" VmHWM);" ;;
        *" agent "*)
          peak=$(mebibytes "$pid" VmHWM)
          line="$line agent $(mebibytes "$pid" VmRSS) ($(mebibytes "$pid" RssShmem)), peak $peak;" ;;
      esac
    done
    echo "$line"
  fi
  sleep 0.2
done
wait "$cluster" || { cat "$where/err" >&2; exit 1; }
bytes=16
[ "$outer_state" = f32 ] || bytes=14
awk -v peak="$peak" -v n="$parameters" -v bytes="$bytes" 'BEGIN {
  bound = bytes * n / 1048576 + 100
  printf "agent: peak %.1f MiB, %.2f bytes a parameter; the bound of %d bytes a parameter + 100 MiB is %.1f MiB: %.2f of it\n", peak, peak * 1048576 / n, bytes, bound, peak / bound
}'

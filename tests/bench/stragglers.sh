#!/bin/sh
# What a slow island costs the fast ones: six islands, first all equally fast, then one of them slowed by FACTOR. Real processes with the trainer
# of the process tests, whose steps take a set time (STEP_MS, 50) and next to no computing, so that the machine's cores are not the limit.
# Rounds have INNER_STEPS (50) steps.
# Prints for each strategy the tokens per second of the fast islands, with and without the slow one, and what the slow one did.
#
# Usage: tests/bench/stragglers.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [FACTOR [ROUNDS [STRATEGY …]]]
# Needs python3, to read what each island contributed and when from the coordinator's ledger.
set -eu
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
export ATOLL_TRAINER_MODULE
factor=${3:-3}
rounds=${4:-20}
shift "$(($# < 4 ? $# : 4))"
[ $# -gt 0 ] || set -- 'noloco:adaptive' 'diloco:adaptive' 'noloco:fixed' 'diloco:fixed'
step_ms=${STEP_MS:-50}
inner_steps=${INNER_STEPS:-50}
folder=$(mktemp -d)
pids=
stop() { for pid in $pids; do kill "$pid" 2> /dev/null || true; done; wait; rm -rf "$folder"; }
trap stop EXIT
head -c 100000 /dev/zero | tr '\0' x > "$folder/text"
count=0

# one STRATEGY[:PACE] SLOW_MS: a run of six islands whose last takes SLOW_MS a step; prints the rates.
one() {
  count=$((count + 1))
  state="$folder/$count"
  export ATOLL_STATE="$state/coordinator"
  address=tcp://127.0.0.1:$((20000 + ($$ + count * 7) % 20000))
  "$atoll" coordinator init --bind "$address" --advertise "$address" > /dev/null 2>&1
  "$atoll" coordinator --log-level error > /dev/null 2>> "$folder/log" &
  mine=$!
  for name in a b c d e f; do
    until token=$("$atoll" token create -q 2> /dev/null); do sleep 0.1; done
    ms=$step_ms
    [ "$name" != f ] || ms=$2
    ATOLL_TEST_STEP_MS=$ms "$atoll" agent --state "$state/$name" --name "$name" --data corpus="$folder/text" --log-level error --join "$token" > /dev/null 2>> "$folder/log" &
    mine="$mine $!"
  done
  pids="$pids $mine"
  method=${1%:*}
  cat > "$folder/run.toml" << END
[run]
name = "stragglers"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "corpus"
[training]
steps = $((rounds * inner_steps))
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
name = "$method"
inner_steps = $inner_steps
$([ "$method" = "$1" ] || echo "pace = \"${1#*:}\"")
[islands]
min = 6
max = 6
[checkpoint]
every_rounds = 1000000
END
  run=$("$atoll" submit "$folder/run.toml" -q)
  "$atoll" wait "$run" > /dev/null 2>&1
  for pid in $mine; do kill "$pid" 2> /dev/null || true; done
  wait $mine 2> /dev/null || true
  python3 - "$state/coordinator/ledger.db" "$1" "$2" "$rounds" << 'END'
import sqlite3, sys
path, strategy, slow, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ledger = sqlite3.connect(path)
names = dict(ledger.execute("SELECT island, name FROM islands"))
rates = {}
for island, name in names.items():
    rows = ledger.execute("SELECT round, time_ms, tokens FROM metrics WHERE island=? AND round BETWEEN 1 AND ? ORDER BY round", (island, rounds)).fetchall()
    (first, begin, _), (last, end, _) = rows[0], rows[-1]
    rates[name] = sum(tokens for _, _, tokens in rows[1:]) / ((end - begin) / 1e3), last
fast = [rates[name][0] for name in sorted(rates) if name != "f"]
print(f"{strategy:14} f at {slow} ms a step: fast islands {sum(fast)/len(fast):7.1f} tokens/s each (from {min(fast):.1f} to {max(fast):.1f}), f {rates['f'][0]:.1f}")
END
}

echo "six islands, $step_ms ms a step, $rounds rounds of $inner_steps steps; $(nproc) cores"
for strategy; do
  one "$strategy" "$step_ms"
  one "$strategy" $((step_ms * factor))
done

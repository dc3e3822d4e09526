#!/bin/sh
# How soon a run goes on after kill -9 of an island, and of the coordinator, with the preset `local`. Real processes, and the trainer of the process
# tests (20 ms a step, five steps a round), so that an exchange takes next to nothing and what is left is detection and decision.
#
# Usage: tests/bench/recovery.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [TIMES [NETWORK]]
set -eu
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
export ATOLL_TRAINER_MODULE ATOLL_TEST_STEP_MS=20
times=${3:-5}
network=${4:-local}
folder=$(mktemp -d)
pids=
stop() { for pid in $pids; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$folder"; }
trap stop EXIT
export ATOLL_STATE="$folder/coordinator"
address=tcp://127.0.0.1:$((20000 + $$ % 20000))
head -c 100000 /dev/zero | tr '\0' x > "$folder/text"

now_ms() { date +%s%3N; }
coordinator() { "$atoll" coordinator --log-level error > /dev/null 2>> "$folder/log" & coordinator=$!; pids="$pids $coordinator"; }
island() {
  "$atoll" agent --state "$folder/$1" --name "$1" --data corpus="$folder/text" --log-level error ${2:+--join "$2"} > /dev/null 2>> "$folder/log" &
  eval "$1=$!"
  pids="$pids $!"
}
# The time of the first event of a kind at or after $1 that does not name island $3 (if given) as a member; waits for it.
first_after() {
  while true; do
    found=$("$atoll" events "$run" --json --since 60s 2> /dev/null | grep "\"kind\":\"$2\"" | { [ -z "${3:-}" ] && cat || grep -v "\"members\":\[[^]]*\"$3\""; } |
      sed 's/.*"time_unix_ms":\([0-9]*\).*/\1/' | awk -v begin="$1" '$1 >= begin { print $1; exit }')
    [ -n "$found" ] && break
    sleep 0.1
  done
  echo "$found"
}

"$atoll" coordinator init --network "$network" --bind "$address" --advertise "$address" > /dev/null 2>&1
coordinator
for name in a b c; do
  until token=$("$atoll" token create -q 2> /dev/null); do sleep 0.1; done
  island "$name" "$token"
done
cat > "$folder/run.toml" <<EOF
[run]
name = "recovery"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "corpus"
[training]
steps = 1000000
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
inner_steps = 5
[islands]
min = 2
max = 3
[checkpoint]
every_rounds = 50
EOF
run=$("$atoll" submit "$folder/run.toml" -q)
first_after 0 round_committed > /dev/null
sleep 2

echo "network = $network; $(nproc) cores; $times times each; milliseconds"
i=0
while [ $i -lt "$times" ]; do
  i=$((i + 1))
  begin=$(now_ms)
  kill -9 "$c"
  commit=$(first_after "$begin" round_committed c)
  echo "kill -9 of an island to the next commit among the rest: $((commit - begin))"
  island c
  first_after "$begin" island_joined > /dev/null
  sleep 1
done
i=0
while [ $i -lt "$times" ]; do
  i=$((i + 1))
  kill -9 "$coordinator"
  wait "$coordinator" 2> /dev/null || true
  sleep 1
  begin=$(now_ms)
  coordinator
  commit=$(first_after "$begin" round_committed)
  echo "start of the coordinator to the next commit: $((commit - begin))"
  sleep 2
done

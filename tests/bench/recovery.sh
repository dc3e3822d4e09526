#!/bin/sh
# How soon a run goes on after kill -9 of an island, and of the coordinator, with the preset `local`. Real processes, and the trainer of the process
# tests (20 ms a step, five steps a round), so that an exchange takes next to nothing and what is left is detection and decision.
#
# Usage: tests/bench/recovery.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [TIMES [NETWORK]]
set -eu
times=${3:-5}
network=${4:-local}
. "$(dirname "$0")/cluster.sh"
export ATOLL_TEST_STEP_MS=20

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

init "$network"
for name in a b c; do island "$name"; done
run_file recovery <<EOF
[strategy]
inner_steps = 5
[islands]
min = 2
max = 3
[checkpoint]
every_rounds = 50
EOF
run=$("$atoll" submit "$folder/recovery.toml" -q)
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

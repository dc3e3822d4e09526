#!/bin/sh
# What surrounds the rounds of a large model: the time of a checkpoint, of an island that joins, of an export, of an agent that was killed and
# started again, and of a run whose processes were all killed. Real processes on loopback, and the trainer of the process tests, which keeps no
# copy of the parameters. With one island nobody joins. Keys of [strategy] come last.
#
# Usage: tests/bench/large_life.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [PARAMETERS [ISLANDS [KEY=VALUE…]]]
set -eu
. "$(dirname "$0")/cluster.sh"
parameters=${3:-100000000}
islands=${4:-2}
shift "$(($# < 4 ? $# : 4))"
export ATOLL_TEST_STEP_MS=100 ATOLL_TEST_STILL=1 ATOLL_TEST_HEAD="$((parameters - 200))"
names=$(echo a b c d e f g h | cut -d' ' -f"1-$islands")

init lan
{
  echo '[strategy]'
  echo 'inner_steps = 100'
  for key in "$@"; do echo "${key%%=*} = \"${key#*=}\""; done
  echo '[islands]'
  echo 'min = 1'
  echo "max = $((islands + 1))"
  echo 'deadline = "10m"'
  echo '[checkpoint]'
  echo 'every_rounds = 1'
  echo 'keep = 1'
} | run_file large
# The time of the first event of a kind after $1, of island $3 if it is named.
first_after() {
  while true; do
    found=$("$atoll" events "$run" --json 2> /dev/null | grep "\"kind\":\"$2\"" | { [ -z "${3:-}" ] && cat || grep "island $3[ ']"; } |
      sed 's/.*"time_unix_ms":\([0-9]*\).*/\1/' | awk -v begin="$1" '$1 > begin { print $1; exit }')
    [ -n "$found" ] && break
    sleep 0.2
  done
  echo "$found"
}
tell() { echo "$1 $2 $3" | awk '{ printf "%s: %.1f s\n", $1, ($3 - $2) / 1000 }' | tr '_' ' '; }

for name in $names; do island "$name"; done
begin=$(now_ms)
run=$("$atoll" submit "$folder/large.toml" -q)
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); $parameters parameters, $islands islands, $*"
tell from_submit_to_the_initial_state "$begin" "$(first_after "$begin" round_committed)"
for name in $names; do first_after "$begin" checkpoint_written "$name" > /dev/null; done
commit=$(first_after "$(now_ms)" round_committed)
tell a_checkpoint_beside_the_rounds "$commit" "$(first_after "$commit" checkpoint_written a)"
begin=$(now_ms)
"$atoll" export "$run" -o "$folder/model.safetensors" > /dev/null
tell export "$begin" "$(now_ms)"
stat -c 'the exported file: %s bytes' "$folder/model.safetensors"
rm "$folder/model.safetensors"
if [ "$islands" -gt 1 ]; then
  begin=$(now_ms)
  log_level=info
  island z
  tell an_island_joins:_from_its_start_to_its_first_round "$begin" "$(first_after "$begin" island_joined z)"
  grep -o 'fetched .*' "$folder/log" | tail -1 | sed 's/^/its copy: /'
  first_after "$begin" checkpoint_written z > /dev/null
  begin=$(now_ms)
  kill -9 "$z"
  wait "$z" 2> /dev/null || true
  first_after "$begin" island_left z > /dev/null
  begin=$(now_ms)
  island z
  tell an_agent_is_started_again_after_kill_-9:_until_it_is_in_a_round "$begin" "$(first_after "$begin" island_joined z)"
  kill -9 "$z"
fi
first_after "$(now_ms)" checkpoint_written a > /dev/null
for name in $names coordinator; do eval "kill -9 \$$name; wait \$$name" 2> /dev/null || true; done  # it takes a while to free so much memory
begin=$(now_ms)
coordinator
for name in $names; do island "$name"; done
tell all_processes_are_started_again_after_kill_-9:_until_the_next_round_of_10_s_is_committed "$begin" "$(first_after "$begin" round_committed)"

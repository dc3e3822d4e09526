#!/bin/sh
# An island joins a run of 100 M parameters while two train: what their tokens a second lose in the minute around the join, and how fast the copy was. Real
# processes, and the trainer of the process tests, whose throttle holds the step time. No round falls into the two minutes that are compared.
#
# Usage: tests/bench/join.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [PARAMETERS [STEP_MS]]
set -eu
. "$(dirname "$0")/cluster.sh"
parameters=${3:-100000000}
export ATOLL_TEST_STEP_MS="${4:-100}" ATOLL_TEST_HEAD="$((parameters - 200))"

init lan
run_file join <<END
[strategy]
inner_steps = $((200000 / ATOLL_TEST_STEP_MS))
[islands]
min = 2
max = 3
deadline = "10m"
[checkpoint]
every_rounds = 1
END
island a
island b
run=$("$atoll" submit "$folder/join.toml" -q)
# Seconds, and what both have trained together since the run began: "TIME STEPS".
steps() {
  "$atoll" status "$run" --json | sed 's/"active"/\n&/g' | sed -n 's/.*"last_seen_unix_ms":\([0-9]*\),"name":"\([ab]\)".*"step":\([0-9]*\).*/\1 \3/p' |
    awk '{ time += $1; steps += $2 } END { printf "%.3f %d\n", time / NR / 1000, steps }'
}
wait_for() { until "$atoll" events "$run" --json 2> /dev/null | grep -q "$1"; do sleep 0.5; done; }
rate() { echo "$1 $2" | awk '{ printf "%.2f\n", ($4 - $2) / ($3 - $1) }'; }

wait_for '"kind":"checkpoint_written".*"round":0'
until [ "$(steps | cut -d' ' -f2)" -gt 0 ]; do sleep 0.5; done
sleep 10
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); $parameters parameters, steps of $ATOLL_TEST_STEP_MS ms"
first=$(steps)
sleep 60
second=$(steps)
log_level=info
island c
sleep 60
third=$(steps)
before=$(rate "$first" "$second")
around=$(rate "$second" "$third")
echo "both together: $before steps a second in the minute before, $around in the minute of the join: $(echo "$around $before" | awk '{ printf "%+.2f %%", 100 * ($1 / $2 - 1) }')"
grep -o 'fetched .*' "$folder/log" | sed 's/^/the copy: /'

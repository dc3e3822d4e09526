#!/bin/sh
# decoupled-diloco where islands differ and change: speeds 1 : 2 : 4 : 8, and the second one's changes by a factor of four every minute. Their
# committed tokens a second together, against the sum of what each reaches alone in the same minutes, and which part of the time each trainer computed. Real
# processes, and the trainer of the process tests (80, 40, 20 and 10 ms a step), so that the cores of this machine are not the limit.
#
# $GRACE: a grace of the rounds other than "auto".
#
# Usage: tests/bench/decoupled.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [SECONDS [INNER_STEPS]]
set -eu
length=${3:-240}
inner_steps=${4:-480}
. "$(dirname "$0")/cluster.sh"
init local

# A step of s2 takes 40 ms in even minutes of a run, 10 ms in odd ones.
change() {
  while :; do
    echo 40 > "$folder/s2.ms"; sleep 60
    echo 10 > "$folder/s2.ms"; sleep 60
  done
}

# Committed tokens a second of a run on these islands within the time.
rate() { # rate NAME "ISLAND…" INNER_STEPS
  names=$(echo "$2" | sed 's/[^ ]*/"&"/g; s/ /, /g')
  count=$(echo "$2" | wc -w)
  change & changes=$!
  run_file "$1" <<END
[strategy]
name = "decoupled-diloco"
fragments = 1
inner_steps = $3
grace = "${GRACE:-auto}"
[islands]
min = 1
max = $count
names = [$names]
[checkpoint]
every_rounds = 1000
END
  run=$("$atoll" submit "$folder/$1.toml" -q)
  sleep "$length"
  committed_rate "$run" > "$folder/rate"
  if [ "$count" -gt 1 ]; then
    "$atoll" status "$run" > "$folder/status"
    "$atoll" data "$run" >> "$folder/status"
  fi
  "$atoll" cancel "$run" > /dev/null
  kill "$changes"
  read -r tokens rounds < "$folder/rate"
}

for island in s1:80 s4:20 s8:10; do
  export ATOLL_TEST_STEP_MS=${island#*:}
  island "${island%:*}"
done
echo 40 > "$folder/s2.ms"
export ATOLL_TEST_STEP_MS=$folder/s2.ms
island s2
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); $length s each; inner_steps = $inner_steps of the fastest, grace ${GRACE:-auto}"
sum=0
for speed in 1 2 4 8; do
  rate "alone-s$speed" "s$speed" $((inner_steps * speed / 8))
  echo "s$speed alone: $tokens tokens/s in $rounds rounds"
  sum=$(echo "$sum $tokens" | awk '{ print $1 + $2 }')
done
rate together "s1 s2 s4 s8" "$inner_steps"
echo "together: $tokens tokens/s in $rounds rounds"
cat "$folder/status"
echo "$tokens $sum" | awk '{ printf "together / sum of alone: %.3f\n", $1 / $2 }'

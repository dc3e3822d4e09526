#!/bin/sh
# Islands with speeds 1 : 2 : 4 under pace = "adaptive": their committed tokens a second together, against the sum of what each reaches alone. Real
# processes, and the trainer of the process tests throttled to 40, 20 and 10 ms a step, so that the cores of this machine are not the limit.
#
# Usage: tests/bench/unequal.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [SECONDS [INNER_STEPS]]
set -eu
length=${3:-60}
inner_steps=${4:-500}
. "$(dirname "$0")/cluster.sh"
init local

# Committed tokens a second of a run on these islands, from its second commit to its last within the time.
rate() {
  names=$(echo "$2" | sed 's/[^ ]*/"&"/g; s/ /, /g')
  count=$(echo "$2" | wc -w)
  run_file "$1" <<END
[strategy]
inner_steps = $3
pace = "$4"
[islands]
min = $count
max = $count
names = [$names]
[checkpoint]
every_rounds = 1000
END
  run=$("$atoll" submit "$folder/$1.toml" -q)
  sleep "$length"
  committed_rate "$run" > "$folder/rate"
  if [ "$count" -gt 1 ]; then
    "$atoll" status "$run" --json | tr '{' '\n' | sed -n 's/.*"name":"\(s[0-9]\)".*"share":\([0-9.]*\).*/    share of \1: \2/p' > "$folder/shares"
  fi
  "$atoll" cancel "$run" > /dev/null
  read -r tokens rounds < "$folder/rate"
}

for speed in 1 2 4; do
  export ATOLL_TEST_STEP_MS=$((40 / speed))
  island "s$speed"
done
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); $length s each; inner_steps = $inner_steps of the fastest"
sum=0
for name in s1 s2 s4; do
  rate "alone-$name" "$name" $((inner_steps / 4)) fixed
  echo "$name alone: $tokens tokens/s in $rounds rounds"
  sum=$(echo "$sum $tokens" | awk '{ print $1 + $2 }')
done
rate together "s1 s2 s4" "$inner_steps" adaptive
echo "together: $tokens tokens/s in $rounds rounds"
cat "$folder/shares"
echo "$tokens $sum" | awk '{ printf "together / sum of alone: %.3f\n", $1 / $2 }'

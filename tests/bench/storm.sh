#!/bin/sh
# A failure storm: two islands, of which one is killed with -9 again and again and started a second later; committed tokens against those of an undisturbed run
# at the same time, and the longest time without a commit. Real processes, and the trainer of the process tests (20 ms a step, 25 steps a round, preset `local`),
# so that it costs little CPU. It takes $START_MS (13000: a PyTorch program with its libraries) from its start to its first word.
#
# $STRATEGY: other lines of [strategy], for example "$(printf 'name = "decoupled-diloco"\nfragments = 1\ninner_steps = 25')".
#
# Usage: tests/bench/storm.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [SECONDS [KILLS_AN_HOUR…]]
set -eu
here=$(dirname "$0")
program=$1
module=$2
length=${3:-600}
if [ $# -gt 3 ]; then shift 3; else set -- 60 69 85; fi
results=$(mktemp -d)
base=$((20000 + $$ % 20000))

# One run of the length with so many kills an hour, each at a random time of its own stretch; prints committed tokens, rounds and kills.
storm() { # storm KILLS_AN_HOUR PORT
  rate=$1
  port=$2
  set -- "$program" "$module"
  . "$here/cluster.sh"
  export ATOLL_TEST_STEP_MS=20 ATOLL_TEST_START_MS="${START_MS:-13000}"
  init local
  island a
  island b
  run_file storm <<END
[strategy]
${STRATEGY:-inner_steps = 25}
[islands]
min = 1
max = 2
[checkpoint]
every_rounds = 20
END
  run=$("$atoll" submit "$folder/storm.toml" -q)
  until [ "$("$atoll" status "$run" --json 2> /dev/null | grep -c '"members":2,.*"round":[1-9]')" -gt 0 ]; do sleep 0.1; done
  begin=$(now_ms)
  awk -v rate="$rate" -v length_s="$length" 'BEGIN { srand(rate); n = int(length_s * rate / 3600); for (i = 0; i < n; ++i) printf "%d\n", (i + rand()) * 3600000 / rate }' > "$folder/times"
  kills=0
  while read -r at; do
    left=$((begin + at - $(now_ms)))
    [ "$left" -gt 0 ] && sleep "$(echo "$left" | awk '{ print $1 / 1000 }')"
    victim=$([ $((kills % 2)) -eq 0 ] && echo a || echo b)
    eval "kill -9 \$$victim"
    kills=$((kills + 1))
    sleep 1
    island "$victim"
  done < "$folder/times"
  left=$((begin + length * 1000 - $(now_ms)))
  [ "$left" -gt 0 ] && sleep "$(echo "$left" | awk '{ print $1 / 1000 }')"
  commits "$run" |
    awk -v begin="$begin" -v end="$((begin + length * 1000))" -v kills="$kills" \
      'NF == 2 && $2 >= begin && $2 < end { tokens += $1; if (rounds++ && $2 - last > stop) stop = $2 - last; last = $2 } END { print tokens, rounds, kills, stop }'
}

echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); $length s each, all at the same time"
i=0
waits=
for rate in 0 "$@"; do
  ( storm "$rate" $((base + i)) > "$results/$rate" ) & waits="$waits $!"
  i=$((i + 1))
done
for pid in $waits; do wait "$pid"; done
read -r undisturbed rounds kills stop < "$results/0"
echo "undisturbed: $undisturbed tokens in $rounds rounds, longest time without a commit $stop ms"
for rate in "$@"; do
  read -r tokens rounds kills stop < "$results/$rate"
  echo "$tokens $undisturbed $rate $rounds $kills $stop" |
    awk '{ printf "%d kills an hour (%d kills): %d tokens in %d rounds, %.3f of the undisturbed run, longest time without a commit %d ms\n", $3, $5, $1, $4, $1 / $2, $6 }'
done
rm -rf "$results"

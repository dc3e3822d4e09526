#!/bin/sh
# Quality at equal tokens: trains the same model on the same text with one setting after the other and prints a table row for each:
# the final validation loss of the outer parameters (of `local` the mean of the islands'), each seed's and their mean; the payload that
# each island sent; the peak: what the largest round sends in each inner step that it has time for (τ, or one where islands wait for it).
#   tests/bench/quality.sh ATOLL TEXT STEPS 'STRATEGY INNER_STEPS LEARNING_RATE OUTER_LEARNING_RATE OUTER_MOMENTUM [KEY=VALUE…]' …
# for example: tests/bench/quality.sh build/product/atoll input.txt 600 'data-parallel 1 3e-3 - -' 'diloco 30 3e-3 0.7 0.9' 'local 30 3e-3 - -'
# KEY=VALUE are further keys of [strategy]: 'streaming-diloco 30 3e-3 1.0 0.0 fragments=2 overlap_steps=2 codec=fp4 error_feedback=true'.
# Four islands; MIN (4): as many are enough, which with a quorum must not be more than that. From the environment: SEED (1; several: "1 2 3"), LAYERS (4), WIDTH (128), BATCH (16) sequences of 128 tokens a step and
# island, EVALUATE_BATCHES (32), EVALUATIONS (10; 0: only of the start and the end). Every summary is kept as JSON in $ATOLL_RESULTS (default: a new folder); one that is there is not made again.
set -eu
atoll=$(realpath "$1")
text=$(realpath "$2")
steps=$3
shift 3
results=${ATOLL_RESULTS:-$(mktemp -d)}
layers=${LAYERS:-4}
width=${WIDTH:-128}
batch=${BATCH:-16}
evaluate=${EVALUATE_BATCHES:-32}
evaluations=${EVALUATIONS:-10}
mkdir -p "$results"
echo "results in $results" >&2

number() { # number KEY: the first value of this key in the JSON of stdin
  grep -o "\"$1\":[0-9.e+-]*" | head -n 1 | cut -d: -f2
}

# run_file SEED STRATEGY INNER_STEPS LEARNING_RATE OUTER_LEARNING_RATE OUTER_MOMENTUM [KEY=VALUE…]
run_file() {
  seed=$1 strategy=$2 inner=$3 rate=$4 outer=$5 momentum=$6
  shift 6
  parts=1 # rounds of a period
  for word in "$@"; do
    case $word in fragments=*) parts=$((${word#*=} + 1)) ;; esac
  done
  every=0
  if [ "$evaluations" != 0 ]; then
    every=$((steps / evaluations / inner))
    every=$(((every > 0 ? every : 1) * parts))
  fi
  printf '[run]\nname = "quality"\nseed = %s\n[model]\nlayers = %s\nwidth = %s\nheads = 4\n' "$seed" "$layers" "$width"
  printf '[data]\nset = "text"\n[training]\nsteps = %s\nbatch = %s\nsequence_length = 128\nlearning_rate = %s\nwarmup_steps = 50\nevaluate_batches = %s\nevaluate_every = %s\n' \
    "$steps" "$batch" "$rate" "$evaluate" "$every"
  printf '[strategy]\nname = "%s"\n' "$strategy"
  [ "$strategy" = data-parallel ] || printf 'inner_steps = %s\n' "$inner"
  [ "$outer" = - ] || printf 'outer_learning_rate = %s\nouter_momentum = %s\n' "$outer" "$momentum"
  for word in "$@"; do
    case ${word#*=} in
      *[0-9]s | *[0-9]ms) printf '%s = "%s"\n' "${word%%=*}" "${word#*=}" ;;
      [0-9]* | true | false) printf '%s = %s\n' "${word%%=*}" "${word#*=}" ;;
      *) printf '%s = "%s"\n' "${word%%=*}" "${word#*=}" ;;
    esac
  done
  printf '[islands]\nmin = %s\nmax = 4\ndeadline = "10m"\n[checkpoint]\nevery_rounds = 1000000\n' "${MIN:-4}"
}

for setting in "$@"; do
  losses=
  for seed in ${SEED:-1}; do
    name="$(echo "$setting" | tr ' =' '--')-steps$steps-$layers-x-$width-batch$batch-seed$seed"
    file="$results/$name.toml"
    # shellcheck disable=SC2086
    run_file "$seed" $setting > "$file"
    if [ ! -s "$results/$name.json" ]; then
      rm -rf "$results/$name.state"
      "$atoll" local "$file" --islands 4 --state "$results/$name.state" --data "text=$text" --json --log-level warning > "$results/$name.part"
      mv "$results/$name.part" "$results/$name.json"
      rm -rf "$results/$name.state"
    fi
    losses="$losses $(grep -o '"run":{.*' "$results/$name.json" | number outer_loss)"
  done
  set --
  for i in 1 2 3 4; do
    set -- "$@" --island "$i=50ms,1gbit"
  done
  plan=$("$atoll" plan "$file" "$@" --json)
  # shellcheck disable=SC2086
  echo $losses | awk -v setting="$setting" -v bytes="$(grep -o '"run":{.*' "$results/$name.json" | number bytes_sent)" \
    -v largest="$(echo "$plan" | number bytes_per_round)" -v overlap="$(echo "$plan" | number overlap_steps)" '{
      for (i = 1; i <= NF; i++) { sum += $i; least = i == 1 || $i < least ? $i : least; most = i == 1 || $i > most ? $i : most }
      printf "%s: loss %.4f", setting, sum / NF
      if (NF > 1) printf " (%.4f to %.4f:%s)", least, most, " " $0
      printf ", %.3f MB sent by each island, peak %.1f kB an inner step\n", bytes / 4 / 1e6, largest / (overlap > 1 ? overlap : 1) / 1e3
    }'
done

#!/bin/sh
# Quality at equal tokens: trains the same model on the same text with one setting after the other, each with several seeds, and prints a line for
# each: the validation loss at the end and the best one on the way, as the median of the seeds with their range; the tokens that count in the
# model, of those that were computed; and the payload that each island sent. The loss is that of the outer parameters, of `local` the mean of the
# islands'; of `noloco` it is that of the one model at the end, and on the way the mean of the islands' own.
#
# Usage: tests/bench/quality.sh ATOLL TEXT STEPS 'STRATEGY INNER_STEPS LEARNING_RATE OUTER_LEARNING_RATE OUTER_MOMENTUM [KEY=VALUE…]' …
# for example: tests/bench/quality.sh build/release/atoll input.txt 600 'data-parallel 1 3e-3 - -' 'diloco 30 3e-3 0.7 0.9' 'local 30 3e-3 - -'
# KEY=VALUE are further keys of [strategy]: 'noloco 30 3e-3 1.0 0.0 pace=fixed outer_pull=0.7 max_skew=1000'. Where the pace is fixed and rounds wait
# for all, figures do not depend on the machine. Else they do: PACE=STEPS makes every trainer do that many steps a second, well below what the machine can.
# COUNTED=1: a setting of which fewer than 99 % of the tokens count is trained once more, with so many more steps that as many count as the others compute.
#
# From the environment: SEED ("1 2 3"), ISLANDS (4), MIN (as many; with a quorum not more than that), LAYERS (4), WIDTH (64), BATCH (4) sequences
# of 128 tokens a step and island, EVALUATE_BATCHES (96), EVALUATIONS (10) on the way. Documents are kept as JSON in $ATOLL_RESULTS
# (default: a new folder); what is there is not trained again, so that several calls may share one folder. Needs python3, to read them.
set -eu
atoll=$(realpath "$1")
text=$(realpath "$2")
steps=$3
shift 3
. "$(dirname "$0")/counted.sh"
results=${ATOLL_RESULTS:-$(mktemp -d)}
islands=${ISLANDS:-4}
layers=${LAYERS:-4}
width=${WIDTH:-64}
batch=${BATCH:-4}
mkdir -p "$results"
echo "results in $results" >&2

# run_file STEPS SEED STRATEGY INNER_STEPS LEARNING_RATE OUTER_LEARNING_RATE OUTER_MOMENTUM [KEY=VALUE…]
run_file() {
  length=$1 seed=$2 strategy=$3 inner=$4 rate=$5 outer=$6 momentum=$7
  shift 7
  parts=1 # rounds of a period
  for word in "$@"; do
    case $word in fragments=*) parts=$((${word#*=} + 1)) ;; esac
  done
  case "$strategy $*" in decoupled* | *balanced*) parts=$((parts > 1 ? parts - 1 : 1)) ;; esac # without one of the embeddings
  every=$((length / ${EVALUATIONS:-10} / inner))
  every=$(((every > 0 ? every : 1) * parts))
  printf '[run]\nname = "quality"\nseed = %s\n[model]\nlayers = %s\nwidth = %s\nheads = 4\n[data]\nset = "text"\n' "$seed" "$layers" "$width"
  printf '[training]\nsteps = %s\nbatch = %s\nsequence_length = 128\nlearning_rate = %s\nwarmup_steps = 50\n' "$length" "$batch" "$rate"
  printf 'evaluate_batches = %s\nevaluate_every = %s\n' "${EVALUATE_BATCHES:-96}" "$every"
  [ -z "${PACE:-}" ] || printf 'max_steps_per_second = %s\n' "$PACE"
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
  printf '[islands]\nmin = %s\nmax = %s\ndeadline = "1h"\n[checkpoint]\nevery_rounds = 1000000\n' "${MIN:-$islands}" "$islands"
}

# train NAME: a run of NAME.toml; leaves its document in NAME.json, and what became of its tokens in NAME.data.
train() {
  rm -rf "$results/$1.state"
  "$atoll" local "$results/$1.toml" --islands "$islands" --state "$results/$1.state" --data "text=$text" --json --log-level warning \
    > "$results/$1.part" 2> "$results/$1.err" || { cat "$results/$1.err" >&2; exit 1; }
  run=$(grep -o '"run":{.*' "$results/$1.part" | grep -o '"id":"r-[0-9a-f]*' | head -n 1 | cut -d'"' -f4)
  tokens_of "$results/$1.state" "$run" > "$results/$1.data"
  mv "$results/$1.part" "$results/$1.json"
  rm -rf "$results/$1.state"
}

# table_row SETTING STEPS NAME…: prints the line, and leaves the share of tokens that count in $results/share-PID.
table_row() {
  python3 - "$results" "$islands" "$batch" "$$" "$@" << 'END'
import json, statistics, sys
results, islands, batch, pid, setting, steps, *names = sys.argv[1:]
ends, bests, counted, computed, owns, sent = [], [], [], [], [], []
for name in names:
    document = json.loads(open(f"{results}/{name}.json").read().splitlines()[-1])
    run = document["run"]
    assert run["state"] == "completed", run["reason"]
    ends.append(run["outer_loss"] if run["outer_loss"] is not None else run["local_loss"])
    bests.append(min([loss for round, loss in run["losses"] if round > 0] + ends[-1:]))
    steps_done = [island["step"] for island in document["islands"]]
    computed.append(int(batch) * 128 * sum(steps_done))
    counted.append(computed[-1])  # alone or in pairs each step counts
    try:
        rows = json.loads(open(f"{results}/{name}.data").read())["tokens"]
        if rows:
            computed[-1] = max(computed[-1], sum(row["trained"] for row in rows))
            counted[-1] = sum(row["merged"] + row["late"] for row in rows)
    except ValueError:
        pass
    owns += [island["own_loss"] for island in document["islands"] if island["own_loss"] is not None]
    sent.append(run["bytes_sent"] / int(islands) / 1e6)

def of_seeds(values):
    listed = ", ".join(f"{value:.3f}" for value in values)
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f}: {listed})"

own = f"; islands' own {min(owns):.3f} to {max(owns):.3f}, mean {statistics.mean(owns):.3f}" if owns else ""
print(f"{setting}, {steps} steps: end {of_seeds(ends)}; best {of_seeds(bests)}{own}; "
      f"{statistics.mean(counted) / 1e3:.0f} k of {statistics.mean(computed) / 1e3:.0f} k tokens count; "
      f"{statistics.mean(sent):.3f} MB sent by each island", flush=True)
open(f"{results}/share-{pid}", "w").write(f"{statistics.mean(counted) / (int(islands) * int(batch) * 128 * int(steps)):.4f}")
END
}

for setting in "$@"; do
  length=$steps
  while :; do
    names=
    for seed in ${SEED:-1 2 3}; do
      name="$(echo "$setting" | tr ' =' '--')-steps$length-$islands-islands-$layers-x-$width-batch$batch${PACE:+-pace$PACE}-seed$seed"
      # shellcheck disable=SC2086
      run_file "$length" "$seed" $setting > "$results/$name.toml"
      [ -s "$results/$name.json" ] || train "$name"
      names="$names $name"
    done
    # shellcheck disable=SC2086
    table_row "$setting" "$length" $names
    share=$(cat "$results/share-$$")
    rm "$results/share-$$"
    [ "${COUNTED:-0}" = 1 ] && [ "$length" = "$steps" ] || break
    inner=$(echo "$setting" | cut -d' ' -f2)
    length=$(echo "$share $steps $inner" | awk '{ print $1 < 0.99 ? int($2 / $1 / $3 + 0.5) * $3 : $2 }')
    [ "$length" != "$steps" ] || break
  done
done

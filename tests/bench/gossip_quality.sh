#!/bin/sh
# What gossip costs in quality, at equal tokens: trains the same small model on the same text with one strategy after the other, each with several
# seeds, and prints a line for each: validation loss of the one model at the end (of `local`: the mean of the islands'), of the islands' own outer
# parameters after the last own round (lowest to highest, mean over the seeds), and what each island sent.
#
# Usage: tests/bench/gossip_quality.sh ATOLL TEXT ISLANDS SEEDS 'STRATEGY OUTER_LEARNING_RATE OUTER_MOMENTUM OUTER_PULL [GROUP_SIZE]' …    (- where it has none)
# for example: tests/bench/gossip_quality.sh build/release/atoll input.txt 4 '1 2 3' 'diloco 1.0 0.5 -' 'noloco 0.7 0.5 0.7' 'local - - -'
# 0.25 M parameters, 600 steps of 1,024 tokens on each island, H = 30; about a minute of one core for four islands and a seed. The pace is fixed and
# partners wait for each other however long it takes, so that a setting gives nearly the same figures on every machine. Summaries are kept
# as JSON in $ATOLL_RESULTS (default: a new folder); what is there already is not trained again. Needs python3, to read them.
set -eu
atoll=$(realpath "$1")
text=$(realpath "$2")
islands=$3
seeds=$4
shift 4
results=${ATOLL_RESULTS:-$(mktemp -d)}
mkdir -p "$results"
echo "results in $results" >&2

# one NAME STRATEGY RATE MOMENTUM PULL SEED [GROUP_SIZE]: trains, and leaves the summary in NAME.json.
one() {
  file="$results/$1.toml"
  {
    printf '[run]\nname = "%s"\nseed = %s\n[model]\nlayers = 4\nwidth = 64\nheads = 4\n' "$1" "$6"
    printf '[data]\nset = "text"\n[training]\nsteps = 600\nbatch = 8\nsequence_length = 128\nlearning_rate = 3e-3\nwarmup_steps = 50\n'
    printf 'evaluate_batches = 48\nevaluate_every = 0\n[strategy]\nname = "%s"\ninner_steps = 30\npace = "fixed"\n' "$2"
    [ "$3" = - ] || printf 'outer_learning_rate = %s\nouter_momentum = %s\n' "$3" "$4"
    [ "$5" = - ] || printf 'outer_pull = %s\nmax_skew = 1000\n' "$5"
    [ -z "${7:-}" ] || printf 'group_size = %s\n' "$7"
    printf '[islands]\nmin = %s\nmax = %s\ndeadline = "1h"\n[checkpoint]\nevery_rounds = 1000000\n' "$islands" "$islands"
  } > "$file"
  rm -rf "$results/$1.state"
  "$atoll" local "$file" --islands "$islands" --state "$results/$1.state" --data "text=$text" --json --log-level warning > "$results/$1.part"
  mv "$results/$1.part" "$results/$1.json"
  rm -rf "$results/$1.state"
}

for setting in "$@"; do
  # shellcheck disable=SC2086
  set -- $setting
  names=
  for seed in $seeds; do
    name="$1-$islands-islands-$2-$3-$4${5:+-group$5}-seed$seed"
    [ -s "$results/$name.json" ] || one "$name" "$1" "$2" "$3" "$4" "$seed" ${5:+"$5"}
    names="$names $results/$name.json"
  done
  # shellcheck disable=SC2086
  python3 - "$setting" "$islands" $names << 'END'
import json, sys
setting, islands, paths = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
documents = [json.loads(open(path).read().splitlines()[-1]) for path in paths]
losses = [document["run"]["outer_loss"] for document in documents]
own = [[island["own_loss"] for island in document["islands"]] for document in documents]
mean = lambda values: sum(values) / len(values)
line = f"{setting:22} {islands} islands: {mean(losses):.4f}  ({', '.join(f'{loss:.4f}' for loss in losses)})"
if all(value is not None for values in own for value in values):
    line += f"  own {mean([min(values) for values in own]):.4f} to {mean([max(values) for values in own]):.4f}, mean {mean([mean(values) for values in own]):.4f}"
print(f"{line}  sent {mean([document['run']['bytes_sent'] for document in documents]) / islands / 1e6:.1f} MB each", flush=True)
END
done

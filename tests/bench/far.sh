#!/bin/sh
# Who waits on far and broken links: three islands by `atoll local --link`, 20 ms a step and 400 kB of parameters, 6,000 steps.
# First decoupled-diloco and streaming-diloco at a round trip of two seconds, then decoupled-diloco with one island cut off from the others for
# 4.4 s again and again. Then diloco, eager-diloco and co2 on a link on which an exchange takes about as long as the steps of a round do.
# Prints of each run how long it took, which part of their time the islands computed, and the tokens a second, all islands together, that were computed
# and that count in the model.
#
# Usage: tests/bench/far.sh PATH_TO_ATOLL PATH_TO_ARITHMETIC_TRAINER [PART…]    parts: decoupled streaming cut-off diloco eager-diloco co2 (all)
set -eu
atoll=$(realpath "$1")
ATOLL_TRAINER_MODULE=$(realpath "$2")
export ATOLL_TRAINER_MODULE ATOLL_TEST_STEP_MS=20 ATOLL_TEST_HEAD=100000
shift 2
parts_wanted=${*:-decoupled streaming cut-off diloco eager-diloco co2}
. "$(dirname "$0")/counted.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
head -c 100000 /dev/zero | tr '\0' x > "$folder/text.txt"

one() { # one NAME LINK [OPTION…]: the lines of [strategy] come from stdin; $min: how many islands a round needs, $steps: other than 6,000
  name=$1
  link=$2
  shift 2
  case " $parts_wanted " in *" $name "*) ;; *) return 0 ;; esac
  cat > "$folder/$name.toml" << END
[run]
name = "$name"
[model]
layers = 1
width = 32
heads = 2
[data]
files = ["text.txt"]
[training]
steps = ${steps:-6000}
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
$(cat)
[islands]
min = ${min:-1}
max = 3
[checkpoint]
every_rounds = 1000
END
  "$atoll" local "$folder/$name.toml" --islands 3 --state "$folder/$name" --link "$link" --json "$@" 2> /dev/null | tail -n 1 > "$folder/$name.json"
  tokens_of "$folder/$name" "$(grep -o '"run":{.*' "$folder/$name.json" | grep -o '"id":"r-[0-9a-f]*' | head -n 1 | cut -d'"' -f4)" |
    counted_tokens > "$folder/$name.tokens"
  grep -o '"run":{.*' "$folder/$name.json" | awk -v tokens="$(cat "$folder/$name.tokens")" '
    function of(key) { return match($0, "\"" key "\":[0-9.e+-]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : 0 }
    {
      split(tokens, n, " ")
      seconds = (of("ended_unix_ms") - of("started_unix_ms")) / 1000
      printf "%s: %.0f s, computing %.1f %%, waiting %.1f s together; ", name, seconds, 100 * of("compute_seconds") / (of("compute_seconds") + of("wait_seconds")), of("wait_seconds")
      printf "tokens a second: %.0f computed, %.0f counted (%.1f %%)\n", n[2] / seconds, n[1] / seconds, 100 * n[1] / n[2]
    }' name="$name"
}

parts='fragments = 2
inner_steps = 200
overlap_steps = 2'
decoupled='name = "decoupled-diloco"
'$parts'
quorum = 2
max_staleness = 3'
echo "$decoupled" | one decoupled 2s,100mbit,0
one streaming 2s,100mbit,0 << END
name = "streaming-diloco"
$parts
grouping = "balanced"
merge_alpha = 0.0
codec = "bf16"
reduce_codec = "bf16"
END
for round in 4 10 16 22 28 34 40 46 52; do
  printf '[[fault]]\nisland = "island-2"\nround = %s\nphase = "before-send"\ndo = "cut-off"\nlink = "bulk"\nfor = "4400ms"\n' "$round"
done > "$folder/cuts.toml"
echo "$decoupled" | one cut-off 20ms,100mbit,0 --faults "$folder/cuts.toml"

# Whole periods: rounds of 100 steps, two seconds, all three islands in each. What is waited for once, at the start and for the last round, is
# little of 300 rounds.
min=3
period() { # period NAME STEPS
  steps=$2
  printf 'name = "%s"\ninner_steps = 100\n' "$1" | one "$1" "${PERIOD_LINK:-1140ms,100mbit,0}"
}
period diloco 3000
period eager-diloco "${PERIOD_STEPS:-30000}"
period co2 "${PERIOD_STEPS:-30000}"

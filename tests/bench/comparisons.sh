#!/bin/sh
# Every comparison of README and docs/results between strategies, each like with like: the same model, text, batch, tokens and bits where these
# are not what is compared, seeds 1, 2 and 3. Prints which pages' tables a part is for, and its lines.
#
# Usage: tests/bench/comparisons.sh ATOLL TEXT ARITHMETIC_TRAINER [PART…]    parts: rounds long overfitted asynchronous radial links far stragglers (all)
# for example: tests/bench/comparisons.sh build/release/atoll input.txt build/release/tests/atoll_arithmetic_trainer.so rounds
# Losses are of 0.14 M parameters (2 layers of 64), four islands, 256 tokens a step and island, 600 steps, H = 30. All of it takes about an hour and a half of
# two cores. Losses of `rounds`, `long` and `radial` do not depend on the machine's load. Those of `asynchronous` do not as long as each
# trainer can do five steps a second, and the rest are of trainers that take a set time for a step. $ATOLL_RESULTS as in quality.sh.
set -eu
bench=$(realpath "$(dirname "$0")")
atoll=$(realpath "$1")
text=$(realpath "$2")
arithmetic=$(realpath "$3")
shift 3
wanted=${*:-rounds long overfitted asynchronous radial links far stragglers}
export SEED="1 2 3" LAYERS=2 WIDTH=64 BATCH=2 EVALUATE_BATCHES=96 EVALUATIONS=6 OMP_NUM_THREADS=1
ATOLL_RESULTS=${ATOLL_RESULTS:-$(mktemp -d)}
export ATOLL_RESULTS
mkdir -p "$ATOLL_RESULTS"

part() { # part NAME WHAT: whether it is wanted
  case " $wanted " in *" $1 "*) printf '\n== %s: %s\n' "$1" "$2" ;; *) return 1 ;; esac
}
quality() { "$bench/quality.sh" "$atoll" "$text" "$@"; }

outer='1.0 0.0'
streaming="streaming-diloco 30 6e-3 $outer overlap_steps=2"
bf16='codec=bf16 reduce_codec=bf16 merge_alpha=0'
fp4='codec=fp4 reduce_codec=fp4'

if part rounds 'quality.md, streaming.md, gossip.md, asynchronous.md: rounds of all, in pairs, in flight'; then
  quality 600 'data-parallel 1 3e-3 - -' 'data-parallel 1 6e-3 - -' "diloco 30 3e-3 $outer" "diloco 30 6e-3 $outer" 'local 30 6e-3 - -' \
    "diloco 30 6e-3 $outer codec=fp4 reduce_codec=int8" "diloco 30 6e-3 $outer $fp4" "$streaming fragments=2 codec=f32 reduce_codec=f32" "$streaming fragments=2" \
    "$streaming fragments=2 $fp4 merge_alpha=0" "$streaming grouping=balanced fragments=3 $bf16" \
    "noloco 30 6e-3 $outer pace=fixed outer_pull=0.7 max_skew=1000" 'noloco 30 6e-3 0.7 0.5 pace=fixed outer_pull=0.7 max_skew=1000' \
    "eager-diloco 30 6e-3 $outer" 'co2 30 6e-3 1.0 0.5' "diloco 30 6e-3 $outer overlap_steps=30 merge_alpha=0"
fi
if part long 'quality.md: a run that passes over the text four times'; then
  BATCH=4 EVALUATIONS=10 quality 2000 'diloco 30 6e-3 1.0 0.5' 'data-parallel 1 6e-3 - -'
fi
if part overfitted 'quality.md: a run that passes over its text, of 150,000 bytes, some twenty times'; then
  head -c 150000 "$text" > "$ATOLL_RESULTS/short.txt"
  BATCH=4 EVALUATIONS=12 ATOLL_RESULTS=$ATOLL_RESULTS/short "$bench/quality.sh" "$atoll" "$ATOLL_RESULTS/short.txt" 1500 'diloco 30 6e-3 1.0 0.5' 'data-parallel 1 6e-3 - -'
fi
if part asynchronous 'asynchronous.md: rounds with a quorum of one; then with as many tokens that count'; then
  MIN=1 PACE=5 COUNTED=1 quality 600 "decoupled-diloco 30 6e-3 $outer fragments=3" "decoupled-diloco 30 6e-3 $outer fragments=3 grace=0ms"
fi
if part radial 'asynchronous.md: radial-directional means of fragments, with embeddings apart, and of each tensor, of which there are 21'; then
  for fragments in 'balanced fragments=3' 'sequential fragments=2' 'balanced fragments=21'; do
    quality 600 "$streaming $bf16 grouping=$fragments" "$streaming $bf16 grouping=$fragments aggregator=radial-directional"
  done
fi
if part links 'streaming.md: 5 Mbit/s, the same bits'; then
  ISLANDS=3 UPLINKS=5mbit "$bench/plan.sh" "$atoll" "$text" 200 2 3
fi
if part far 'asynchronous.md: a round trip of two seconds, in tokens that count'; then
  for _ in 1 2 3; do "$bench/far.sh" "$atoll" "$arithmetic" decoupled streaming; done
fi
if part stragglers 'gossip.md: one of six islands three times slower, in rounds of 2.5 s and of 0.1 s'; then
  for _ in 1 2 3; do "$bench/stragglers.sh" "$atoll" "$arithmetic" 3 20; done
  for _ in 1 2 3; do STEP_MS=5 INNER_STEPS=20 "$bench/stragglers.sh" "$atoll" "$arithmetic" 3 200 diloco:adaptive noloco:adaptive diloco:fixed; done
fi

#!/bin/sh
# The planner against reality: for each number of islands, uplink and strategy (diloco in 32 bits, diloco in the bits of streaming-diloco, and
# streaming-diloco) what `atoll plan` foretells and what a real run with
# throttled trainers came to: the share of time that islands were not waiting, and the bytes that each sent.
#   tests/bench/plan.sh ATOLL TEXT [STEPS [OVERLAP_STEPS…]]
# for example: tests/bench/plan.sh build/release/atoll input.txt
# From the environment: ISLANDS ("2 3"), UPLINKS ("5mbit 20mbit 100mbit").
# Figures of 246,000 parameters, 20 steps a second and island; the machine has to bear three such trainers with time to spare.
set -eu
atoll=$(realpath "$1")
text=$(realpath "$2")
steps=${3:-400}
shift "$(($# < 3 ? $# : 3))"
overlaps=${*:-2}
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
trap 'exit 130' INT TERM

number() { # number FILE KEY: the first value of this key
  grep -o "\"$2\":[0-9.e+-]*" "$1" | head -n 1 | cut -d: -f2
}

printf '%-8s %-8s %-24s %12s %12s %8s %14s %14s %8s\n' islands uplink strategy 'planned util' 'measured' points 'planned bytes' 'measured' percent
for islands in ${ISLANDS:-2 3}; do
  for uplink in ${UPLINKS:-5mbit 20mbit 100mbit}; do
    for overlap in f32 fp4 $overlaps; do
      strategy=streaming-diloco
      case $overlap in f32 | fp4) strategy=diloco ;; esac
      name="$strategy-$overlap-$islands-$uplink"
      {
        printf '[run]\nname = "%s"\n[model]\nlayers = 4\nwidth = 64\nheads = 4\n[data]\nset = "text"\n' "$name"
        printf '[training]\nsteps = %s\nbatch = 2\nsequence_length = 32\nmax_steps_per_second = 20\nevaluate_every = 0\n' "$steps"
        printf '[strategy]\nname = "%s"\ninner_steps = 20\n' "$strategy"
        case $overlap in
          f32) ;;
          fp4) printf 'codec = "fp4"\nreduce_codec = "int8"\n' ;; # streaming-diloco's defaults
          *) printf 'fragments = 4\noverlap_steps = %s\n' "$overlap" ;;
        esac
        printf '[islands]\nmin = %s\nmax = %s\n[checkpoint]\nevery_rounds = 1000000\n' "$islands" "$islands"
      } > "$where/$name.toml"
      set --
      for i in $(seq "$islands"); do
        set -- "$@" --island "island-$i=50ms,$uplink,10gbit,0.2ms"
      done
      "$atoll" plan "$where/$name.toml" "$@" --json > "$where/$name.plan"
      "$atoll" local "$where/$name.toml" --islands "$islands" --uplink "$uplink" --data "text=$text" --state "$where/$name" --json \
        --log-level warning > "$where/$name.json" 2> "$where/$name.err"
      # Of the run's document the sums over all islands stand in `run`, which comes after the list of islands.
      grep -o '"run":{.*' "$where/$name.json" > "$where/$name.run"
      awk -v islands="$islands" -v uplink="$uplink" -v strategy="$strategy, $(case $overlap in f32 | fp4) ;; *) printf "tau " ;; esac)$overlap" -v steps="$steps" \
        -v planned="$(number "$where/$name.plan" utilisation)" -v planned_bytes="$(number "$where/$name.plan" bytes_sent)" \
        -v waited="$(number "$where/$name.run" wait_seconds)" -v bytes="$(number "$where/$name.run" bytes_sent)" 'BEGIN {
          busy = steps / 20 * islands
          measured = busy / (busy + waited)
          bytes /= islands
          printf "%-8s %-8s %-24s %11.1f%% %11.1f%% %8.1f %14.0f %14.0f %8.2f\n", islands, uplink, strategy, 100 * planned, 100 * measured,
                 100 * (measured - planned), planned_bytes, bytes, 100 * (bytes / planned_bytes - 1)
        }'
      rm -rf "$where/$name"
    done
  done
done

#!/bin/sh
# Builds Atoll and runs its tests, installing what is missing first.
#   tests/run.sh                the default: everything, with LibTorch
#   tests/run.sh asan           AddressSanitizer and UndefinedBehaviorSanitizer, all that does not load LibTorch
#   tests/run.sh tsan           ThreadSanitizer: drivers, links, sync engine
#   tests/run.sh fuzz [SECONDS] coverage-guided fuzzing of every reader of foreign bytes (clang, libFuzzer)
#   tests/run.sh bench          builds and runs the benches; figures, not tests
# Further arguments of the first three go to ctest (for example: tests/run.sh -L unit).
set -eu
cd "$(dirname "$0")/.."

mode=default
case "${1:-}" in
  asan | tsan | fuzz | bench) mode=$1; shift ;;
esac
jobs=${ATOLL_JOBS:-$(nproc)}
# Places for tests: what fills a core takes two (tests/costs.txt), what mostly waits one.
places=${ATOLL_PLACES:-$((2 * jobs))}

started=$(date +%s)
export CTEST_OUTPUT_ON_FAILURE=1
export OMP_WAIT_POLICY=passive

build() { # build PRESET [TARGET…]
  preset=$1
  shift
  cmake --preset "$preset" ${options:-} >/dev/null
  if [ $# -gt 0 ]; then set -- --target "$@"; fi
  cmake --build "build/$preset" -j "$jobs" "$@"
  built=$(date +%s)
}

# run_tests PRESET ARGUMENTS…: CTest, and what its tests cost.
run_tests() {
  preset=$1
  shift
  log=build/$preset/tests.log
  began=$(date +%s)
  { ctest --test-dir "build/$preset" -j "$places" --output-on-failure -LE soak "$@" && echo 0 >"$log.status" || echo $? >"$log.status"; } | tee "$log"
  tests/costs.sh "$log" $((built - started)) $(($(date +%s) - began)) || true
  exit "$(cat "$log.status")"
}

# An S3-compatible server for the tests of copies: PyPI's moto. Where pip reaches no package index they are skipped.
install_s3_server() {
  build/moto/bin/python -c "import boto3, moto.server" 2>/dev/null && return
  rm -rf build/moto
  if ! { python3 -m venv build/moto && build/moto/bin/pip install -q --disable-pip-version-check "moto[s3]==5.2.5" flask flask-cors; } >&2; then
    rm -rf build/moto
    echo "tests/run.sh: no S3-compatible server (pip install moto failed): its tests are skipped" >&2
  fi
}

# LibTorch and what Atoll builds with. Where none of 2.6 or newer can be had the built-in trainer is left out, with its tests.
install_packages() {
  torch=ON
  if ! examples/install-packages.sh --with-tests; then
    examples/install-packages.sh --with-tests --without-torch
    torch=OFF
    echo "tests/run.sh: no LibTorch: the built-in trainer and its tests are left out" >&2
  fi
}

# Hugging Face's libraries, Lightning and JAX for the tests with the label "frameworks". Where pip reaches no package index, or Python is too old
# for them, they are skipped.
install_frameworks() {
  cmp -s tests/own/frameworks.txt build/python/frameworks.txt && return
  [ -x build/python/bin/python ] || python3 -m venv build/python
  for file in examples/packaging/torch.txt tests/own/frameworks.txt; do  # PyTorch first, so that its build for processors is taken
    if ! build/python/bin/python -m pip install -q --disable-pip-version-check -r "$file" >&2; then
      echo "tests/run.sh: no transformers, Lightning and JAX (pip install failed): their tests are skipped" >&2
      return
    fi
  done
  cp tests/own/frameworks.txt build/python/frameworks.txt
}

case "$mode" in
  default)
    install_packages
    install_s3_server
    install_frameworks
    options=-DATOLL_TORCH=$torch
    build release
    run_tests release "$@"
    ;;
  asan)
    examples/install-packages.sh --with-tests --without-torch
    install_s3_server
    build asan
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
    # Fewer worlds: instrumented they take several times as long, and what they decide is the same.
    export ATOLL_SIM_SEEDS=${ATOLL_SIM_SEEDS:-1000} ATOLL_SIM_LONG_SEEDS=${ATOLL_SIM_LONG_SEEDS:-60}
    run_tests asan "$@"
    ;;
  tsan)
    examples/install-packages.sh --with-tests --without-torch
    install_s3_server
    build tsan test_unit test_contract test_process
    # libzmq is not instrumented: what it does inside itself is not ours to report.
    export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp:second_deadlock_stack=1}
    # Not the programs that are no tests of the three executables: an interpreter loads nothing that is built so.
    run_tests tsan -L "unit|contract|process" -E "^process: " "$@"
    ;;
  fuzz)
    examples/install-packages.sh --with-tests --without-torch
    command -v clang++ >/dev/null || { echo "tests/run.sh fuzz: needs clang (apt-get install clang)" >&2; exit 2; }
    build fuzz fuzz_targets
    # What was found is kept from one call to the next; a case that breaks something lies in build/fuzz afterwards.
    build/fuzz/tests/seed_corpora build/fuzz/corpora examples
    for target in build/fuzz/tests/fuzz_*; do
      [ -x "$target" ] && [ -f "$target" ] || continue
      name=$(basename "$target" | sed 's/^fuzz_//')
      echo "== $name"
      leaks=1
      if [ "$name" = web ]; then leaks=0; fi  # what its threads hold in the middle of an answer looks leaked; memory is bounded below
      "$target" -detect_leaks="$leaks" -max_total_time="${1:-60}" -max_len=65536 -rss_limit_mb=1024 -timeout=10 -verbosity=0 -artifact_prefix="build/fuzz/$name-" \
        -print_final_stats=1 "build/fuzz/corpora/$name"
    done
    ;;
  bench)
    install_packages
    options=-DATOLL_TORCH=$torch
    build release
    for bench in build/release/tests/bench_*; do
      [ -x "$bench" ] && [ -f "$bench" ] && [ "${bench##*/}" != bench_trainer ] || continue
      echo "== $(basename "$bench")"
      "$bench"
    done
    parts="build/release/atoll build/release/tests/atoll_arithmetic_trainer.so"
    for script in memory.sh "small_rounds.sh 256 4 1000" link_share.py "stages.py --millions 100" "stages.py --millions 100 --islands 4" "stages.py --millions 300" "large_life.sh 100000000 2"; do
      echo "== $script"
      name=${script%% *}
      options=${script#"$name"}
      case $name in
        *.py) python3 "tests/bench/$name" $parts $options ;;
        *) "tests/bench/$name" $parts $options ;;
      esac
    done
    # Beside PyTorch and Gloo, where there is a PyTorch; a far path of real packets needs root, too.
    for python in build/python/bin/python python3 /usr/bin/python3; do
      command -v "$python" >/dev/null && "$python" -c "import torch" 2>/dev/null || continue
      echo "== trainer_bench.py"
      "$python" tests/bench/trainer_bench.py build/release/tests/bench_trainer
      for islands in 2 4; do
        echo "== gloo_bench.py $islands 20"
        "$python" tests/bench/gloo_bench.py "$islands" 20
        if [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ]; then
          echo "== far_gloo.py --islands $islands"
          "$python" tests/bench/far_gloo.py $parts build/release/tests/packet_path --islands "$islands"
        fi
      done
      break
    done
    ;;
esac

#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while: scripts/fuzz.sh [SECONDS PER TARGET [TARGET...]]
# Stops with an error at the first fault. Inputs that cause one are kept in build/fuzz/faults, those
# that reached something new in build/fuzz/corpus, where the next run goes on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-15}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(shard megatron jsonl safetensors manifest config)

scripts/install.sh clang libclang-rt-dev
cmake --preset fuzz
cmake --build --preset fuzz
build=build/fuzz
"$build/make_corpus" "$build/seeds"
mkdir -p "$build/faults"
# The targets write each input to a file, so that goes to memory where there is such a folder.
work=$(TMPDIR=$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}") mktemp -d)
trap 'rm -rf "$work"' EXIT

# Freed memory and long stack traces cost most of the time of targets this small.
export ASAN_OPTIONS=quarantine_size_mb=4:malloc_context_size=5
for target in "${targets[@]}"; do
  echo "--- $target"
  corpus="$build/corpus/$target"
  mkdir -p "$corpus"
  options=()
  [ ! -f "$build/seeds/$target.dict" ] || options=(-dict="$build/seeds/$target.dict")
  log="$work/$target.log"
  if TMPDIR=$work "$build/fuzz_$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
      -rss_limit_mb=2048 -malloc_limit_mb=512 -close_fd_mask=3 -print_final_stats=1 \
      -artifact_prefix="$build/faults/$target-" "${options[@]}" "$corpus" "$build/seeds/$target" \
      > "$log" 2>&1; then
    grep -E "DONE|number_of_executed_units|peak_rss_mb" "$log"
  else
    tail -60 "$log"
    echo "$target: a fault; its input is in $build/faults"
    exit 1
  fi
done

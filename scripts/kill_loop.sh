#!/usr/bin/env bash
# Kills a training run with SIGKILL at random moments, resumes it, and compares its end with that of
# a run that was left alone, byte for byte; two runs.
#
#   scripts/kill_loop.sh [KILLS of each run, default 50] [BUILD FOLDER, default build/cpu]
set -euo pipefail
cd "$(dirname "$0")/.."

kills=${1:-50}
build=${2:-build/cpu}
NSA_KILLS=$kills exec "$build/promises_tests" --gtest_filter='KillLoop.*'

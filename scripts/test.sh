#!/usr/bin/env bash
# Builds everything and runs every test that this machine can run. Installs what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh libgtest-dev
cmake --workflow --preset cpu

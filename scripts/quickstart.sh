#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained model: installs what is missing, builds the CPU
# programs into build/cpu (and the CUDA ones into build/cuda where a GPU is), tokenizes real text and
# trains configs/tiny.yaml on it. Run it again and it goes on from the last checkpoint. Arguments are
# handed to nsa_train (--override train.steps=20).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh
cmake --preset cpu
cmake --build --preset cpu --target nsa_train nsa_tokenize nsa_golden nsa_bench
if [ -e /dev/nvidiactl ] && command -v nvcc >/dev/null; then
  cmake --preset cuda
  cmake --build --preset cuda --target nsa_train nsa_golden nsa_bench
fi
scripts/prepare_perl_docs.sh build/cpu
build/cpu/nsa_train --config configs/tiny.yaml "$@"

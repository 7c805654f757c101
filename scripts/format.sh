#!/usr/bin/env bash
# Formats every source file in place; with --check it only tells which are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
git ls-files -z -- '*.h' '*.cpp' '*.cuh' '*.cu' | xargs -0 clang-format "${mode[@]}"

#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, and nothing that is there already.
# Usage: scripts/install.sh [PACKAGE...]   further packages, for scripts that need more
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config
  libopenblas-dev libyaml-cpp-dev libspdlog-dev libfmt-dev libsentencepiece-dev
  libcli11-dev nlohmann-json3-dev zlib1g-dev libzstd-dev libbenchmark-dev
  "$@"
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

echo "Installing ${missing[*]}"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null

#!/usr/bin/env bash
# Real text for the first run: the manual pages of Perl (Debian's perl-doc, about 8.8 MB of .pod),
# tokenized into data/perl/. Does nothing when the shards are there already.
# Needs the programs of build/cpu. Usage: scripts/prepare_perl_docs.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/cpu}
out=data/perl
vocab_size=2048  # model.vocab_size of configs/tiny.yaml
val_fraction=0.05

if compgen -G "$out/train_*.bin" >/dev/null && compgen -G "$out/val_*.bin" >/dev/null; then
  exit 0
fi
scripts/install.sh perl-doc

mapfile -t pods < <(dpkg-query --listfiles perl-doc | grep '\.pod$')
mkdir -p "$out"
"$build/nsa_tokenize" train --in "${pods[@]}" --suffix .pod --vocab-size "$vocab_size" \
  --out "$out/tok.model"
"$build/nsa_tokenize" encode --model "$out/tok.model" --in "${pods[@]}" --suffix .pod \
  --out "$out/" --val-fraction "$val_fraction"

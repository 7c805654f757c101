#!/usr/bin/env bash
# Long real documents: the C files of Debian's linux-source-6.1, each a document, in
# data/linux/{train,val}/. Whole directories are held out, so that validation is no copy of what was
# trained on. About 405 MB of training text and 20 MB of validation text.
# Usage: scripts/prepare_linux_source.sh [OUT_DIR]; tokenize with nsa_tokenize (data/README.md).
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-data/linux}
held_out=(fs/btrfs mm net/sctp net/mac80211 drivers/md sound/pci/hda kernel/trace)
trained=(block crypto fs init ipc kernel lib net security sound virt arch/x86 arch/arm64 arch/powerpc
  arch/arm arch/mips arch/s390 include/linux include/net
  drivers/acpi drivers/ata drivers/block drivers/bluetooth drivers/bus drivers/char drivers/clk
  drivers/crypto drivers/dma drivers/firmware drivers/gpio drivers/hid drivers/hwmon drivers/i2c
  drivers/iio drivers/infiniband drivers/input drivers/iommu drivers/media drivers/mfd drivers/mmc
  drivers/mtd drivers/net/ethernet/intel drivers/net/ethernet/mellanox drivers/net/wireless/intel
  drivers/nvme drivers/pci drivers/platform drivers/power drivers/scsi drivers/spi drivers/thermal
  drivers/tty drivers/usb drivers/video drivers/virtio)
# Tables of numbers, not text that anyone reads in order.
tables='/fs/nls/|-tables?\.h$|[-_]regs?\.h$'

if [ -e "$out/train" ] && [ -e "$out/val" ]; then
  exit 0
fi
scripts/install.sh linux-source-6.1 xz-utils
archive=/usr/src/linux-source-6.1.tar.xz

staging="$out.part"
rm -rf "$staging"
mkdir -p "$staging/train" "$staging/val"
tar -tJf "$archive" | grep -E '\.[ch]$' | grep -Ev "$tables" >"$staging/files"

# files_of DIRECTORY...: the members of the archive that stand in one of them
files_of() {
  local IFS='|'
  grep -E "^[^/]+/($*)/" "$staging/files"
}

files_of "${held_out[@]}" >"$staging/val_files"
files_of "${trained[@]}" | grep -vxFf "$staging/val_files" >"$staging/train_files"
for part in train val; do
  tar -xJf "$archive" -C "$staging/$part" --strip-components=1 -T "$staging/${part}_files"
done
rm "$staging"/*files
rm -rf "$out"
mv "$staging" "$out"
du -sm --apparent-size "$out/train" "$out/val"

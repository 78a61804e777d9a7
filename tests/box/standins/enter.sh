#!/usr/bin/env bash
# Inside fresh namespaces: a root of its own over the machine's (nothing written there stays), then process 1 of the box.
#   enter.sh SCENARIO CHECKOUT PYTHON LOOP-NUMBER
set -Eeuo pipefail
scenario=$1 checkout=$2 python=$3 loop=$4
root=$scenario/root
mkdir -p "$root" "$scenario/layers"
mount -t tmpfs tmpfs "$scenario/layers"
mkdir "$scenario/layers/upper" "$scenario/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scenario/layers/upper,workdir=$scenario/layers/work" "$root"
mount --make-shared "$root" # as systemd does: what the boot mounts, the units' own namespaces see
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
for empty in dev run tmp usr/local/bin usr/local/sbin opt var/log/fleet; do
  mkdir -p "$root/$empty"
  mount -t tmpfs tmpfs "$root/$empty"
done
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
  IFS=: read -r name major minor <<<"$device"
  mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/dev/shm" "$root/dev/disk/by-id" "$root/etc/systemd/system"
if [ "$loop" != none ]; then
  mknod "$root/dev/loop$loop" b 7 "$loop"
  ln -s "../../loop$loop" "$root/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_AWSTEST"
fi
for shared in "$checkout" "$scenario"; do
  mkdir -p "$root$shared"
  mount --bind "$shared" "$root$shared"
done
# the stand-ins and their Python, wherever they lie, are there for every user, as an engine's files are
for parent in "$checkout" "$(readlink -f "$python")"; do
  while [ "$parent" != / ]; do
    parent=$(dirname "$parent")
    chmod o+x "$root$parent"
  done
done
cp -a "$scenario/bin/." "$root/usr/local/bin/"
# this start of the machine, which a test can change
cat /proc/sys/kernel/random/boot_id >"$scenario/boot_id"
mount --bind "$scenario/boot_id" "$root/proc/sys/kernel/random/boot_id"
[ ! -f "$scenario/prepare.sh" ] || bash -Eeuo pipefail "$scenario/prepare.sh" "$root"
ip link set lo up
ip addr add 169.254.169.254/32 dev lo
exec chroot "$root" "$python" "$checkout/tests/box/standins/systemd.py" "$scenario/systemd.sock" "$scenario/journal"

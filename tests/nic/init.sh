#!/bin/busybox sh
# First process of a guest: what a host has before anybody touches its card, then a shell for the
# test on the second serial port. The console shows the kernel's words and ours.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var /usr/bin /usr/sbin /sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
chmod 755 / # EAL loads no driver from below a folder that anybody may write
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
ln -sf /run /var/run
# shellcheck disable=SC2154,SC2086 # the kernel's line says which, between commas
modprobe -a $(echo $modules | tr , ' ') || echo "guest: no modules $modules"
exec 3<> /dev/ttyS1 # held open: a port that is opened forgets what came before
stty raw -echo <&3
echo "guest: ready"
while :; do # as a script: told to read from a terminal it would greet and echo
    sh /dev/ttyS1 < /dev/null > /dev/ttyS1 2>&1
done

#!/bin/sh
# Runs a test program in a control group that can have no groups below it, so
# that there are none for sandboxes.
# usage: without_groups.sh PROGRAM ARGUMENT...     (as root)
set -u

if [ "$(id -u)" -ne 0 ]; then
    echo "without_groups: needs root"
    [ "${CI:-}" = true ] && exit 1
    exit 77
fi
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
for root in /sys/fs/cgroup/unified /sys/fs/cgroup; do
    group=$root$own/without_groups.$$
    mkdir "$group" 2>/dev/null && break
done
[ -f "$group/cgroup.max.descendants" ] || {
    echo "without_groups: no group of version 2 can be made"
    exit 77
}
echo 0 >"$group/cgroup.max.descendants"
sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@"
rc=$?
# A process leaves its group a moment after its end.
tries=0
while ! rmdir "$group" 2>/dev/null && [ "$tries" -lt 10 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
# Fails where anything is left in it.
[ ! -d "$group" ] || rc=1
exit "$rc"

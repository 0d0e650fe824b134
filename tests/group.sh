#!/bin/sh
# Control groups of version 2 for scripts; to be sourced.
script=$(basename "$0" .sh)

# new_group: makes one below our own, and leaves its directory in $group.
new_group()
{
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    for root in /sys/fs/cgroup/unified /sys/fs/cgroup; do
        group=$root$own/$script.$$
        mkdir "$group" 2>/dev/null && break
    done
    [ -f "$group/cgroup.procs" ] || {
        echo "$script: no group of version 2 can be made"
        exit 77
    }
}

# run_in_group COMMAND...: runs it in that, and removes the group. Fails where
# anything is left in it.
run_in_group()
{
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@"
    rc=$?
    # A process leaves its group a moment after its end.
    tries=0
    while ! rmdir "$group" 2>/dev/null && [ "$tries" -lt 10 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ ! -d "$group" ] || rc=1
    return "$rc"
}

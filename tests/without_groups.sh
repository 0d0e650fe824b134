#!/bin/sh
# Runs a test program in a control group that can have no groups below it, so
# that there are none for sandboxes.
# usage: without_groups.sh PROGRAM ARGUMENT...     (as root)
set -u

# shellcheck source=tests/group.sh
. "${0%/*}/group.sh"
if [ "$(id -u)" -ne 0 ]; then
    echo "without_groups: needs root"
    [ "${CI:-}" = true ] && exit 1
    exit 77
fi
new_group
echo 0 >"$group/cgroup.max.descendants"
run_in_group "$@"

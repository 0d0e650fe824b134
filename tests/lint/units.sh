#!/bin/sh
# Checks the systemd units, as for a program that is installed.
# usage: units.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
build=$2
command -v systemd-analyze >/dev/null || exit 77
failed=0
export XDG_RUNTIME_DIR="$build/units"

# verify NAME ARGUMENT...: also what systemd only warns of, which its exit
# status does not tell.
verify()
{
    unit=$build/units/$1/sessionfs.service
    mkdir -p "${unit%/*}"
    sed "s|@CMAKE_INSTALL_FULL_BINDIR@|$build/bin|" \
        "contrib/systemd/$1.service.in" >"$unit"
    shift
    said=$(systemd-analyze "$@" verify --man=no "$unit" 2>&1)
    rc=$?
    if [ "$rc" -ne 0 ] || [ -n "$said" ]; then
        printf '%s\n' "$unit: status $rc" "$said"
        failed=1
    fi
}

verify sessionfs
verify sessionfs-user --user
exit $failed

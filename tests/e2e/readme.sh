#!/bin/sh
# Does what README.md's session shows, and compares what it prints.
# usage: readme.sh PROGRAM README
set -u

program=$1
readme=$2

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse

dir=$(mktemp -d /tmp/readme.XXXXXX) || exit 1
export HOME="$dir"
mkdir "$dir/sb"

cleanup()
{
    cd /
    echo absent 2>/dev/null >"$dir/sb/sessions/trial/status"
    umount "$dir/sb" || umount -l "$dir/sb"
    wait_end "$dir/state"
    rm -rf --one-file-system "$dir"
}
at_end cleanup

"$program" -o "state=$dir/state" "$dir/sb" || exit 1

# Each command's expected output is what stands below it.
sed -n '/^```console$/,/^```$/{/^```/d;p}' "$readme" >"$dir/shown"
while IFS= read -r line; do
    printf '%s\n' "$line"
    eval "${line#??}" 2>&1 </dev/null
done >"$dir/all" <<END
$(grep '^\$ ' "$dir/shown")
END

grep -q '^\$ ' "$dir/shown" || {
    echo "readme: $readme shows no session"
    exit 1
}
diff -u "$dir/shown" "$dir/all"

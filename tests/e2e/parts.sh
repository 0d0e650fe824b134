#!/bin/sh
# Looks at checkpoints of a big file of which little changed, as people do: the
# whole file must be there, whoever reads it, and after kill -9.
# usage: parts.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
alone 1 "$@"

program=$1
dir=$2
mnt=$dir/mnt
session=$mnt/sessions/big
daemon=

start()
{
    start_daemon "$program" "state=$dir/state" "$mnt"
    daemon=$!
}

stop()
{
    echo absent 2>/dev/null >"$session/status"
    kill "$daemon"
    wait "$daemon"
}

# same FILE...: all have the bytes that the first has.
same()
{
    first=$1
    shift
    for file in "$@"; do
        cmp "$first" "$file" || fail "$file is not what it was"
    done
}

mkdir "$mnt"
start
trap stop EXIT
mkdir "$session" || exit 1

head -c 16M /dev/urandom >"$session/workspace/big"
echo true >"$session/exec"
cp "$session/workspace/big" "$dir/1"
for turn in 2 3 4; do
    echo "printf $turn | dd of=big bs=1 seek=${turn}000000 conv=notrunc" \
        >"$session/exec"
    cp "$session/workspace/big" "$dir/$turn"
done
mkdir "$session/checkpoints/four" || exit 1
[ "$(du -sm "$dir/state/layers" | cut -f 1)" -lt 20 ] ||
    fail 'what is shared is stored again'

shown=$session/checkpoints/four/big
same "$dir/4" "$shown"
cp -a "$shown" "$dir/copy"
same "$dir/4" "$dir/copy"
[ "$(stat -c '%s %Y %a' "$shown")" = \
    "$(stat -c '%s %Y %a' "$session/workspace/big")" ] || fail 'attributes'
[ "$(du -m "$shown" | cut -f 1)" -ge 16 ] || fail 'it looks sparse'
tar -C "$session/checkpoints/four" --sparse -cf - big | tar -C "$dir" -xf - ||
    fail 'tar'
same "$dir/4" "$dir/big"
python3 - "$shown" "$dir/4" <<'END' || fail 'mmap or seek'
import mmap, os, sys
with open(sys.argv[1], 'rb') as a, open(sys.argv[2], 'rb') as b:
    size = os.fstat(a.fileno()).st_size
    assert os.lseek(a.fileno(), 0, os.SEEK_HOLE) == size
    assert os.lseek(a.fileno(), 77, os.SEEK_DATA) == 77
    m = mmap.mmap(a.fileno(), 0, prot=mmap.PROT_READ)
    assert m[:] == b.read()
    assert os.pread(a.fileno(), 10, size - 3) == m[-3:]
    assert 'user' not in ''.join(os.listxattr(sys.argv[1]))
END

kill -9 "$daemon"
wait "$daemon" 2>/dev/null
umount -l "$mnt"
start
same "$dir/4" "$session/checkpoints/four/big" "$session/workspace/big"
echo 'printf 5 | dd of=big bs=1 seek=5000000 conv=notrunc' >"$session/exec"
echo "try four" >"$session/fork" || fail 'fork'
echo four >"$session/restore" || fail 'restore'
same "$dir/4" "$session/workspace/big" "$mnt/sessions/try/workspace/big"
echo 'printf 6 | dd of=big bs=1 seek=6 conv=notrunc' >"$mnt/sessions/try/exec"
same "$dir/4" "$session/workspace/big" "$session/checkpoints/four/big"
[ "$(cat "$mnt/sessions/try/execs/last/changes")" = "$(printf 'M\tbig')" ] ||
    fail 'changes'
echo absent >"$mnt/sessions/try/status"
finish

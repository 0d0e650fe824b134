#!/bin/bash
# Follows `events` in several ways while its oldest lines go.
# usage: events.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
program=$1
dir=$(mktemp -d /tmp/events.XXXXXX) || exit 1
mnt=$dir/mnt
demo=$mnt/sessions/demo
mkdir "$mnt"
clean()
{
    # shellcheck disable=SC2046  # words
    kill $(jobs -p) 2>/dev/null
    umount -l "$mnt" 2>/dev/null
    wait_end "$dir/state"
    rm -rf --one-file-system "$dir"
}
at_end clean

# Without shells of the sandbox: a command that fails to start has events, too.
make_events()
{
    for _ in $(seq "$1"); do
        echo paused >"$demo/status"
        echo running >"$demo/status"
    done
}

seqs() { sed -E 's/.*"seq":([0-9]+),.*/\1/' "$1"; }
last() { seqs "$demo/events" | tail -n 1; }

# Whether the numbers in a file are all from its first on, once each.
check_steady()
{
    seqs "$1" | awk -v what="$2" '
        NR > 1 && $1 != before + 1 { print what ": " $1 " after " before; bad = 1 }
        { before = $1 }
        END { exit bad || NR == 0 }' || fail "$2 is not steady"
    [ "$(seqs "$1" | tail -n 1)" = "$end" ] || fail "$2 does not reach the end"
}

"$program" -o "state=$dir/state,provider=mem,events_keep=40" "$mnt" || exit 1
mkdir "$demo"
make_events 2
tail -s 0.05 -n +1 -f "$demo/events" >"$dir/tail-f" &
tail -s 0.05 -n +1 -F "$demo/events" >"$dir/tail-F" 2>"$dir/tail-F.err" &
# Holds the file open and reads on.
exec 3<"$demo/events"
cat <&3 >"$dir/held"
# Opens it again each time at the offset where it was; from the start when the
# name stands for another file.
cat >"$dir/reader.py" <<'END'
import json, os, sys
path, out = sys.argv[1:]
place, inode, seen = 0, 0, 0
for _ in sys.stdin:
    with open(path, "rb") as file, open(out, "a") as to:
        now = os.fstat(file.fileno()).st_ino
        place = place if now == inode else 0
        inode = now
        file.seek(place)
        data = file.read()
        place += len(data)
        for line in data.splitlines():
            if json.loads(line)["seq"] > seen:
                seen = json.loads(line)["seq"]
                to.write(line.decode() + "\n")
    print("read", flush=True)
END
command -v python3 >/dev/null && coproc python3 "$dir/reader.py" \
    "$demo/events" "$dir/python" 3<&-
inode=$(stat -c %i "$demo/events")
for _ in $(seq 30); do
    make_events 3
    # Who looks too seldom is not to be told of what has gone.
    timeout 20 sh -c "until grep -q '\"seq\":$(last),' '$dir/tail-f' &&
        grep -q '\"seq\":$(last),' '$dir/tail-F'; do sleep 0.02; done" ||
        fail 'tail does not follow'
    cat <&3 >>"$dir/held"
    if [ -n "${COPROC_PID:-}" ]; then
        echo read >&"${COPROC[1]}"
        read -r _ <&"${COPROC[0]}"
    fi
done
end=$(last)
[ "$end" -gt 120 ] || fail "only $end events"
[ "$(stat -c %i "$demo/events")" != "$inode" ] || fail 'nothing went'
count=$(grep -c . "$demo/events")
if [ "$count" -lt 40 ] || [ "$count" -gt 46 ]; then
    fail "$count lines are kept"
fi

# Followers look once a second.
for file in tail-f tail-F; do
    timeout 20 sh -c "until grep -q '\"seq\":$end,' '$dir/$file'; do
        sleep 0.1; done" || fail "$file does not come to the end"
done
check_steady "$dir/tail-f" 'tail -f'
check_steady "$dir/held" 'an open file'
[ -z "${COPROC_PID:-}" ] || check_steady "$dir/python" 'a kept offset'
# By name, at which tail looks when a file rests: what is kept comes again, and
# nothing is left out.
timeout 20 sh -c "until grep -q 'has been replaced' '$dir/tail-F.err'; do
    sleep 0.1; done" || fail 'tail -F did not notice'
seqs "$dir/tail-F" | sort -n -u | awk '$1 != NR { exit 1 }' ||
    fail 'tail -F left lines out'

# The size is what a read gives: copies are whole.
cp "$demo/events" "$dir/copy" || fail 'cp failed'
cmp "$demo/events" "$dir/copy" || fail 'cp is not whole'
[ "$(stat -c %s "$demo/events")" -eq "$(stat -c %s "$dir/copy")" ] ||
    fail 'the size is wrong'
tar -C "$demo" -cf "$dir/copy.tar" events || fail 'tar failed'
tar -xOf "$dir/copy.tar" events | cmp - "$demo/events" ||
    fail 'tar is not whole'

# A file that was held all the time, and never read, goes on at what is kept.
exec 4<"$demo/events"
first=$(seqs "$demo/events" | head -n 1)
make_events 60
end=$(last)
cat <&4 >"$dir/late"
check_steady "$dir/late" 'a late reader'
[ "$(seqs "$dir/late" | head -n 1)" -gt "$first" ] || fail 'nothing had gone'

# A line that was begun is given to its end, whatever has gone meanwhile.
exec 5<"$demo/events"
for _ in 1 2 3 4; do
    dd bs=100 count=1 <&5 2>/dev/null
    make_events 20
done >"$dir/small"
end=$(last)
cat <&5 >>"$dir/small"
exec 5<&-
[ "$(grep -c '"time".*"time"' "$dir/small")" -eq 0 ] || fail 'lines were joined'
[ "$(seqs "$dir/small" | tail -n 1)" = "$end" ] || fail 'small reads lost some'

# Numbers go on in the next daemon.
exec 3<&- 4<&-
kill %1 %2
wait %1 %2 2>/dev/null
umount "$mnt" || fail 'umount failed'
wait_end "$dir/state"
"$program" -o "state=$dir/state,provider=mem,events_keep=40" "$mnt" || exit 1
echo running >"$demo/status"
end=$(last)
cp "$demo/events" "$dir/copy"
check_steady "$dir/copy" 'after a restart'
finish

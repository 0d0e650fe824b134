#!/bin/bash
# Reads `stats` as strictly as Prometheus does, and compares it with what
# happened.
# usage: stats.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
command -v python3 >/dev/null || exit 77
program=$1
dir=$(mktemp -d /tmp/stats.XXXXXX) || exit 1
mnt=$dir/mnt
mkdir "$mnt"
clean()
{
    umount -l "$mnt" 2>/dev/null
    wait_end "$dir/state"
    rm -rf --one-file-system "$dir"
}
at_end clean

# The format's rules, and that no counter of an earlier text has fallen.
cat >"$dir/check.py" <<'END'
import re, sys
name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(rf"({name})(?:\{{({label}(?:,{label})*)\}})? (\S+)")

def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    assert text.endswith("\n") and "\r" not in text, "the last line"
    types, helped, values, closed, current = {}, set(), {}, set(), None
    for line in text[:-1].split("\n"):
        kind = re.fullmatch(rf"# (HELP|TYPE) ({name}) (.+)", line)
        if kind:
            what, metric, rest = kind.groups()
            assert metric not in closed, f"{metric} comes in two parts"
            if metric != current:
                assert what == "HELP", f"no HELP before TYPE: {line}"
                closed.add(current)
                current = metric
            if what == "HELP":
                assert metric not in helped, f"two HELPs: {line}"
                assert not re.search(r"\\(?![\\n])", rest), line
                helped.add(metric)
            else:
                assert metric not in types, f"two TYPEs: {line}"
                assert rest in ("gauge", "counter"), line
                assert (rest == "counter") == metric.endswith("_total"), line
                types[metric] = rest
            continue
        found = sample.fullmatch(line)
        assert found, f"no sample: {line}"
        metric, labels, value = found.groups()
        assert metric == current and metric in types, f"misplaced: {line}"
        names = re.findall(r'(?:^|,)([a-zA-Z_]\w*)="', labels or "")
        assert len(names) == len(set(names)), line
        assert (metric, labels) not in values, f"twice: {line}"
        values[metric, labels] = float(value)
        assert values[metric, labels] >= 0, line
    return types, values

types, values = read(sys.argv[1])
if len(sys.argv) > 2:
    for key, before in read(sys.argv[2])[1].items():
        if types.get(key[0]) == "counter":
            assert values.get(key, -1) >= before, f"{key} has fallen"
END

check()
{
    [ ! -e "$dir/now" ] || mv "$dir/now" "$dir/before"
    cat "$mnt/stats" >"$dir/now" || fail 'cannot be read'
    if [ -e "$dir/before" ]; then
        set -- "$dir/before"
    fi
    said=$(python3 "$dir/check.py" "$dir/now" "$@" 2>&1) ||
        fail "$(echo "$said" | tail -n 1)"
}

# value METRIC: of one with its labels; is METRIC WANT.
value() { grep -v '^#' "$dir/now" | grep -F "$1 " | sed 's/.* //'; }
is() { [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), not $2"; }

"$program" -o "state=$dir/state,provider=mem" "$mnt" || exit 1
check
is sessionfs_sessions 0
is sessionfs_commands_total 0
is process_start_time_seconds "$(stat -c %Y "$mnt/stats")"
[ "$(value process_resident_memory_bytes)" -gt 1000000 ] || fail 'no memory'
[ "$(value process_open_fds)" -gt 3 ] || fail 'no descriptors'
grep -q '^sessionfs_fuse_protocol{version="7\.[0-9]*"} 1$' "$dir/now" ||
    fail 'no version of the protocol'

mkdir "$mnt/sessions/"{a,b,c,d}
echo running >"$mnt/sessions/a/status"
echo running >"$mnt/sessions/b/status"
echo paused >"$mnt/sessions/b/status"
(echo bogus >"$mnt/sessions/a/status") 2>/dev/null
mkdir "$mnt/sessions/a" 2>/dev/null
check
is sessionfs_sessions 4
is 'sessionfs_sessions_by_status{status="absent"}' 2
is 'sessionfs_sessions_by_status{status="running"}' 1
is 'sessionfs_sessions_by_status{status="paused"}' 1
is 'sessionfs_failed_operations_total{errno="EINVAL"}' 1
is 'sessionfs_provider_calls_total{provider="mem",operation="create"}' 2
is sessionfs_deletions_pending 0
is sessionfs_parked_requests 0

# One runs, two wait for it, and their writers.
pids=
for _ in 1 2 3; do
    (echo 'sleep 50000' >"$mnt/sessions/a/exec") 2>/dev/null &
    pids="$pids $!"
done
timeout 10 sh -c "until grep -qx 'sessionfs_commands_queued 2' '$mnt/stats' &&
    grep -qx 'sessionfs_commands_running 1' '$mnt/stats' &&
    grep -qx 'sessionfs_parked_requests 3' '$mnt/stats'; do sleep 0.05; done" ||
    fail 'no queue'
check
is sessionfs_commands_total 3
is sessionfs_commands_running 1
is sessionfs_commands_queued 2
is sessionfs_parked_requests 3
for n in 3 2 1; do
    echo KILL >"$mnt/sessions/a/execs/$n/signal"
done
# shellcheck disable=SC2086  # words
wait $pids
timeout 10 sh -c "until grep -qx 'sessionfs_parked_requests 0' '$mnt/stats'
do sleep 0.05; done"
check
# The kernel asks for an attribute before each write.
is 'sessionfs_failed_operations_total{errno="EOPNOTSUPP"}' ''
is sessionfs_commands_running 0
is sessionfs_commands_queued 0
is sessionfs_parked_requests 0
is sessionfs_commands_total 3

# With many sessions it is still cheap; the kernel asks twice for each cat.
# e2e_scale_long has ten thousand.
seq -f "$mnt/sessions/s%g" 2000 | xargs mkdir || fail 'mkdir failed'
check
is sessionfs_sessions 2004
is 'sessionfs_sessions_by_status{status="absent"}' 2002
least=1000
for _ in 1 2 3 4 5 6 7 8 9 10; do
    start=$(date +%s%N)
    cat "$mnt/stats" >/dev/null
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$took" -ge "$least" ] || least=$took
done
# Nobody in the way, it takes some five.
[ "$least" -le 100 ] || fail "takes $least ms with 2000 sessions"
finish

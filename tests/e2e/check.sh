#!/bin/sh
# Asks --check what works, in places where something does not; all in a mount
# namespace of its own, with a /tmp that must stay empty.
# usage: check.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
# shellcheck disable=SC2034  # alone takes it
scratch=/var/tmp
alone 1 "$@"

program=$1
lists=$2
dir=$2/place
failed=0

# Here everybody may look, and a new /tmp hides nothing.
chmod 755 "$lists"
mkdir -m 755 "$dir" "$dir/bin" "$dir/mnt"
cp "$program" "$program-keeper" "$dir/bin" || exit 1
program=$dir/bin/sessionfs
mount -t tmpfs none /tmp || exit 1
chmod 1777 /tmp

fail()
{
    echo "check: $1"
    echo "$said"
    failed=1
}

# Mounts, and the files of the place with modes and times.
list_all()
{
    cat /proc/self/mounts
    find "$dir" /tmp -printf '%p %m %T@\n' | sort
}

# expect STATUS LINES COMMAND...: what a check says, and that nothing changed
# but the time of /tmp.
expect()
{
    status=$1
    lines=$2
    shift 2
    list_all | sed '/^\/tmp /d' >"$lists/before"
    said=$("$@" 2>&1)
    rc=$?
    list_all | sed '/^\/tmp /d' >"$lists/after"
    [ "$rc" -eq "$status" ] || fail "status $rc, not $status"
    # What is told besides is not the same on each machine.
    [ "$(echo "$said" | grep -v '^  ')" = "$lines" ] ||
        fail "expected: $lines"
    diff "$lists/before" "$lists/after" || fail 'something changed'
}

all='fuse: works
store: works
sandboxes:
provider jsonl: works
provider local: works
provider mem: works'
expect 0 "$all" "$program" --check -o "state=$dir/state"
for line in 'protocol: 7\.[0-9]*' 'changes behind the kernel: .*' \
    'passthrough: .*' 'user namespaces: .*' 'overlay: .*' 'cgroup2: .*' \
    'limit memory_bytes: .*'; do
    echo "$said" | grep -qx "  $line" || fail "no line '$line'"
done
expect 0 "$all" "$program" --check -o "state=$dir/a/b/c" "$dir/mnt"
expect 1 "$all
provider nobody: there is no such provider" \
    "$program" --check -o "state=$dir/state,provider=nobody"

mkdir "$dir/foreign"
touch "$dir/foreign/file"
expect 1 "$(echo "$all" | sed "2s|works|does not work: \
state directory '$dir/foreign' holds other files and is not of mode 0700|")" \
    "$program" --check -o "state=$dir/foreign"

mkdir -m 700 "$dir/locked"
echo 123 >"$dir/locked/lock"
expect 0 "$all" \
    flock "$dir/locked/lock" "$program" --check -o "state=$dir/locked"
echo "$said" | grep -qx "  state directory '$dir/locked' is in use by process \
123" || fail 'no word of who uses the state'
expect 0 "$all" "$program" --check -o "state=$dir/locked"

for above in /proc /sys/fs; do
    expect 1 "$(echo "$all" | sed "2s|works|does not work: \
make state directory '$above/x' below '$above': its file system holds no \
files|")" "$program" --check -o "state=$above/x"
done

mkdir -m 700 "$dir/profiles"
echo '{"provider":"mem"}' >"$dir/profiles/good.json"
expect 0 "$(echo "$all" | sed '2a\
profiles: works')" "$program" --check -o "state=$dir/state,profiles=$dir/profiles"
echo '{' >"$dir/profiles/bad.json"
"$program" --check -o "state=$dir/state,profiles=$dir/profiles" >"$lists/said" &&
    fail 'a profile that is no JSON works'
grep -q "^profiles: does not work: .*bad" "$lists/said" ||
    fail "$(cat "$lists/said")"

cat >"$dir/profiles/bad.json" <<'END'
{"provider":"jsonl","provider_config":{"program":"/none"}}
END
cp "$dir/profiles/bad.json" "$dir/profiles/worse.json"
expect 0 "$(echo "$all" | sed '2a\
profiles: works')" "$program" --check -o "state=$dir/state,profiles=$dir/profiles"
for name in bad worse; do
    echo "$said" | grep -qx "  profile '$name' would not make a session: \
provider_config key 'program': '/none': No such file or directory" ||
        fail "no word of the profile '$name'"
done

mkdir -m 700 "$dir/readonly"
mount -t tmpfs -o ro,mode=700 none "$dir/readonly"
expect 1 "$(echo "$all" | sed "2s|works|does not work: \
make state directory '$dir/readonly/state' below '$dir/readonly': \
Read-only file system|")" \
    "$program" --check -o "state=$dir/readonly/state"
umount "$dir/readonly"

# Another user: may not mount without help.
as_nobody()
{
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
mknod -m 666 "$dir/fuse" c 10 229
mount --bind "$dir/fuse" /dev/fuse
mkdir -m 755 "$dir/home"
chown 65534:65534 "$dir/home"
expect 1 'fuse: does not work: no right to mount, and no setuid fusermount3 in the path
store: works
sandboxes:
provider jsonl: works
provider local: works
provider mem: works' as_nobody env PATH=/nowhere HOME="$dir/home" \
    "$program" --check
mkdir -m 755 "$dir/path"
cp /bin/true "$dir/path/fusermount3"
chmod 4755 "$dir/path/fusermount3"
expect 0 'fuse: works
store: works
sandboxes:
provider jsonl: works
provider local: works
provider mem: works' as_nobody env PATH="/nowhere:$dir/path" HOME="$dir/home" \
    "$program" --check -o "state=$dir/home/state,provider=mem"
umount /dev/fuse

mount -t tmpfs none /dev
mknod -m 666 /dev/null c 1 3
expect 1 "$(echo "$all" | sed "1s|works|does not work: \
/dev/fuse: No such file or directory|")" \
    "$program" --check -o "state=$dir/state"
exit $failed

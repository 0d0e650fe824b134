#!/bin/sh
# Works on a real project in a session, as a person would: unpacks it through
# the mount, commits, configures and builds it by `exec`, edits it through the
# mount, builds and commits again. The same steps run in a plain directory, and
# each result must be equal.
# usage: real_project.sh PROGRAM DIR_WITH_THE_SOURCE
set -u

program=$1
source=$2/busybox_1.35.0.orig.tar.bz2

# skip REASON: at home a reason not to run; where everything was asked for, a
# failure.
skip()
{
    echo "real_project: $1"
    [ "${CI:-}" = true ] && exit 1
    exit 77
}

[ "$(id -u)" -eq 0 ] || skip "the local provider must run as root"
[ -c /dev/fuse ] || skip "no /dev/fuse"
[ -f "$source" ] || skip "no $source; contrib/check fetches it"
for tool in git gcc make bzip2 vim.tiny; do
    command -v "$tool" >/dev/null || skip "no $tool"
done

dir=$(mktemp -d /tmp/real_project.XXXXXX) || exit 1
mnt=$dir/mnt
session=$mnt/sessions/project
plain=$dir/plain
results=$dir/results
mkdir "$mnt" "$plain" "$results" "$results/plain" "$results/session"

cleanup()
{
    [ -z "${plain_pid:-}" ] || kill "$plain_pid" 2>/dev/null
    if grep -q " $mnt fuse" /proc/self/mounts; then
        echo absent >"$session/status" || :
        umount "$mnt" || umount -l "$mnt"
    fi
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

fail()
{
    echo "real_project: $1"
    [ ! -r "$session/error" ] || sed 's/^/error: /' "$session/error"
    exit 1
}

# The settings that make two runs of the same steps equal.
settings='export LC_ALL=C TZ=UTC KCONFIG_NOTIMESTAMP=1 SOURCE_DATE_EPOCH=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE="@1 +0000" GIT_COMMITTER_DATE="@1 +0000"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
umask 022
'
eval "$settings"

# command SIDE NAME SCRIPT: runs a script in the tree, as a command of the
# session or with the shell, and keeps its output and its exit code.
command_in()
{
    kept=$results/$1/$2
    if [ "$1" = plain ]; then
        (cd "$plain" && sh -c "$settings$3") >"$kept.out" 2>&1 </dev/null
        echo $? >"$kept.code"
        return
    fi
    printf '%s\n' "$settings$3" >"$session/exec" ||
        fail "$2: cannot write to exec"
    cat "$session/exec" >"$kept.out" || fail "$2: cannot read exec"
    cat "$session/execs/last/exit_code" >"$kept.code"
}

# manifest TREE: every file's type, mode, size and content, as seen from here,
# but for git's own and for the one where the build writes the tree's path.
manifest()
{
    (
        cd "$1" || exit 1
        find . '(' -path ./.git -o -name .busybox_unstripped.cmd ')' -prune \
            -o -type f -printf '%p %m %s\n' -exec sha256sum '{}' + \
            -o -type l -printf '%p -> %l\n' -o -printf '%p %y %m\n' | sort
    )
}

# steps SIDE TREE
steps()
{
    side=$1
    tree=$2

    tar xjf "$source" -C "$tree" --no-same-owner --strip-components=1 ||
        fail "$side: tar failed"
    manifest "$tree" >"$results/$side/unpacked"

    command_in "$side" commit '
        git init -q . && git add -A && git commit -q -m "As unpacked" &&
        git rev-parse HEAD && git ls-tree -r HEAD && git status --porcelain'
    git -C "$tree" -c safe.directory='*' status --porcelain \
        >"$results/$side/status" || fail "$side: git status failed"

    command_in "$side" configure '
        make -s allnoconfig >/dev/null &&
        sed -i -E "s/^# CONFIG_(BUSYBOX|CAT|MD5SUM|SEQ|SHOW_USAGE) is not set/CONFIG_\1=y/" \
            .config && yes "" | make -s oldconfig >/dev/null && cat .config'
    command_in "$side" build '
        make -s -j2 >/dev/null 2>&1 && ./busybox seq 3 &&
        ./busybox md5sum README && sha256sum busybox'
    command_in "$side" failing 'make -s no-such-target; exit 3'

    vim.tiny -es -u NONE -c '%s/\<Usage: busybox\>/Usage: sandboxed/' -c wq \
        "$tree/libbb/appletlib.c" || fail "$side: vim failed"
    sed -i "s/can't open '/cannot read '/" "$tree/libbb/wfopen_input.c" \
        "$tree"/libbb/xfuncs_printf.c || fail "$side: sed failed"
    manifest "$tree" >"$results/$side/edited"

    command_in "$side" rebuild '
        make -s -j2 >/dev/null 2>&1; ./busybox | sed -n "/^Usage/p"
        ./busybox cat missing 2>&1; ./busybox cat .config | ./busybox md5sum
        sha256sum busybox'
    command_in "$side" recommit '
        git commit -q -a -m "Edited" && git rev-parse HEAD &&
        git show --stat --format=%B && git status --porcelain && git fsck'
    manifest "$tree" >"$results/$side/built"
}

"$program" -o "state=$dir/state" "$mnt" || fail "the program did not mount"
mkdir "$session" || fail "cannot make the session"

(
    trap - EXIT
    steps plain "$plain"
) &
plain_pid=$!
steps session "$session/workspace"
wait "$plain_pid" || fail "the steps in a plain directory failed"
plain_pid=

# Results that say nothing would be equal too.
for check in 'commit.code 0' 'build.code 0' 'failing.code 3' \
    'rebuild.out Usage: sandboxed' "rebuild.out cannot read 'missing'" \
    'recommit.code 0'; do
    grep -q "${check#* }" "$results/plain/${check%% *}" ||
        fail "the plain directory's ${check%% *} has no '${check#* }'"
done
[ "$(grep -c . "$results/plain/unpacked")" -gt 5000 ] ||
    fail "the project is not as large as it should be"

diff -r "$results/plain" "$results/session" >"$dir/differences" || {
    head -n 60 "$dir/differences"
    fail "the session's results differ from the plain directory's"
}

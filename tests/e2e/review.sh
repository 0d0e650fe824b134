#!/bin/sh
# Does what README.md says of work on a real directory, line by line, in a
# mount namespace where that directory is a scratch one.
# usage: review.sh PROGRAM README
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
alone 2 "$@"

program=$1
readme=$2
dir=$3
export HOME="$dir"
mkdir -p "$dir/sb" "$dir/srv/app" "$dir/profiles" || exit 1
mount --bind "$dir/srv" /srv || exit 1

cleanup()
{
    cd /
    echo absent 2>/dev/null >"$dir/sb/sessions/try/status"
    umount "$dir/sb" || umount -l "$dir/sb"
    wait_end "$dir/state"
}
at_end cleanup

fail()
{
    echo "review: $1"
    exit 1
}

# block LANGUAGE N: the N-th of that section.
block()
{
    sed -n '/^## Work on a real directory$/,/^## Add/p' "$readme" |
        awk -v start="\140\140\140$1" -v n="$2" '
            $0 == "\140\140\140" { inside = 0 }
            inside { print }
            $0 == start && ++seen == n { inside = 1 }'
}

block json 1 >"$dir/profiles/agent.json"
grep -q /srv/app "$dir/profiles/agent.json" || fail 'README shows no base'
for n in 1 2 3; do
    block sh "$n" >"$dir/$n.sh"
    [ -s "$dir/$n.sh" ] || fail "README has no block $n"
done

cd /srv/app || exit 1
echo 'one' >main.c
echo 'util' >util.c
echo 'old' >old.c
echo 'same' >same.c
chown -R 4711:4711 /srv/app
find . -printf '%p %T@ %C@ %s %U %m\n' | sort >"$dir/before"

"$program" -o "state=$dir/state,profiles=$dir/profiles" "$dir/sb" || exit 1
sh -eu "$dir/1.sh" >"$dir/said" || fail 'the session fails'
printf 'A\tlib\nA\tlib/util.c\nM\tmain.c\nD\told.c\nD\tutil.c\n' |
    diff -u - "$dir/said" || fail 'changes/base says something else'
find . -printf '%p %T@ %C@ %s %U %m\n' | sort | diff -u "$dir/before" - ||
    fail 'the base has changed'

# Names and kinds of files that a loop may stumble over.
session=$dir/sb/sessions/try
cat >"$session/exec" <<'END'
mkdir -p -m 700 'a dir/ b' && echo x >'a dir/ b/-n' && ln -s ../main.c 'a dir/l'
ln -sf main.c same.c && mkfifo 'a dir/pipe' && echo x >'tab	name'
chmod 755 main.c && printf 'no newline' >'%s' && touch -- '-rf'
END
cat "$session/changes/base" >"$dir/list"
[ "$(stat -c %s "$session/changes/base")" = "$(stat -c %s "$dir/list")" ] ||
    fail 'the size is wrong'
[ -z "$(ls "$session/changes")" ] || fail 'changes/ lists something'

cd "$session" || exit 1
sh -eu -c "$(head -n 1 "$dir/2.sh")" || fail 'it cannot be paused'
sh -u "$dir/2.sh" >"$dir/diff"
grep -q '^+two' "$dir/diff" || fail 'diff does not show what changed'
sh -eu "$dir/3.sh" >"$dir/said" || fail 'the loop fails'
[ "$(cat "$dir/said")" = \
    'Strange, do it by hand: A "tab\tname"' ] || {
    cat "$dir/said"
    fail 'the loop says something else'
}
[ -p '/srv/app/a dir/pipe' ] || fail 'the FIFO is none'
rm -f "workspace/tab	name" workspace/*/pipe /srv/app/*/pipe
diff -r --no-dereference /srv/app workspace || fail 'not all was taken over'
[ "$(stat -c %a '/srv/app/a dir/ b' /srv/app/main.c | tr '\n' ' ')" = \
    '700 755 ' ] || fail 'modes are not as they were'

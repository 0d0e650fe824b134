#!/bin/sh
# Checks the manual pages: their markup, and that they tell of the options that
# --help tells of, and of the files that a mount has.
# usage: man.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
build=$2
command -v mandoc >/dev/null || exit 77
failed=0

# same WHAT A B: two lists, each sorted.
same()
{
    printf '%s\n' "$2" >"$build/man.1st"
    printf '%s\n' "$3" >"$build/man.2nd"
    [ -n "$2" ] && diff -u --label "$1" --label 'manual page' \
        "$build/man.1st" "$build/man.2nd" || failed=1
}

# Whether another manual page is installed is no matter of ours.
found=$(git ls-files -z '*.[1-9]' | xargs -0 mandoc -T lint 2>&1 |
    grep -vE 'referenced manual not found|outdated mandoc\.db')
[ -z "$found" ] || {
    printf '%s\n' "$found"
    failed=1
}

# same_options PAGE ARGUMENT...: the options of a page, and of --help.
same_options()
{
    page=$1
    shift
    same "$* --help" "$("$build/bin/sessionfs" "$@" --help |
        sed -nE '/^  -/{s/^  //;s/  .*//;p}' | sort)" \
        "$(sed -nE 's/^\.It (Fl .*)/\1/p' "$page" |
            sed -E 's/Fl /-/g; s/ Ns = Ns Ar /=/; s/ (Cm|Ar)//; s/ ,/,/' | sort)"
}

same_options fs/sessionfs.1
same_options fs/sessionfs-run.1 run
same files "$("$build/bin/lint_files" | sort)" \
    "$(sed -n '/^\.Sh FILES/,/^\.S[hs] /s/^\.It Pa //p' fs/sessionfs.5 | sort)"
exit $failed

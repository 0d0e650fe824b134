#!/bin/sh
# Checks who includes what, where the linker cannot see it.
# usage: layering.sh SOURCE_DIR
set -u
cd "$1" || exit 1
failed=0

# only WHAT PATTERN PLACES: an include that matches PATTERN stands only in
# files whose path matches PLACES; WHAT names the rule.
only()
{
    found=$(git ls-files -z core fs providers |
        xargs -0 grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*$2" |
        grep -vE "^($3):")
    if [ -n "$found" ]; then
        printf '%s:\n%s\n' "$1" "$found"
        failed=1
    fi
}

only 'FUSE is included outside fs' '[<"]fuse' 'fs/[^:]*'
only 'curl is included outside core/http' '[<"]curl' 'core/http[^/:]*'
only 'SQLite is included outside core/store' '[<"]sqlite' 'core/store[^/:]*'
only 'jansson is included outside core/json' '[<"]jansson' 'core/json[^/:]*'
only 'fs is included outside fs' '"(\.\./)*fs/' 'fs/[^:]*'
only 'providers are included outside providers' '"(\.\./)*providers/' \
    'providers/[^:]*|fs/main\.c'

found=$(git ls-files -z core fs | xargs -0 grep -nE 'provider_(table|local|mem)\b' |
    grep -vE '^(fs/main\.c|core/provider\.[ch]):')
if [ -n "$found" ]; then
    printf 'a provider is named outside fs/main.c:\n%s\n' "$found"
    failed=1
fi

found=$(git ls-files -z core | xargs -0 grep -n 'sqlite3_finalize' |
    grep -v '^core/store_stmt\.c:')
if [ -n "$found" ]; then
    printf 'a statement is not given back by store_finish():\n%s\n' "$found"
    failed=1
fi
exit $failed

#!/bin/bash
# Checks what bash would complete, by calling the function as bash does.
# usage: completion.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
PATH=$2/bin:$PATH
failed=0
# shellcheck disable=SC1091  # checked by itself
. contrib/completion/sessionfs.bash

# expect REPLY WORD...: the words as bash cuts them, also at `=`.
expect()
{
    local want=$1 got
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMP_LINE="$*"
    COMP_LINE=${COMP_LINE// = /=}
    COMP_LINE=${COMP_LINE/% =/=}
    COMP_POINT=${#COMP_LINE}
    _sessionfs sessionfs
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')
    if [ "$got" != "$want " ]; then
        echo "'$COMP_LINE': '$got', not '$want '"
        failed=1
    fi
}

# As the check of the manual page has them, but a word each.
flags=$(sessionfs --help | sed -nE '/^  -/{s/^  //;s/  .*//;p}' |
    tr -s ' ,' '\n' | grep '^-' | sort -u | tr '\n' ' ')
options=$(sessionfs --help | sed -nE 's/^  -o ([a-z_]+=?).*/\1/p' | sort |
    tr '\n' ' ')
expect "${flags% }" sessionfs -
expect '--help' sessionfs --he
expect '--check' sessionfs --ch
expect 'fs/main.c' sessionfs --config fs/main.
expect "${options% }" sessionfs -o ''
expect 'state=' sessionfs -o st
expect 'ro,state=' sessionfs -o ro,st
expect 'jsonl local mem' sessionfs -o provider =
expect 'local' sessionfs -o provider = l
expect 'x,provider=' sessionfs -o state = x,prov
expect 'contrib/completion' sessionfs -o state = contrib/compl
expect 'contrib/completion' sessionfs contrib/compl
expect 'run' sessionfs ru
expect 'serve' sessionfs serv
expect '--check' sessionfs serve --ch
expect '--json' sessionfs run demo --js
expect '' sessionfs --ready-fd ''
exit $failed

#!/bin/sh
# Checks that the files say what they have to say themselves: no lists of what
# is left to do, and no number that a reader would have to look up elsewhere.
# The brackets keep each pattern from matching itself.
# usage: words.sh SOURCE_DIR
set -u
cd "$1" || exit 1
patterns='\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b
[Ii]ssu[e]s? #?[0-9]'
! git ls-files -z | xargs -0 grep -nIE "$patterns"

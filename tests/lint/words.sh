#!/bin/sh
# Checks that the files speak of the program, not of the machine, the tools or
# the day on which they were written. The brackets keep each pattern from
# matching itself.
# usage: words.sh SOURCE_DIR
set -u
cd "$1" || exit 1
patterns='/wor[k]([^a-z]|$)
/tmp/w[t]([^a-z]|$)
shared/desig[n]
\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b
[Ii]ssu[e]s? #?[0-9]
\b(LL[M]|CE[O]|GP[T]|A[I])\b
[Cc]laud[e]
[Aa]nthropi[c]
[Hh]elper sessio[n]
[Ww]orkplac[e]'
! git ls-files -z | xargs -0 grep -nIE "$patterns"

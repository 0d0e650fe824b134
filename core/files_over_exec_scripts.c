/*
 * The scripts of core/files_over_exec: for a POSIX shell, with the tools of
 * GNU, busybox or toybox. Names are arguments that are always quoted and begin
 * with `./` where a tool sees them. They exit with 0, or a number that stands
 * for an errno. See files_over_exec.h.
 */
#include "core/files_over_exec_priv.h"

/* Attributes as `stat -c` tells them; over_record() reads them. */
#define F "'x%f %s %i %h %u %g %b %X %x|%Y %y|%Z %z|%n//'"
/* The same as GNU's find does, which is quicker. */
#define G "'%y%m %s %i %n %U %G %b %A@|%T@|%C@|%p//\\n'"

/* Every script begins so: into the directory $1, to the name $2. */
#define PLACE "go \"$1\"\nname \"$2\"\nf=./$2\n"
/* And one for a file whose data is wanted. */
#define PLAIN PLACE "there \"$f\"\nplain\n"

const char over_stat[] = PLACE "[ \"$2\" ] || f=.\n"
                               "there \"$f\"\n"
                               "show \"$f\"\n";

/* How entries are told: whether find can do it by itself. */
#define HOW                                                                    \
    "g=\n"                                                                     \
    "if find . -prune -printf " G " >/dev/null 2>&1; then\n"                   \
    "    g=find\n"                                                             \
    "else\n"                                                                   \
    "    command -v stat >/dev/null || exit $EOPNOTSUPP\n"                     \
    "fi\n"

/* The entries of the directory that one is in. */
#define ENTRIES                                                                \
    "if [ \"$g\" ]; then\n"                                                    \
    "    find . -mindepth 1 -maxdepth 1 -printf " G " 2>/dev/null\n"           \
    "else\n"                                                                   \
    "    find . ! -name . -prune -exec stat -c " F " {} + 2>/dev/null\n"       \
    "fi"

const char over_look[] = PLACE "[ \"$2\" ] || f=.\n"
                               "there \"$f\"\n"
                               "show \"$f\"\n"
                               "isdir \"$f\" && [ -r \"$f\" ] &&\n"
                               "    cd \"$f\" 2>/dev/null || exit 0\n" HOW
                               "echo d\n" ENTRIES " | head -c \"$3\"\n"
                               "echo e\n"
                               "exit 0\n";

/* Into a directory that is listed. */
#define LISTED                                                                 \
    "go \"$1\"\n"                                                              \
    "[ -r . ] && [ -x . ] || exit $EACCES\n"

const char over_list[] = LISTED HOW ENTRIES " | head -c \"$2\"\nexit 0\n";

const char over_names[] =
    LISTED "command -v xargs >/dev/null || exit $EOPNOTSUPP\n"
           "find . -prune -print0 >/dev/null 2>&1 || exit $EOPNOTSUPP\n"
           "find . ! -name . -prune -print0 2>/dev/null\n"
           "exit 0\n";

const char over_named[] = LISTED "xargs -0 stat -c " F " 2>/dev/null\n"
                                 "exit 0\n";

const char over_tree[] =
    LISTED HOW "if [ \"$g\" ]; then\n"
               "    find . -mindepth 1 -printf " G " 2>/dev/null\n"
               "else\n"
               "    find . ! -name . -exec stat -c " F " {} + 2>/dev/null\n"
               "fi | head -c \"$2\"\n"
               "exit 0\n";

/* $3: the umask; $4: a mode that it cannot give, or none. */
const char over_create[] = PLACE "is \"$f\" && exit $EEXIST\n"
                                 "umask \"$3\"\n"
                                 "set -C\n"
                                 "{ true >\"$f\"; } 2>/dev/null || {\n"
                                 "    is \"$f\" && exit $EEXIST\n"
                                 "    stuck\n"
                                 "}\n"
                                 "[ ! \"$4\" ] || chmod \"$4\" \"$f\"\n"
                                 "show \"$f\"\n";

/* $3: the mode; $4: whether mkdir may not take it. */
const char over_make_dir[] = PLACE "is \"$f\" && exit $EEXIST\n"
                                   "mkdir -m \"$3\" \"$f\" 2>/dev/null || {\n"
                                   "    is \"$f\" && exit $EEXIST\n"
                                   "    stuck\n"
                                   "}\n"
                                   "[ ! \"$4\" ] || chmod \"$3\" \"$f\"\n"
                                   "show \"$f\"\n";

/* $3: whether it is a directory. */
const char over_remove[] = PLACE "there \"$f\"\n"
                                 "if [ \"$3\" ]; then\n"
                                 "    isdir \"$f\" || exit $ENOTDIR\n"
                                 "    rmdir \"$f\" 2>/dev/null && exit 0\n"
                                 "    full_dir \"$f\" && exit $ENOTEMPTY\n"
                                 "else\n"
                                 "    isdir \"$f\" && exit $EISDIR\n"
                                 "    rm -f \"$f\" 2>/dev/null\n"
                                 "    is \"$f\" || exit 0\n"
                                 "fi\n"
                                 "is \"$f\" || exit $ENOENT\n"
                                 "stuck\n";

/* $3, $4: the new directory and name; $5: n for NOREPLACE, x for EXCHANGE.
 * Without -T, mv takes a directory, or a link to one, for a place to put
 * things into. */
const char over_rename[] = PLACE
    "there \"$f\"\n"
    "cd \"$r\"\n"
    "go \"$3\"\n"
    "name \"$4\"\n"
    "cd \"$r\"\n"
    "a=./${1:+$1/}$2 b=./${3:+$3/}$4\n"
    "case $5 in\n"
    "x)\n"
    "    is \"$b\" || exit $ENOENT\n"
    "    mv --exchange -T \"$a\" \"$b\" 2>/dev/null || exit $EINVAL\n"
    "    exit 0\n"
    "    ;;\n"
    "n)\n"
    "    is \"$b\" && exit $EEXIST\n"
    "    if [ -f \"$a\" ] && [ ! -L \"$a\" ] && ln \"$a\" \"$b\"; then\n"
    "        rm -f \"$a\"\n"
    "        exit 0\n"
    "    fi 2>/dev/null\n"
    "    is \"$b\" && exit $EEXIST\n"
    "    if isdir \"$a\" && ! mkdir \"$b\" 2>/dev/null; then\n"
    "        is \"$b\" && exit $EEXIST\n"
    "    fi\n"
    "    ;;\n"
    "esac\n"
    "if [ ! -L \"$a\" ] && [ ! -L \"$b\" ] && [ \"$a\" -ef \"$b\" ]; then\n"
    "    exit 0\n"
    "elif isdir \"$b\"; then\n"
    "    isdir \"$a\" || exit $EISDIR\n"
    "    full_dir \"$b\" && exit $ENOTEMPTY\n"
    "elif is \"$b\"; then\n"
    "    isdir \"$a\" && exit $ENOTDIR\n"
    "fi\n"
    "mv -fT \"$a\" \"$b\" 2>/dev/null && exit 0\n"
    "is \"$a\" || exit $ENOENT\n"
    "[ -L \"$b\" ] && rm -f \"$b\" 2>/dev/null\n"
    "isdir \"$b\" && { rmdir \"$b\" 2>/dev/null || exit $ENOTEMPTY; }\n"
    "mv -f \"$a\" \"$b\" 2>/dev/null && exit 0\n"
    "(cd \"./$1\" && stuck_dir)\n"
    "e=$?\n"
    "[ $e = $EIO ] || exit $e\n"
    "cd \"./$3\" && stuck\n";

/* $3: the target. */
const char over_symlink[] = PLACE "is \"$f\" && exit $EEXIST\n"
                                  "ln -s -- \"$3\" \"$f\" 2>/dev/null || {\n"
                                  "    is \"$f\" && exit $EEXIST\n"
                                  "    stuck\n"
                                  "}\n"
                                  "show \"$f\"\n";

const char over_read_link[] = PLACE "there \"$f\"\n"
                                    "[ -L \"$f\" ] || exit $EINVAL\n"
                                    "readlink \"$f\"\n";

/* $3 mode, $4 uid, $5 gid, $6 size, $7 atime, $8 mtime; each may be none. */
const char over_set_attr[] =
    PLACE "[ \"$2\" ] || f=.\n"
          "there \"$f\"\n"
          "if [ \"$6\" ]; then\n"
          "    plain\n"
          "    writable\n"
          "    truncate -c -s \"$6\" \"$f\" 2>/dev/null ||\n"
          "        dd if=/dev/null of=\"$f\" bs=1 seek=\"$6\" 2>/dev/null ||\n"
          "        stuck\n"
          "fi\n"
          "if [ \"$4$5\" ]; then\n"
          "    chown -h \"$4${5:+:$5}\" \"$f\" 2>/dev/null || denied\n"
          "fi\n"
          "if [ \"$3\" ]; then\n"
          "    [ -L \"$f\" ] && exit $EOPNOTSUPP\n"
          "    chmod \"$3\" \"$f\" 2>/dev/null || denied\n"
          "fi\n"
          "[ ! \"$7\" ] || date_it -a \"$7\" \"$f\" || denied\n"
          "[ ! \"$8\" ] || date_it -m \"$8\" \"$f\" || denied\n";

/* $3, $4: the new directory and name. */
const char over_link[] = PLACE "there \"$f\"\n"
                               "isdir \"$f\" && exit $EPERM\n"
                               "cd \"$r\"\n"
                               "go \"$3\"\n"
                               "name \"$4\"\n"
                               "cd \"$r\"\n"
                               "a=./${1:+$1/}$2 b=./${3:+$3/}$4\n"
                               "is \"$b\" && exit $EEXIST\n"
                               "p=\n"
                               "[ -L \"$a\" ] && p=-P\n"
                               "ln $p \"$a\" \"$b\" 2>/dev/null && exit 0\n"
                               "is \"$b\" && exit $EEXIST\n"
                               "cd \"./$3\" && stuck_dir\n"
                               "exit $EPERM\n";

const char over_statfs[] = "df -Pk . 2>/dev/null || exit $EOPNOTSUPP\n"
                           "df -Pi . 2>/dev/null\n"
                           "exit 0\n";

/* $3: the first block of 64 KiB; $4: how many. */
const char over_read[] =
    PLAIN "[ -r \"$f\" ] || exit $EACCES\n"
          "if command -v dd >/dev/null; then\n"
          "    dd if=\"$f\" bs=65536 skip=\"$3\" count=\"$4\" 2>/dev/null\n"
          "else\n"
          "    tail -c +$(($3 * 65536 + 1)) \"$f\" 2>/dev/null |\n"
          "        head -c $(($4 * 65536))\n"
          "fi || exit $EIO\n";

/* $3, $4: where to, in blocks of 64 KiB and bytes; $5: how many bytes. The
 * shell opens the file, dd moves the place in it, cat writes. Without dd the
 * file is put together anew. */
const char over_write[] =
    PLAIN "writable\n"
          "move() {\n"
          "    dd bs=65536 seek=\"$1\" count=0 conv=notrunc &&\n"
          "        dd bs=1 seek=\"$2\" count=0 conv=notrunc && cat\n"
          "}\n"
          "if command -v dd >/dev/null; then\n"
          "    move \"$3\" \"$4\" 1<>\"$f\" 2>/dev/null || stuck\n"
          "    exit 0\n"
          "fi\n"
          "at=$(($3 * 65536 + $4)) t=./.sessionfs-$$\n"
          "[ \"$(stat -c %s \"$f\")\" -ge $at ] ||\n"
          "    truncate -c -s $at \"$f\" 2>/dev/null || stuck\n"
          "{\n"
          "    head -c $at \"$f\" && cat && tail -c +$((at + $5 + 1)) \"$f\"\n"
          "} >\"$t\" 2>/dev/null && cat \"$t\" >\"$f\"\n"
          "e=$?\n"
          "rm -f \"$t\"\n"
          "[ $e = 0 ] || stuck\n";

/* $3: the size up to which the bytes come along, between the attributes from
 * before and from after. */
const char over_get[] = PLAIN "[ -r \"$f\" ] || exit $EACCES\n"
                              "show \"$f\"\n"
                              "size=$(stat -c %s \"$f\") || exit $EIO\n"
                              "[ \"$size\" -gt \"$3\" ] && exit 0\n"
                              "cat \"$f\" 2>/dev/null || exit $EIO\n"
                              "show \"$f\"\n";

/* $1: the most bytes; then paths. Of those that are files and can be read: the
 * attributes of all, an empty line, their bytes, and the attributes once
 * more. One may have become very large. */
const char over_get_many[] =
    "most=$1\n"
    "shift\n"
    "for f; do\n"
    "    shift\n"
    "    f=./$f\n"
    "    [ -f \"$f\" ] && [ ! -L \"$f\" ] && [ -r \"$f\" ] &&\n"
    "        set -- \"$@\" \"$f\"\n"
    "done\n"
    "[ $# != 0 ] || exit 0\n"
    "show \"$@\"\n"
    "echo\n"
    "cat \"$@\" 2>/dev/null | head -c \"$most\"\n"
    "show \"$@\"\n"
    "exit 0\n";

/* $3: a name for the new file beside the old; $4: whether its bytes come
 * along; $5 mode, $6 atime, $7 mtime, or none; $8: what the file must be:
 * `any`, `none`, or its size and mtime; $9: its new size, without which the
 * bytes of a sender that was killed would be taken for all of them.
 * What has several names keeps them, and is written in its place. */
const char over_put[] =
    PLACE "t=./$3 mode=$5\n"
          "end() {\n"
          "    rm -f \"$t\"\n"
          "    exit \"$1\"\n"
          "}\n"
          "same() {\n"
          "    case $1 in\n"
          "    any) return ;;\n"
          "    none) is \"$f\" && end $ESTALE ; return ;;\n"
          "    esac\n"
          "    w=$(stat -c '%s %Y|%y' \"$f\" 2>/dev/null) || end $ESTALE\n"
          "    n=000000000\n"
          "    case $w in *.*) n=${w#*.} ;; esac\n"
          "    [ \"${w%%|*}.${n%% *}\" = \"$1\" ] || end $ESTALE\n"
          "}\n"
          "[ -L \"$f\" ] && end $ELOOP\n"
          "[ -d \"$f\" ] && end $EISDIR\n"
          "same \"$8\"\n"
          "size=$9 need=$(($9 / 1024)) links=1\n"
          "if [ -e \"$f\" ]; then\n"
          "    set -- \"$@\" $(stat -c '%h %a %u:%g' \"$f\")\n"
          "    links=${10} mode=${mode:-${11}} owner=${12}\n"
          "fi\n"
          "if [ \"$4\" ]; then\n"
          "    { umask 077; cat >\"$t\"; } 2>/dev/null || {\n"
          "        full \"$need\" && end $ENOSPC\n"
          "        rm -f \"$t\"\n"
          "        stuck\n"
          "    }\n"
          "fi\n"
          "[ \"$(stat -c %s \"$t\" 2>/dev/null)\" = \"$size\" ] || end $EIO\n"
          "if [ \"$links\" -gt 1 ]; then\n"
          "    { cat \"$t\" >\"$f\"; } 2>/dev/null || end $EIO\n"
          "    rm -f \"$t\"\n"
          "    t=$f\n"
          "fi\n"
          "[ \"$owner\" ] && [ \"$(id -u)\" = 0 ] && chown \"$owner\" \"$t\"\n"
          "chmod \"${mode:-644}\" \"$t\" 2>/dev/null || end $EPERM\n"
          "[ ! \"$6\" ] || date_it -a \"$6\" \"$t\" || end $EPERM\n"
          "[ ! \"$7\" ] || date_it -m \"$7\" \"$t\" || end $EPERM\n"
          "if [ \"$t\" != \"$f\" ]; then\n"
          "    same \"$8\"\n"
          "    if [ \"$8\" = none ] && ln \"$t\" \"$f\" 2>/dev/null; then\n"
          "        rm -f \"$t\"\n"
          "    else\n"
          "        [ \"$8\" = none ] && is \"$f\" && end $ESTALE\n"
          "        mv -f \"$t\" \"$f\" 2>/dev/null || end $EIO\n"
          "    fi\n"
          "fi\n"
          "show \"$f\"\n";

/* $3: KiB that it needs. */
const char over_append[] =
    PLACE "{ umask 077; cat >>\"$f\"; } 2>/dev/null && exit 0\n"
          "full \"$3\" && exit $ENOSPC\n"
          "stuck\n";

/* Running the scripts of core/files_over_exec, and reading what they say. */
#include "core/files_over_exec_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_CODE = 64, /* Below 126, which the shell itself uses. */
    SCRIPT_MAX = 16 * 1024,
};

/* What scripts can find out. Each has an exit code. */
static const struct {
    const char *name;
    int errnum;
} errors[] = {
#define ERROR(name_)                                                           \
    {                                                                          \
        .name = #name_, .errnum = (name_)                                      \
    }
    ERROR(ENOENT),    ERROR(ENOTDIR), ERROR(EISDIR), ERROR(EEXIST),
    ERROR(ENOTEMPTY), ERROR(EACCES),  ERROR(ELOOP),  ERROR(ENAMETOOLONG),
    ERROR(ENOSPC),    ERROR(EROFS),   ERROR(EIO),    ERROR(ESTALE),
    ERROR(EINVAL),    ERROR(EPERM),   ERROR(ENXIO),  ERROR(EOPNOTSUPP),
#undef ERROR
};

/*
 * What scripts have in common.
 *
 * go DIR: into a directory of the workspace, following no link.
 * is, isdir, full_dir: whether something is there, a directory, one that
 * holds something.
 * there, plain, writable: go on only where it is so; they and all the
 * following exit otherwise, with the reason.
 * stuck_dir, stuck: a change in this directory has failed.
 * denied: a change of $f has failed.
 */
static const char prelude[] =
    "LC_ALL=C TZ=UTC\n"
    "export LC_ALL TZ\n"
    "unset CDPATH\n"
    "cd -P .\n"
    "r=$PWD\n"
    "is() { [ -e \"$1\" ] || [ -L \"$1\" ]; }\n"
    "isdir() { [ -d \"$1\" ] && [ ! -L \"$1\" ]; }\n"
    "full_dir() {\n"
    "    for e in \"$1\"/* \"$1\"/.[!.]* \"$1\"/..?*; do\n"
    "        is \"$e\" && return\n"
    "    done\n"
    "    false\n"
    "}\n"
    "why() {\n"
    "    p=. q=$1/\n"
    "    while [ \"$q\" ]; do\n"
    "        c=${q%%/*} q=${q#*/}\n"
    "        name \"$c\"\n"
    "        [ -x \"$p\" ] || exit $EACCES\n"
    "        p=$p/$c\n"
    "        [ -L \"$p\" ] && exit $ELOOP\n"
    "        [ -e \"$p\" ] || exit $ENOENT\n"
    "        [ -d \"$p\" ] || exit $ENOTDIR\n"
    "    done\n"
    "    exit $EACCES\n"
    "}\n"
    "go() {\n"
    "    [ \"$1\" ] || return 0\n"
    "    cd -P \"./$1\" 2>/dev/null || why \"$1\"\n"
    "    [ \"$PWD\" = \"${r%/}/$1\" ] || exit $ELOOP\n"
    "}\n"
    "name() { [ ${#1} -le 255 ] || exit $ENAMETOOLONG; }\n"
    "there() {\n"
    "    is \"$1\" && return\n"
    "    [ -x . ] || exit $EACCES\n"
    "    exit $ENOENT\n"
    "}\n"
    "plain() {\n"
    "    [ -L \"$f\" ] && exit $ELOOP\n"
    "    [ -d \"$f\" ] && exit $EISDIR\n"
    "    [ -f \"$f\" ] || exit $ENXIO\n"
    "}\n"
    "refused() {\n"
    "    [ \"$(id -u)\" = 0 ] && exit $EROFS\n"
    "    exit $EACCES\n"
    "}\n"
    "writable() { [ -w \"$f\" ] || refused; }\n"
    "full() {\n"
    "    set -- \"$1\" $(df -Pk . 2>/dev/null | tail -n 1)\n"
    "    [ \"${5:-1}\" -le \"$1\" ] 2>/dev/null\n"
    "}\n"
    "stuck_dir() {\n"
    "    [ -w . ] && [ -x . ] || refused\n"
    "    full 0 && exit $ENOSPC\n"
    "    return $EIO\n"
    "}\n"
    "stuck() {\n"
    "    stuck_dir\n"
    "    [ -k . ] && exit $EPERM\n"
    "    exit $EIO\n"
    "}\n"
    "denied() {\n"
    "    [ -w . ] || [ \"$(id -u)\" != 0 ] || exit $EROFS\n"
    "    exit $EPERM\n"
    "}\n"
    "date_it() {\n"
    "    touch -c -h \"$1\" -d \"@$2\" \"$3\" 2>/dev/null ||\n"
    "        touch -c -h \"$1\" -d \"@${2%.*}\" \"$3\" 2>/dev/null\n"
    "}\n"
    "show() {\n"
    "    command -v stat >/dev/null || exit $EOPNOTSUPP\n"
    "    stat -c 'x%f %s %i %h %u %g %b %X %x|%Y %y|%Z %z|%n//' \"$@\" \\\n"
    "        2>/dev/null\n"
    "}\n";

int over_split(const char *path, struct over_path *out, struct err *err)
{
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    const char *name = slash ? slash + 1 : path;

    if (strlen(path) >= PATH_MAX) {
        return err_set(err, ENAMETOOLONG, "the path is too long");
    }
    memcpy(out->dir, path, size);
    out->dir[size] = '\0';
    memcpy(out->name, name, strlen(name) + 1);
    return 0;
}

static int build(const char *script, struct buf *out)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(errors); i++) {
        rc = buf_printf(out, "%s=%zu\n", errors[i].name, FIRST_CODE + i);
    }
    rc = rc < 0 ? rc : buf_add(out, prelude, strlen(prelude));
    return rc < 0 ? rc : buf_add(out, script, strlen(script));
}

static int fail(int code, struct err *err)
{
    if (code >= FIRST_CODE && (size_t)code - FIRST_CODE < ARRAY_SIZE(errors)) {
        int errnum = errors[code - FIRST_CODE].errnum;

        return err_set(err, errnum, "%s", strerror(errnum));
    }
    return err_set(err, EIO,
                   "a script of ours ended with status %d: has the sandbox a "
                   "shell?",
                   code);
}

int over_run(const struct over *over, struct buf *out, struct err *err)
{
    struct buf text = BUF_INIT(SCRIPT_MAX);
    const struct provider_ops *ops = over->provider->ops;
    int code = 0;
    int rc = build(over->script, &text);

    if (rc < 0) {
        buf_done(&text);
        return err_set(err, -rc, "out of memory");
    }
    /* A file operation is one call, and counted as that already. */
    rc = ops->run(
        over->provider, over->sandbox,
        &(struct provider_script){.text = text.data,
                                  .args = over->list ? over->list : over->args,
                                  .input = over->input,
                                  .input_size = over->input_size,
                                  .most = out->cap - out->size},
        over->limits, out, &code, err);
    buf_done(&text);
    return rc < 0 || code == 0 ? rc : fail(code, err);
}

int over_do(const struct over *over, struct err *err)
{
    struct buf none = BUF_INIT(4096); /* What a tool may say. */
    int rc = over_run(over, &none, err);

    buf_done(&none);
    return rc;
}

/* ---- Records ---- */

struct reader {
    char *at;
    const char *end;
    bool failed;
};

static uint64_t number(struct reader *reader, int base)
{
    char *stop = reader->at;
    uint64_t value = 0;

    if (*reader->at >= '0' && *reader->at <= 'f') {
        value = strtoull(reader->at, &stop, base);
    }
    reader->failed |= stop == reader->at;
    reader->at = stop;
    return value;
}

/* As many as a file can have of anything. */
static int64_t amount(struct reader *reader)
{
    uint64_t value = number(reader, 10);

    reader->failed |= value > INT64_MAX;
    return value > INT64_MAX ? 0 : (int64_t)value;
}

static void skip(struct reader *reader, char c)
{
    if (*reader->at == c) {
        reader->at++;
    } else {
        reader->failed = true;
    }
}

static uint64_t field(struct reader *reader)
{
    uint64_t value = number(reader, 10);

    skip(reader, ' ');
    return value;
}

static int64_t amount_field(struct reader *reader)
{
    int64_t value = amount(reader);

    skip(reader, ' ');
    return value;
}

static mode_t type_of(char c)
{
    switch (c) {
    case 'f':
        return S_IFREG;
    case 'd':
        return S_IFDIR;
    case 'l':
        return S_IFLNK;
    case 'p':
        return S_IFIFO;
    case 's':
        return S_IFSOCK;
    case 'b':
        return S_IFBLK;
    case 'c':
        return S_IFCHR;
    default:
        return 0;
    }
}

/* `x81a4`, or `f644` as find has it. */
static mode_t mode(struct reader *reader)
{
    char kind = *reader->at;
    mode_t value;

    reader->at++;
    value = kind == 'x' ? (mode_t)number(reader, 16)
                        : type_of(kind) | (mode_t)number(reader, 8);
    reader->failed |= !(value & S_IFMT);
    skip(reader, ' ');
    return value;
}

/* Seconds, then the part of one behind the next dot, up to a bar. */
static struct timespec timestamp(struct reader *reader)
{
    bool before = *reader->at == '-';
    struct timespec out = {.tv_nsec = 0};
    long digit = 100000000;
    bool part = false;

    reader->at += before;
    out.tv_sec = amount(reader);
    for (; reader->at < reader->end && *reader->at != '|'; reader->at++) {
        char c = *reader->at;

        if (part && c >= '0' && c <= '9') {
            out.tv_nsec += (c - '0') * digit;
            digit /= 10;
        } else if (part) {
            part = false;
            digit = 0;
        } else if (c == '.') {
            part = digit > 0;
        }
    }
    skip(reader, '|');
    out.tv_sec = before ? -out.tv_sec : out.tv_sec;
    return out;
}

/* The path goes up to two slashes, which are in none. */
static const char *path_in(struct reader *reader)
{
    const char *path = reader->at;
    char *stop = memmem(path, (size_t)(reader->end - path), "//\n", 3);

    if (!stop) {
        reader->failed = true;
        return NULL;
    }
    *stop = '\0';
    reader->at = stop + 3;
    return strncmp(path, "./", 2) == 0 ? path + 2 : path;
}

int over_record(char **at, const char *end, const char **path, struct stat *out)
{
    struct reader reader = {.at = *at, .end = end};
    struct stat attr = {.st_blksize = 4096};

    if (*at >= end) {
        return 0;
    }
    attr.st_mode = mode(&reader);
    attr.st_size = amount_field(&reader);
    attr.st_ino = field(&reader);
    attr.st_nlink = (nlink_t)field(&reader);
    attr.st_uid = (uid_t)field(&reader);
    attr.st_gid = (gid_t)field(&reader);
    attr.st_blocks = amount_field(&reader);
    attr.st_atim = timestamp(&reader);
    attr.st_mtim = timestamp(&reader);
    attr.st_ctim = timestamp(&reader);
    *path = path_in(&reader);
    if (reader.failed) {
        return 0;
    }
    *at = reader.at;
    *out = attr;
    return 1;
}

void over_time(const struct timespec *time, char out[48])
{
    int64_t sec = time->tv_sec;
    long nsec = time->tv_nsec;
    bool before = sec < 0;

    if (before && nsec) { /* -5 and 0.3 are -4.7. */
        sec++;
        nsec = 1000000000 - nsec;
    }
    (void)snprintf(out, 48, "%s%" PRId64 ".%09ld", before ? "-" : "",
                   before ? -sec : sec, nsec);
}

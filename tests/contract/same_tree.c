/* Two trees that should be the same. See same_tree.h. */
#include "tests/contract/same_tree.h"

#include "core/cleanup.h"
#include "core/provider_snapshots.h"
#include "tests/cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    PIECE = 64 * 1024,
    LINKED_MAX = 4096
};

/* The files with more names that were met, in both trees. */
struct linked {
    size_t count;
    struct {
        ino_t a;
        ino_t b;
    } of[LINKED_MAX];
};

struct pair {
    const char *what;
    const char *a;
    const char *b;
    const struct provider_root *root;
    struct linked *linked;
};

/* Says false, for whoever found it. */
static bool differ(const struct pair *pair, const char *path, const char *how)
{
    if (pair->what) {
        print_error("%s: '%s': %s\n  %s\n  %s\n", pair->what, path, how,
                    pair->a, pair->b);
    }
    return false;
}

static void join(char *out, const char *top, const char *path)
{
    (void)snprintf(out, PATH_MAX, "%s%s%s", top, path[0] ? "/" : "", path);
}

/* Of a file whose parts lie elsewhere; NULL: it is whole. */
static void *open_parts(const struct pair *pair, int fd)
{
    const struct provider_parts *parts = pair->root ? pair->root->parts : NULL;
    void *file = NULL;

    if (parts && parts->is(fd)) {
        assert_int_equal(parts->open(pair->root->parts_arg, fd, &file), 0);
    }
    return file;
}

static bool same_content(const struct pair *pair, const char *path,
                         const char *a, const char *b)
{
    static char data[2][PIECE];
    AUTO_FD int in_a = open(a, O_RDONLY | O_CLOEXEC);
    AUTO_FD int in_b = open(b, O_RDONLY | O_CLOEXEC);
    void *parts = open_parts(pair, in_a);
    uint64_t at = 0;
    ssize_t n = 1;
    bool same = true;

    if (in_a < 0 || in_b < 0) {
        return differ(pair, path, "cannot be read");
    }
    while (n > 0) {
        n = parts ? pair->root->parts->read(parts, data[0], PIECE, at)
                  : read(in_a, data[0], PIECE);
        at += n > 0 ? (uint64_t)n : 0;
        if (n != read(in_b, data[1], PIECE) || n < 0 ||
            memcmp(data[0], data[1], (size_t)n) != 0) {
            same = false;
            n = 0;
        }
    }
    if (parts) {
        pair->root->parts->close(parts);
    }
    return same || differ(pair, path, "content");
}

/* "name=value" of each that a workload can set, in the order of names. */
static void read_xattrs(const char *path, char *out, size_t size)
{
    char names[4096];
    ssize_t n = llistxattr(path, names, sizeof(names));

    out[0] = '\0';
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
        char value[256] = "";
        ssize_t got = lgetxattr(path, names + at, value, sizeof(value) - 1);

        if (strncmp(names + at, "user.", 5) == 0 &&
            strncmp(names + at, "user.overlay.", 13) != 0) {
            value[got < 0 ? 0 : got] = '\0';
            (void)snprintf(out + strlen(out), size - strlen(out), "%s=%s\n",
                           names + at, value);
        }
    }
}

/*
 * Names of one file there are names of one file here. Not the other way round:
 * an overlay that is written to may give such names different numbers, and
 * counts names that are hidden.
 */
static bool same_links(const struct pair *pair, const char *path,
                       const struct stat *a, const struct stat *b)
{
    struct linked *linked = pair->linked;

    for (size_t i = 0; i < linked->count; i++) {
        if (linked->of[i].b == b->st_ino) {
            return linked->of[i].a == a->st_ino || differ(pair, path, "links");
        }
    }
    if (b->st_nlink > 1) {
        assert_true(linked->count < LINKED_MAX);
        linked->of[linked->count].a = a->st_ino;
        linked->of[linked->count++].b = b->st_ino;
    }
    return true;
}

static bool same_attr(const struct pair *pair, const char *path, const char *a,
                      const char *b, struct stat *out)
{
    char of_a[8192];
    char of_b[8192];
    struct stat st;

    if (lstat(a, out) < 0 || lstat(b, &st) < 0) {
        return differ(pair, path, "is there once");
    }
    if (out->st_mode != st.st_mode) {
        return differ(pair, path, "mode");
    }
    if (out->st_uid != st.st_uid || out->st_gid != st.st_gid) {
        return differ(pair, path, "owner");
    }
    if (out->st_mtim.tv_sec != st.st_mtim.tv_sec ||
        out->st_mtim.tv_nsec != st.st_mtim.tv_nsec) {
        return differ(pair, path, "time of change");
    }
    if (!S_ISDIR(st.st_mode) && out->st_size != st.st_size) {
        return differ(pair, path, "size");
    }
    if (!S_ISDIR(st.st_mode) && !same_links(pair, path, out, &st)) {
        return false;
    }
    read_xattrs(a, of_a, sizeof(of_a));
    read_xattrs(b, of_b, sizeof(of_b));
    if (strcmp(of_a, of_b) != 0) {
        return differ(pair, path, "attributes");
    }
    return true;
}

static bool same_target(const struct pair *pair, const char *path,
                        const char *a, const char *b)
{
    char of_a[PATH_MAX] = "";
    char of_b[PATH_MAX] = "";

    if (readlink(a, of_a, sizeof(of_a) - 1) < 0 ||
        readlink(b, of_b, sizeof(of_b) - 1) < 0 || strcmp(of_a, of_b) != 0) {
        return differ(pair, path, "target");
    }
    return true;
}

static bool same_path(const struct pair *pair, const char *path);

static bool same_names(const struct pair *pair, const char *path,
                       struct dirent **in_a, int count, struct dirent **in_b,
                       int other)
{
    for (int i = 0; i < count || i < other; i++) {
        if (i >= count || i >= other ||
            strcmp(in_a[i]->d_name, in_b[i]->d_name) != 0) {
            return differ(pair, path, "names");
        }
    }
    return true;
}

static bool same_below(const struct pair *pair, const char *path,
                       const char *name)
{
    char below[PATH_MAX];

    (void)snprintf(below, sizeof(below), "%s%s%s", path, path[0] ? "/" : "",
                   name);
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           same_path(pair, below);
}

static void free_list(struct dirent **list, int count)
{
    for (int i = 0; i < count; i++) {
        free(list[i]);
    }
    free(list);
}

static bool same_list(const struct pair *pair, const char *path, const char *a,
                      const char *b)
{
    struct dirent **in_a = NULL;
    struct dirent **in_b = NULL;
    int count = scandir(a, &in_a, NULL, alphasort);
    int other = scandir(b, &in_b, NULL, alphasort);
    bool same = same_names(pair, path, in_a, count, in_b, other);

    for (int i = 0; same && i < count; i++) {
        same = same_below(pair, path, in_a[i]->d_name);
    }
    free_list(in_a, count);
    free_list(in_b, other);
    return same;
}

static bool same_path(const struct pair *pair, const char *path)
{
    char a[PATH_MAX];
    char b[PATH_MAX];
    struct stat st;

    join(a, pair->a, path);
    join(b, pair->b, path);
    if (!same_attr(pair, path, a, b, &st)) {
        return false;
    }
    if (S_ISDIR(st.st_mode)) {
        return same_list(pair, path, a, b);
    }
    if (S_ISREG(st.st_mode)) {
        return same_content(pair, path, a, b);
    }
    return !S_ISLNK(st.st_mode) || same_target(pair, path, a, b);
}

bool same_tree(const char *a, const char *b, const char *what,
               const struct provider_root *root)
{
    char top_a[PATH_MAX];
    char top_b[PATH_MAX];
    struct linked *linked = calloc(1, sizeof(*linked));
    const struct pair pair = {
        .what = what, .a = top_a, .b = top_b, .root = root, .linked = linked};
    bool same;

    assert_non_null(linked);
    /* A trailing dot: either may be a link to a directory. */
    (void)snprintf(top_a, sizeof(top_a), "%s/.", a);
    (void)snprintf(top_b, sizeof(top_b), "%s/.", b);
    same = same_path(&pair, "");
    free(linked);
    return same;
}

/* What differs between two trees. The provider's lock is held. */
#include "providers/mem/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct telling {
    char path[PATH_MAX];
    provider_change_fn *fn;
    void *arg;
};

/* The names of a directory, sorted; NULL: none. */
struct sorted {
    const struct mem_name **names;
    size_t count;
};

static int by_name(const void *a, const void *b)
{
    const struct mem_name *const *one = a;
    const struct mem_name *const *other = b;

    return strcmp((*one)->name, (*other)->name);
}

static int sort(const struct mem_inode *dir, struct sorted *out)
{
    size_t n = 0;

    *out = (struct sorted){.names = NULL};
    if (!dir || !S_ISDIR(dir->attr.st_mode)) {
        return 0;
    }
    list_each(node, &dir->names)
    {
        n++;
    }
    out->names = calloc(n + 1, sizeof(*out->names));
    if (!out->names) {
        return -ENOMEM;
    }
    list_each(node, &dir->names)
    {
        out->names[out->count++] = container_of(node, struct mem_name, link);
    }
    qsort((void *)out->names, n, sizeof(*out->names), by_name);
    return 0;
}

static bool same(const struct mem_inode *a, const struct mem_inode *b)
{
    return a->attr.st_mode == b->attr.st_mode &&
           a->attr.st_uid == b->attr.st_uid &&
           a->attr.st_gid == b->attr.st_gid &&
           (S_ISDIR(a->attr.st_mode) ||
            (a->attr.st_size == b->attr.st_size &&
             (a->attr.st_size == 0 ||
              memcmp(a->data, b->data, (size_t)a->attr.st_size) == 0)));
}

static int tell_dirs(struct telling *telling, const struct mem_inode *a,
                     const struct mem_inode *b);

/* One path of which there are both, or one is NULL. */
static int tell_here(struct telling *telling, const struct mem_inode *a,
                     const struct mem_inode *b)
{
    bool kind = a && b && ((a->attr.st_mode ^ b->attr.st_mode) & S_IFMT);
    int rc = 0;

    if (a && (!b || kind)) {
        rc = telling->fn(telling->arg, 'D', telling->path);
        a = NULL;
    }
    if (rc < 0 || !b) {
        return rc;
    }
    if (!a) {
        rc = telling->fn(telling->arg, 'A', telling->path);
    } else if (!same(a, b)) {
        rc = telling->fn(telling->arg, 'M', telling->path);
    }
    return rc < 0 ? rc : tell_dirs(telling, a, b);
}

static int tell_below(struct telling *telling, const char *name,
                      const struct mem_inode *a, const struct mem_inode *b)
{
    size_t at = strlen(telling->path);
    int rc;

    if (snprintf(telling->path + at, sizeof(telling->path) - at, "%s%s",
                 at ? "/" : "", name) >= (int)(sizeof(telling->path) - at)) {
        rc = -ENAMETOOLONG;
    } else {
        rc = tell_here(telling, a, b);
    }
    telling->path[at] = '\0';
    return rc;
}

static int merge(struct telling *telling, const struct sorted *a,
                 const struct sorted *b)
{
    size_t i = 0;
    size_t k = 0;
    int rc = 0;

    while (rc == 0 && (i < a->count || k < b->count)) {
        const struct mem_name *one = i < a->count ? a->names[i] : NULL;
        const struct mem_name *other = k < b->count ? b->names[k] : NULL;
        int order =
            one && other ? strcmp(one->name, other->name) : (one ? -1 : 1);

        rc = tell_below(telling, order <= 0 ? one->name : other->name,
                        order <= 0 ? one->inode : NULL,
                        order >= 0 ? other->inode : NULL);
        i += order <= 0;
        k += order >= 0;
    }
    return rc;
}

static int tell_dirs(struct telling *telling, const struct mem_inode *a,
                     const struct mem_inode *b)
{
    struct sorted before, after;
    int rc = sort(a, &before);

    if (rc == 0) {
        rc = sort(b, &after);
        if (rc == 0) {
            rc = merge(telling, &before, &after);
            free((void *)after.names);
        }
        free((void *)before.names);
    }
    return rc;
}

int mem_differ(const struct mem_box *from, const struct mem_box *to,
               provider_change_fn *fn, void *arg)
{
    struct telling telling = {.path = "", .fn = fn, .arg = arg};

    return tell_dirs(&telling, from ? from->root : NULL, to ? to->root : NULL);
}

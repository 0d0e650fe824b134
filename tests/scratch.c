/* A directory for one test. See scratch.h. */
#include "tests/scratch.h"

#include "tests/cmocka.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void scratch_make(char *out, size_t size)
{
    const char *parent = getenv("TMPDIR");
    int n =
        snprintf(out, size, "%s/sessionfs-XXXXXX", parent ? parent : "/tmp");

    assert_true(n > 0 && (size_t)n < size);
    assert_non_null(mkdtemp(out));
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void scratch_remove(const char *dir)
{
    assert_int_equal(
        nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
}

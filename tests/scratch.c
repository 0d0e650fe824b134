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

static int remove_all(const char *dir)
{
    return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void scratch_remove(const char *dir)
{
    if (remove_all(dir) != 0) {
        char command[512];

        /* To a user who is not root some of it may be shut. */
        (void)snprintf(command, sizeof(command), "chmod -R u+rwx '%s'", dir);
        assert_int_equal(system(command), 0);
        assert_int_equal(remove_all(dir), 0);
    }
}

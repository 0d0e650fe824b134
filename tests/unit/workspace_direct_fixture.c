/* A tree over a directory, for tests. */
#include "core/workspace_direct.h"

#include "tests/unit/workspace_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fixture_direct_setup(void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    struct provider_root root = {.base = FIXTURE_BASE,
                                 .count = FIXTURE_IDS,
                                 .user = FIXTURE_USER,
                                 .group = FIXTURE_USER,
                                 .path = "/workspace"};

    (void)snprintf(fx->dir, sizeof(fx->dir), "/tmp/sessionfs-ws-XXXXXX");
    assert_non_null(mkdtemp(fx->dir));
    root.fd = open(fx->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fchownat(root.fd, "", FIXTURE_BASE + FIXTURE_USER,
                              FIXTURE_BASE + FIXTURE_USER, AT_EMPTY_PATH),
                     0);
    assert_int_equal(
        ws_new_direct(&root, 7, FIXTURE_UID, FIXTURE_GID, &fx->ws, &fx->err),
        0);
    fx->direct = true;
    fixture_begin(fx);
    *state = fx;
    return 0;
}

static int remove_entry(const char *path, const struct stat *attr, int type,
                        struct FTW *ftw)
{
    (void)attr;
    (void)type;
    (void)ftw;
    return remove(path);
}

int fixture_direct_teardown(void **state)
{
    struct fixture *fx = *state;
    int rc;

    fixture_end(fx);
    rc = nftw(fx->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(fx);
    direct_fd_limit(0);
    return rc == 0 && direct_fd_count() == 0 ? 0 : -1;
}

int fixture_direct_setup_plain(void **state)
{
    int rc = fixture_direct_setup(state);
    struct fixture *fx = *state;

    direct_of(fx->ws)->handles = false;
    return rc;
}

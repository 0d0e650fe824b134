/* A tree over a directory, for tests. */
#include "core/workspace_direct.h"

#include "tests/scratch.h"
#include "tests/unit/workspace_fixture.h"

#include <stdlib.h>
#include <unistd.h>

int fixture_direct_setup(void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    struct provider_root root = {.base = FIXTURE_BASE,
                                 .gid_base = FIXTURE_BASE,
                                 .count = FIXTURE_IDS,
                                 .user = FIXTURE_USER,
                                 .group = FIXTURE_USER,
                                 .path = "/workspace"};
    const struct ws_view view = {.uid = FIXTURE_UID, .gid = FIXTURE_GID};

    scratch_make(fx->dir, sizeof(fx->dir));
    root.fd = open(fx->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fchownat(root.fd, "", FIXTURE_BASE + FIXTURE_USER,
                              FIXTURE_BASE + FIXTURE_USER, AT_EMPTY_PATH),
                     0);
    assert_int_equal(ws_new_direct(&root, 7, &view, &fx->ws, &fx->err), 0);
    fx->direct = true;
    fixture_begin(fx);
    *state = fx;
    return 0;
}

int fixture_direct_teardown(void **state)
{
    struct fixture *fx = *state;

    fixture_end(fx);
    scratch_remove(fx->dir);
    free(fx);
    direct_fd_limit(0);
    return direct_fd_count() == 0 ? 0 : -1;
}

int fixture_direct_setup_plain(void **state)
{
    int rc = fixture_direct_setup(state);
    struct fixture *fx = *state;

    direct_of(fx->ws)->handles = false;
    return rc;
}

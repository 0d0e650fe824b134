/* Short ways to use a tree. See workspace_fixture.h. */
#include "tests/unit/workspace_fixture.h"

#include "core/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void fixture_begin(struct fixture *fx)
{
    assert_int_equal(cancel_init(&fx->cancel, &fx->err), 0);
    fx->ctx = (struct ws_ctx){
        .uid = FIXTURE_UID,
        .gid = FIXTURE_GID,
        .limits = {.deadline_ms = DEADLINE_NONE, .cancel = &fx->cancel},
    };
    fx->root = ws_root(fx->ws);
}

void fixture_end(struct fixture *fx)
{
    ws_node_unref(fx->root);
    ws_unref(fx->ws);
    cancel_done(&fx->cancel);
}

/* Finds the node of a path, or says why not. */
static int walk(struct fixture *fx, const char *path, struct ws_node **out,
                struct stat *attr)
{
    struct ws_node *node = ws_node_ref(fx->root);
    char *copy = strdup(path);
    char *save = NULL;
    int rc = ws_getattr(node, NULL, &fx->ctx, attr, &fx->err);

    for (char *step = strtok_r(copy, "/", &save); step && rc == 0;
         step = strtok_r(NULL, "/", &save)) {
        struct ws_node *next = NULL;

        rc = ws_lookup(node, step, &fx->ctx, &next, attr, &fx->err);
        if (rc == 0) {
            ws_node_unref(node);
            node = next;
        }
    }
    free(copy);
    if (rc < 0) {
        ws_node_unref(node);
        return rc;
    }
    *out = node;
    return 0;
}

struct ws_node *fixture_at(struct fixture *fx, const char *path)
{
    struct ws_node *node = NULL;
    struct stat attr;

    assert_int_equal(walk(fx, path, &node, &attr), 0);
    return node;
}

int fixture_find(struct fixture *fx, const char *path)
{
    struct ws_node *node = NULL;
    struct stat attr;
    int rc = walk(fx, path, &node, &attr);

    if (rc == 0) {
        ws_node_unref(node);
    }
    return rc;
}

struct stat fixture_stat(struct fixture *fx, const char *path)
{
    struct ws_node *node = NULL;
    struct stat attr;

    assert_int_equal(walk(fx, path, &node, &attr), 0);
    assert_true(attr.st_ino == ws_node_ino(node));
    ws_node_unref(node);
    return attr;
}

/* The directory of a path, and its last name. */
static struct ws_node *parent(struct fixture *fx, const char *path,
                              const char **name)
{
    const char *slash = strrchr(path, '/');
    char *head = strndup(path, slash ? (size_t)(slash - path) : 0);
    struct ws_node *dir = fixture_at(fx, head);

    free(head);
    *name = slash ? slash + 1 : path;
    return dir;
}

void fixture_mkdir(struct fixture *fx, const char *path)
{
    const char *name;
    struct ws_node *dir = parent(fx, path, &name);
    struct ws_node *node;
    struct stat attr;

    assert_int_equal(
        ws_mkdir(dir, name, 0755, &fx->ctx, &node, &attr, &fx->err), 0);
    assert_true(S_ISDIR(attr.st_mode));
    ws_node_unref(node);
    ws_node_unref(dir);
}

void fixture_write(struct fixture *fx, const char *path, const char *text)
{
    const char *name;
    struct ws_node *dir = parent(fx, path, &name);
    struct ws_node *node;
    struct ws_file *file;
    struct stat attr;
    size_t size = strlen(text);

    assert_int_equal(ws_create(dir, name, 0644, O_WRONLY | O_TRUNC, &fx->ctx,
                               &node, &file, &attr, &fx->err),
                     0);
    assert_int_equal(ws_write(file, text, size, 0, &fx->ctx, &fx->err), size);
    assert_int_equal(ws_flush(file, &fx->ctx, &fx->err), 0);
    ws_close(file);
    ws_node_unref(node);
    ws_node_unref(dir);
}

void fixture_expect(struct fixture *fx, const char *path, const char *text)
{
    struct ws_file *file = fixture_open(fx, path, O_RDONLY);
    size_t size = strlen(text);
    char *found = calloc(1, size + 2);

    assert_int_equal(ws_read(file, found, size + 1, 0, &fx->ctx, &fx->err),
                     size);
    assert_memory_equal(found, text, size);
    free(found);
    ws_close(file);
}

int fixture_rename(struct fixture *fx, const char *from, const char *to,
                   unsigned flags)
{
    const char *name, *new_name;
    struct ws_node *a = parent(fx, from, &name);
    struct ws_node *b = parent(fx, to, &new_name);
    int rc = ws_rename(a, name, b, new_name, flags, &fx->ctx, &fx->err);

    ws_node_unref(a);
    ws_node_unref(b);
    return rc;
}

int fixture_unlink(struct fixture *fx, const char *path)
{
    const char *name;
    struct ws_node *dir = parent(fx, path, &name);
    int rc = ws_unlink(dir, name, &fx->ctx, &fx->err);

    ws_node_unref(dir);
    return rc;
}

struct ws_file *fixture_open(struct fixture *fx, const char *path, int flags)
{
    struct ws_node *node = fixture_at(fx, path);
    struct ws_file *file = NULL;

    assert_int_equal(ws_open(node, flags, &fx->ctx, &file, &fx->err), 0);
    ws_node_unref(node);
    return file;
}

int fixture_symlink(struct fixture *fx, const char *target, const char *path)
{
    const char *name;
    struct ws_node *dir = parent(fx, path, &name);
    struct ws_node *node = NULL;
    struct stat attr;
    int rc = ws_symlink(dir, name, target, &fx->ctx, &node, &attr, &fx->err);

    if (rc == 0) {
        assert_true(S_ISLNK(attr.st_mode));
        ws_node_unref(node);
    }
    ws_node_unref(dir);
    return rc;
}

/* The case that runs next: cmocka gives one state to all its calls. */
static size_t next_case;

static void run_next(void **state)
{
    workspace_cases[next_case++].run(*state);
}

int fixture_run_cases(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct CMUnitTest *tests = calloc(workspace_n_cases, sizeof(*tests));
    int rc;

    next_case = 0;
    for (size_t i = 0; i < workspace_n_cases; i++) {
        tests[i] = (struct CMUnitTest){.name = workspace_cases[i].name,
                                       .test_func = run_next,
                                       .setup_func = setup,
                                       .teardown_func = teardown};
    }
    rc = _cmocka_run_group_tests("workspace cases", tests, workspace_n_cases,
                                 NULL, NULL);
    free(tests);
    return rc;
}

void fixture_raw_links(struct fixture *fx)
{
    static const char *const targets[] = {
        "/etc",         "/etc/passwd",       "..", "../../..",    "d/../../f",
        "/workspace/d", "/workspace/../etc", "d",  "gone \n\xff",
    };
    char out[4096];

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/passwd", "mine");
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        struct ws_node *node;
        struct ws_file *file;

        assert_int_equal(fixture_symlink(fx, targets[i], "d/l"), 0);
        node = fixture_at(fx, "d/l");
        assert_int_equal(
            ws_readlink(node, &fx->ctx, out, sizeof(out), &fx->err), 0);
        assert_string_equal(out, targets[i]);
        assert_int_equal(ws_open(node, O_RDONLY, &fx->ctx, &file, &fx->err),
                         -ELOOP);
        ws_node_unref(node);
        assert_int_equal(fixture_find(fx, "d/l/passwd"), -ENOTDIR);
        assert_int_equal(fixture_unlink(fx, "d/l"), 0);
    }
}

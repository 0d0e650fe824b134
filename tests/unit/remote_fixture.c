/* See remote_fixture.h. */
#include "tests/unit/remote_fixture.h"

#include "core/loop.h"
#include "core/workspace_remote.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct provider_ops provider_mem;

/* What a fixture keeps of its own. */
struct engine {
    struct loop *loop;
    struct provider *provider;
    struct instance instance;
    struct sandbox sandbox;
    char dir[64];
};

/* `mem` as an engine that has only what it must have. */
static struct provider_files plain_files;
static struct provider_ops plain_mem;

static void make_plain(void)
{
    plain_files = *provider_mem.files;
    plain_files.at_once = 0;
    plain_files.look = NULL;
    plain_files.tree = NULL;
    plain_files.get = NULL;
    plain_files.put = NULL;
    plain_mem = provider_mem;
    plain_mem.files = &plain_files;
}

static void make_tree(struct fixture *fx)
{
    const struct engine *engine = fx->own;
    const struct ws_view view = {.uid = FIXTURE_UID, .gid = FIXTURE_GID};

    assert_int_equal(ws_new_remote(engine->provider, &engine->sandbox, &view,
                                   &fx->ws, &fx->err),
                     0);
    fixture_begin(fx);
}

static int setup(const struct provider_ops *ops, void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    struct engine *engine = calloc(1, sizeof(*engine));
    struct provider_env env = {.state_dir = engine->dir};
    struct cancel cancel;
    const struct limits limits = {.deadline_ms = INT64_MAX, .cancel = &cancel};

    scratch_make(engine->dir, sizeof(engine->dir));
    assert_int_equal(setenv("SESSIONFS_MEM_CONTROL", engine->dir, 1), 0);
    assert_int_equal(cancel_init(&cancel, &fx->err), 0);
    assert_int_equal(loop_new(&engine->loop, &fx->err), 0);
    env.loop = engine->loop;
    assert_int_equal(provider_open(ops, &env, &engine->provider, &fx->err), 0);
    engine->sandbox = (struct sandbox){.number = 7,
                                       .id = "s7",
                                       .dir = engine->dir,
                                       .config = "{}",
                                       .instance = &engine->instance};
    assert_int_equal(
        provider_create(engine->provider, &engine->sandbox, &limits, &fx->err),
        0);
    cancel_done(&cancel);
    fx->own = engine;
    make_tree(fx);
    *state = fx;
    return 0;
}

int remote_fixture_setup(void **state)
{
    return setup(&provider_mem, state);
}

int remote_fixture_setup_plain(void **state)
{
    make_plain();
    return setup(&plain_mem, state);
}

int remote_fixture_teardown(void **state)
{
    struct fixture *fx = *state;
    struct engine *engine = fx->own;

    fixture_end(fx);
    provider_close(engine->provider);
    loop_free(engine->loop);
    instance_done(&engine->instance);
    scratch_remove(engine->dir);
    free(engine);
    free(fx);
    return 0;
}

struct fixture *remote_fixture_other(const struct fixture *fx)
{
    struct fixture *other = calloc(1, sizeof(*other));

    other->own = fx->own;
    make_tree(other);
    return other;
}

void remote_fixture_end_other(struct fixture *fx)
{
    fixture_end(fx);
    free(fx);
}

void remote_fixture_expect_there(struct fixture *fx, const char *path,
                                 const char *text)
{
    struct fixture *other = remote_fixture_other(fx);

    fixture_expect(other, path, text);
    remote_fixture_end_other(other);
}

void remote_fixture_write_there(struct fixture *fx, const char *path,
                                const char *text)
{
    struct fixture *other = remote_fixture_other(fx);

    fixture_write(other, path, text);
    remote_fixture_end_other(other);
}

/* What tally() fills. */
struct tally {
    uint64_t calls, failures;
};

static void tally(void *arg, const char *op, uint64_t calls, uint64_t failures)
{
    struct tally *out = arg;

    if (strcmp(op, "files") == 0) {
        out->calls = calls;
        out->failures = failures;
    }
}

static struct tally count(const struct fixture *fx)
{
    const struct engine *engine = fx->own;
    struct tally out = {0, 0};

    provider_stats(engine->provider, tally, &out);
    return out;
}

uint64_t remote_fixture_calls(const struct fixture *fx)
{
    return count(fx).calls;
}

uint64_t remote_fixture_failures(const struct fixture *fx)
{
    return count(fx).failures;
}

const char *remote_fixture_dir(const struct fixture *fx)
{
    const struct engine *engine = fx->own;

    return engine->dir;
}

void remote_fixture_stage(struct fixture *fx, uint64_t bytes)
{
    remote_of(fx->ws)->view.stage_bytes = bytes;
}

void remote_fixture_fault(const struct fixture *fx, const char *op,
                          const char *what)
{
    const struct engine *engine = fx->own;
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", engine->dir, op);
    if (!what) {
        (void)unlink(path);
        return;
    }
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(what, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Whether the loop's thread is the only one besides this, and rests. */
static bool is_loop_alone(void)
{
    struct dirent **names = NULL;
    int count = scandir("/proc/self/task", &names, NULL, NULL);
    unsigned asleep = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        char state = '?';
        FILE *stat;

        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat",
                       names[i]->d_name);
        stat = fopen(path, "re");
        if (stat) {
            (void)!fscanf(stat, "%*d (%*[^)]) %c", &state);
            (void)fclose(stat);
        }
        asleep += state == 'S';
        free(names[i]);
    }
    free(names);
    return count == 4 && asleep == 1; /* With `.`, `..` and ourselves. */
}

/* A lock of the allocator that a thread holds just then would be locked in the
 * copy for ever. */
void remote_fixture_die_at(struct fixture *fx, const char *point,
                           void (*fn)(struct fixture *fx))
{
    int status = 0;
    pid_t pid;

    for (int i = 0; i < 10000 && !is_loop_alone(); i++) {
        (void)usleep(1000);
    }
    assert_true(is_loop_alone());
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("SESSIONFS_CRASH", point, 1);
        fn(fx);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* See config_fixture.h. */
#include "tests/unit/config_fixture.h"

#include "core/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct registry_config config_asked;

const struct provider_ops *const config_table[] = {
    &engine_local,
    &engine_remote,
    NULL,
};

const char *config_path(const struct fixture *fixture, const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", fixture->dir, name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *stream = fopen(path, "we");

    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

void config_profile(const struct fixture *fixture, const char *name,
                    const char *text)
{
    char file[128];

    (void)mkdir(config_path(fixture, "profiles"), 0700);
    (void)snprintf(file, sizeof(file), "profiles/%s", name);
    write_file(config_path(fixture, file), text);
}

int config_try_open(struct fixture *fixture,
                    const struct provider_ops *const *ops, struct err *err)
{
    static char state[256];
    static char profiles[256];

    (void)snprintf(state, sizeof(state), "%s", config_path(fixture, "state"));
    (void)snprintf(profiles, sizeof(profiles), "%s",
                   config_path(fixture, "profiles"));
    config_asked.state_dir = state;
    config_asked.profiles = access(profiles, F_OK) == 0 ? profiles : NULL;
    config_asked.uid = geteuid();
    config_asked.gid = getegid();
    config_asked.loop = fixture->loop;
    return registry_open(&config_asked, ops, &fixture->registry, err);
}

void config_open(struct fixture *fixture, const struct provider_ops *const *ops)
{
    struct err err = ERR_INIT;

    if (config_try_open(fixture, ops, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

int config_setup(void **state)
{
    struct fixture *fixture = fixture_new();
    struct err err = ERR_INIT;

    config_asked = (struct registry_config){.provider = "local"};
    assert_int_equal(loop_new(&fixture->loop, &err), 0);
    *state = fixture;
    return 0;
}

/* Makes a session by a write to `new`, which goes well. */
struct session *config_new(struct fixture *fixture, const char *text)
{
    char id[SESSION_ID_SIZE];
    struct err err = ERR_INIT;

    if (registry_new(fixture->registry, text, strlen(text), &me, id, &err) <
        0) {
        fail_msg("%s: %s", text, err.msg);
    }
    return fixture_find(fixture, id);
}

char *config_of(struct session *session)
{
    struct buf text = BUF_INIT(1024 * 1024);
    struct err err = ERR_INIT;

    assert_int_equal(session_config_text(session, &text, &err), 0);
    return text.data;
}

bool config_says(struct session *session, const char *part)
{
    char *text = config_of(session);
    bool says = strstr(text, part) != NULL;

    free(text);
    return says;
}

int config_write(struct session *session, const char *text, struct err *err)
{
    err_clear(err);
    return session_configure(session, text, strlen(text), &me, err);
}

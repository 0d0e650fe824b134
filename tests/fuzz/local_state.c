/*
 * What the provider local finds on disk after a crash or a restore from
 * somewhere: lines of "NAME TARGET" are links of a session's directory, or of
 * the layers where NAME begins with `+`.
 */
#include "tests/fuzz/fuzz.h"

#include "providers/local/head.h"
#include "providers/local/layers.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINES = 32,
    TARGET = 200
};

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* A number that a store may have as a layer gets its directory too. */
static void make_entry(int session, int layers, const char *name,
                       const char *target)
{
    if (strlen(target) > TARGET) {
        return;
    }
    if (name[0] != '+') {
        (void)!symlinkat(target, session, name);
        return;
    }
    if (!strchr(name, '.')) {
        (void)mkdirat(layers, name + 1, 0700);
    } else {
        (void)!symlinkat(target, layers, name + 1);
    }
}

static void make_entries(int session, int layers, char *text)
{
    char *left = NULL;
    int lines = 0;

    for (char *line = strtok_r(text, "\n", &left); line && lines < LINES;
         line = strtok_r(NULL, "\n", &left), lines++) {
        char *space = strchr(line, ' ');

        if (!space || strstr(line, "..")) {
            continue;
        }
        *space = '\0';
        if (strcmp(line, "head") == 0 || line[0] == '+' ||
            strncmp(line, "keys/", 5) == 0) {
            make_entry(session, layers, line, space + 1);
        }
    }
}

static int take_key(void *arg, uint64_t key, uint64_t layer)
{
    uint64_t *top = arg;

    (void)key;
    *top = layer;
    return 0;
}

static void read_all(const char *state, int session)
{
    char name[HEAD_NAME_SIZE];
    struct layers *layers = NULL;
    struct head head;
    struct err err = ERR_INIT;
    uint64_t tops[2] = {0, 0};
    int rc = head_read(session, 7, &head, &err);

    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        head_upper(&head, name);
        DEMAND(strncmp(name, "upper", 5) == 0);
        tops[0] = head.top;
    }
    err_clear(&err);
    DEMAND(head_each_key(session, take_key, &tops[1], &err) == 0);
    rc = layers_open(state, &layers, &err);
    DEMAND(rc == 0);
    for (size_t i = 0; i < 2; i++) {
        uint64_t *chain = NULL;
        size_t count = 0;

        err_clear(&err);
        rc = layers_chain(layers, tops[i], &chain, &count, &err);
        DEMAND_ERR(rc, &err);
        free(chain);
    }
    layers_close(layers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char state[] = "/tmp/sessionfs-fuzz-XXXXXX";
    char *text = fuzz_text(data, size);
    int top;
    int session;
    int layers;

    DEMAND(mkdtemp(state));
    top = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    DEMAND(mkdirat(top, "session", 0700) == 0);
    DEMAND(mkdirat(top, "session/keys", 0700) == 0);
    DEMAND(mkdirat(top, "layers", 0700) == 0);
    session = openat(top, "session", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    layers = openat(top, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_entries(session, layers, text);
    read_all(state, session);
    (void)close(layers);
    (void)close(session);
    (void)close(top);
    (void)nftw(state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(text);
    return 0;
}

/* The store of layers: what is referred to stays, the rest goes. */
#include "core/cleanup.h"
#include "providers/local/layers.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SIZE = 256,
    FILES = 500,
};

/* A layer with files, so that its removal takes a while. */
static uint64_t make(struct layers *layers, uint64_t parent)
{
    struct err err = ERR_INIT;
    uint64_t id = 0;
    AUTO_FD int fd = layers_make(layers, parent, 0, &id, &err);

    assert_true(fd >= 0);
    for (int i = 0; i < FILES; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(mknodat(fd, name, S_IFREG | 0600, 0), 0);
    }
    return id;
}

static bool is_there(struct layers *layers, uint64_t id)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
    return faccessat(layers_dir(layers), name, F_OK, 0) == 0;
}

static void gone_soon(struct layers *layers, uint64_t id)
{
    for (int i = 0; i < 10000 && is_there(layers, id); i++) {
        (void)usleep(1000);
    }
    assert_false(is_there(layers, id));
}

static struct layers *open_store(const char *dir)
{
    struct layers *layers = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(layers_open(dir, &layers, &err), 0);
    return layers;
}

static void what_is_being_removed_cannot_be_had(void **state)
{
    char dir[PATH_SIZE];
    struct layers *layers;
    uint64_t id;

    (void)state;
    scratch_make(dir, sizeof(dir));
    layers = open_store(dir);
    layers_sweep(layers);
    id = make(layers, 0);
    assert_true(layers_ref(layers, id));
    layers_unref(layers, id);
    layers_unref(layers, id);
    assert_false(layers_ref(layers, id));
    gone_soon(layers, id);
    layers_close(layers);
    scratch_remove(dir);
}

static void what_a_start_finds_unused_cannot_be_had(void **state)
{
    char dir[PATH_SIZE];
    struct layers *layers;
    uint64_t used;
    uint64_t unused;

    (void)state;
    scratch_make(dir, sizeof(dir));
    layers = open_store(dir);
    used = make(layers, 0);
    unused = make(layers, used);
    layers_close(layers);
    layers = open_store(dir);
    assert_true(layers_ref(layers, used));
    layers_sweep(layers);
    assert_false(layers_ref(layers, unused));
    gone_soon(layers, unused);
    assert_true(is_there(layers, used));
    assert_true(layers_ref(layers, used));
    layers_close(layers);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_being_removed_cannot_be_had),
        cmocka_unit_test(what_a_start_finds_unused_cannot_be_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

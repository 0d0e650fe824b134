/* Engines that misbehave, for one test program. See mount.h. */
#include "tests/e2e/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void fault_set(const char *path, const char *what)
{
    if (what) {
        put_ok(path, what);
    } else {
        (void)unlink(path);
    }
}

static void fault_write(const char *id, const char *op, const char *what)
{
    char path[2 * MNT_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/%s@%s", mnt.control, op, id);
    fault_set(path, what);
}

/* Has the program that is behind `jsonl` not answer what an operation needs. */
static void fault_of_program(const char *id, const char *op, const char *what)
{
    static const char *const methods[] = {
        "open",      "close",      "exec",   "spawn",
        "read_file", "write_file", "remove", "create_dir_all",
    };
    const char *only = op && strcmp(op, "create") == 0 ? "open" : "exec";
    const char *root = getenv("FAKE_ROOT");
    char path[2 * MNT_PATH_SIZE];

    assert_non_null(root);
    assert_true(!what || strcmp(what, "stuck") == 0);
    (void)snprintf(path, sizeof(path), "%s/faults", root);
    (void)mkdir(path, 0700);
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (!op || strcmp(methods[i], only) == 0) {
            (void)snprintf(path, sizeof(path), "%s/faults/%s@%s", root,
                           methods[i], id);
            fault_set(path, what);
        }
    }
}

void mnt_fault(const char *id, const char *op, const char *what)
{
    static const char *const ops[] = {
        "create",  "resume",    "pause",       "destroy",  "status", "exec",
        "stat",    "list",      "create_file", "make_dir", "remove", "rename",
        "symlink", "read_link", "set_attr",    "read",     "write",  "link",
        "statfs",  "tree",      "get",         "put",
    };
    size_t i;

    if (mnt_scripts()) {
        fault_of_program(id, op, what);
        return;
    }
    if (op) {
        fault_write(id, op, what);
        return;
    }
    for (i = 0; i < ARRAY_SIZE(ops); i++) {
        fault_write(id, ops[i], what);
    }
}

/* What scripts in a sandbox say of its files: the first byte is the exit code
 * of the script, the rest its output. */
#include "tests/fuzz/fuzz.h"

#include "core/files_over_exec.h"
#include "core/provider.h"

#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

struct answer {
    struct provider base; /* First. */
    const char *text;
    size_t size;
    int code;
};

static int run(struct provider *provider, const struct sandbox *sandbox,
               const struct provider_script *script,
               const struct limits *limits, struct buf *out, int *code,
               struct err *err)
{
    const struct answer *answer = (const struct answer *)provider;

    (void)sandbox;
    (void)limits;
    *code = answer->code;
    if (answer->size > script->most) {
        return err_set(err, EFBIG, "too much output");
    }
    DEMAND(buf_add(out, answer->text, answer->size) == 0);
    return 0;
}

static const struct provider_ops ops = {.name = "answer", .run = run};

static void check_attr(const struct stat *attr)
{
    DEMAND(attr->st_mode & S_IFMT);
    DEMAND(attr->st_size >= 0);
    DEMAND(attr->st_mtim.tv_nsec >= 0 && attr->st_mtim.tv_nsec < 1000000000);
}

static int take_entry(void *arg, const struct provider_entry *entry)
{
    (void)arg;
    check_attr(&entry->attr);
    DEMAND(entry->name);
    return 0;
}

static int take_below(void *arg, const char *dir,
                      const struct provider_entry *entry)
{
    DEMAND(strlen(dir) < 2 * (size_t)PATH_MAX);
    DEMAND(strlen(entry->name) < PATH_MAX && !strchr(entry->name, '/'));
    return take_entry(arg, entry);
}

static void list(struct provider *it, const struct sandbox *sandbox,
                 const struct limits *limits)
{
    struct err err = ERR_INIT;
    int rc = files_over_exec.list(it, sandbox, "dir", limits, take_entry, NULL,
                                  &err);

    DEMAND_ERR(rc, &err);
    err_clear(&err);
    rc = files_over_exec.tree(it, sandbox, "dir", 100, limits, take_below, NULL,
                              &err);
    DEMAND_ERR(rc, &err);
}

static void look(struct provider *it, const struct sandbox *sandbox,
                 const struct limits *limits)
{
    char target[PATH_MAX];
    struct statvfs room;
    struct stat attr;
    struct err err = ERR_INIT;
    int rc = files_over_exec.stat(it, sandbox, "dir/file", limits, &attr, &err);

    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        check_attr(&attr);
    }
    err_clear(&err);
    rc = files_over_exec.read_link(it, sandbox, "link", limits, target,
                                   sizeof(target), &err);
    DEMAND_ERR(rc, &err);
    DEMAND(rc < 0 || target[0]);
    err_clear(&err);
    rc = files_over_exec.statfs(it, sandbox, limits, &room, &err);
    DEMAND_ERR(rc, &err);
}

static void get_and_put(struct provider *it, const struct sandbox *sandbox,
                        const struct limits *limits)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    const struct provider_put put = {.fd = fd, .half = ".half"};
    struct stat attr;
    struct err err = ERR_INIT;
    int rc;

    DEMAND(fd >= 0);
    rc = files_over_exec.get(it, sandbox, "file", fd, limits, &attr, &err);
    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        check_attr(&attr);
    }
    err_clear(&err);
    DEMAND(ftruncate(fd, 0) == 0);
    rc = files_over_exec.put(it, sandbox, "file", &put, limits, &attr, &err);
    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        check_attr(&attr);
    }
    (void)close(fd);
}

/* All bytes that are told are there. */
static void take_whole(void *arg, size_t i, const struct stat *was,
                       const void *bytes)
{
    unsigned *sum = arg;

    DEMAND(i < 2 && was->st_size >= 0);
    check_attr(was);
    for (off_t at = 0; at < was->st_size; at++) {
        *sum += ((const unsigned char *)bytes)[at];
    }
}

static void get_many(struct provider *it, const struct sandbox *sandbox,
                     const struct limits *limits)
{
    static const char *const paths[] = {"dir/file", "file"};
    unsigned sum = 0;
    const struct provider_many many = {
        .paths = paths, .n = 2, .most = 4096, .fn = take_whole, .arg = &sum};
    struct err err = ERR_INIT;
    int rc = files_over_exec.get_many(it, sandbox, &many, limits, &err);

    DEMAND_ERR(rc, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = size ? fuzz_text(data + 1, size - 1) : NULL;
    struct answer answer = {.base = {.ops = &ops},
                            .text = text,
                            .size = size - 1,
                            .code = size ? data[0] : 0};
    struct cancel never = CANCEL_NEVER;
    const struct limits limits = {.deadline_ms = INT64_MAX, .cancel = &never};
    struct instance instance = {.external_id = NULL};
    const struct sandbox sandbox = {
        .number = 1, .id = "s", .config = "{}", .instance = &instance};

    if (text) {
        list(&answer.base, &sandbox, &limits);
        look(&answer.base, &sandbox, &limits);
        get_and_put(&answer.base, &sandbox, &limits);
        get_many(&answer.base, &sandbox, &limits);
    }
    free(text);
    return 0;
}

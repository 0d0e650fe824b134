/*
 * Which layers were on the disk when the machine went down. See written.h.
 *
 * The link is WRITTEN -> LAYER.BOOT, and `.all` behind it where later ones are
 * trusted too. Nothing waits for a greater number: where a power cut takes it,
 * the one before is true as well.
 */
#include "providers/local/written.h"

#include "core/cancel.h"
#include "core/cleanup.h"
#include "core/workers.h"
#include "providers/local/boot.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITTEN     "written"
#define WRITTEN_NEW "written.new"
#define ALL         ".all"

enum {
    LATER_MS = 20000,
    TEXT_SIZE = BOOT_SIZE + 32,
};

struct written {
    int dir;
    written_done_fn *done;
    void *arg;
    char boot[BOOT_SIZE];
    bool there;    /* There was a link at the start: */
    bool all;      /* of what it says, */
    bool same;     /* of this start of the machine. */
    uint64_t safe; /* Written for certain, up to this one. */
    bool begun;
    atomic_bool due;
    struct workers *workers;
    struct cancel closing;
};

static atomic_int later_ms = LATER_MS;

void written_wait(int ms)
{
    atomic_store(&later_ms, ms);
}

static void note(const struct written *written, bool all)
{
    char text[TEXT_SIZE];

    (void)snprintf(text, sizeof(text), "%" PRIu64 ".%s%s", written->safe,
                   written->boot, all ? ALL : "");
    (void)unlinkat(written->dir, WRITTEN_NEW, 0);
    if (symlinkat(text, written->dir, WRITTEN_NEW) == 0) {
        (void)renameat(written->dir, WRITTEN_NEW, written->dir, WRITTEN);
    }
}

static void read_note(struct written *written)
{
    char text[TEXT_SIZE];
    ssize_t size = readlinkat(written->dir, WRITTEN, text, sizeof(text) - 1);
    char *boot = text;
    size_t len;

    text[size < 0 ? 0 : size] = '\0';
    written->safe = strtoull(text, &boot, 10);
    written->there = *boot == '.';
    len = strlen(boot);
    if (len >= strlen(ALL) && strcmp(boot + len - strlen(ALL), ALL) == 0) {
        written->all = true;
        boot[len - strlen(ALL)] = '\0';
    }
    written->same = written->there && strcmp(boot + 1, written->boot) == 0;
}

int written_open(int dir, written_done_fn *done, void *arg,
                 struct written **out, struct err *err)
{
    struct written *written = calloc(1, sizeof(*written));
    int rc;

    if (!written) {
        return err_no_memory(err);
    }
    written->dir = dir;
    written->done = done;
    written->arg = arg;
    written->closing.fd = -1;
    boot_read(written->boot);
    read_note(written);
    rc = cancel_init(&written->closing, err);
    written->workers = rc < 0 ? NULL : workers_new(1);
    if (rc == 0 && !written->workers) {
        rc = err_no_memory(err);
    }
    if (rc < 0) {
        written_close(written);
        return rc;
    }
    *out = written;
    return 0;
}

void written_close(struct written *written)
{
    if (!written) {
        return;
    }
    if (written->workers) {
        cancel_fire(&written->closing);
    }
    workers_free(written->workers);
    cancel_done(&written->closing);
    if (written->begun) {
        note(written, true);
    }
    free(written);
}

bool written_lost(const struct written *written, uint64_t layer)
{
    return written->there && !written->all && !written->same &&
           layer > written->safe;
}

int written_begin(struct written *written, bool synced, struct err *err)
{
    const uint64_t done = written->done(written->arg);
    const bool doubts = written->there && written->all && !synced;

    if (synced && syncfs(written->dir) < 0) {
        return err_errno(err, "cannot sync the layers");
    }
    if (synced || !written->same) { /* They come from the disk. */
        written->safe = done;
    }
    note(written, synced);
    /* Before there is any that nobody waits for. */
    if ((doubts || synced) && fsync(written->dir) < 0) {
        return err_errno(err, "cannot sync the layers");
    }
    written->there = false;
    written->begun = true;
    if (written->safe < done) {
        written_later(written);
    }
    return 0;
}

static void write_out(void *arg)
{
    struct written *written = arg;
    struct pollfd end = {.fd = written->closing.fd, .events = POLLIN};
    uint64_t done;

    if (poll(&end, 1, atomic_load(&later_ms)) != 0) {
        return;
    }
    atomic_store(&written->due, false);
    done = written->done(written->arg);
    if (syncfs(written->dir) == 0) {
        written->safe = done;
        note(written, false);
    }
}

void written_later(struct written *written)
{
    if (!atomic_exchange(&written->due, true) &&
        workers_run(written->workers, write_out, written) < 0) {
        atomic_store(&written->due, false); /* The next one may have luck. */
    }
}

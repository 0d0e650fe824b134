/*
 * Listings by scripts. See files_over_exec.h. One that is long comes in pieces,
 * each of which has the time that the caller gives for the first: an engine
 * that has much to tell is not one that does not answer.
 */
#include "core/clock.h"
#include "core/files_over_exec_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    /* Bytes of an entry, about. */
    LOOK_RECORD = 200,
    TREE_RECORD = 256,
};

struct over_pieces over_pieces = {.bytes = 1024 * 1024, .names = 5000};

/* Tells the entries of what a script said. */
static int tell_list(char *at, const char *end, provider_entry_fn *fn,
                     void *arg, struct err *err)
{
    struct provider_entry entry;
    int rc = 0;

    while (rc == 0 && at < end) {
        if (!over_record(&at, end, &entry.name, &entry.attr)) {
            return err_set(err, EIO, "the sandbox's listing makes no sense");
        }
        rc = fn(arg, &entry);
    }
    return rc < 0 ? err_set(err, -rc, "the listing was ended") : 0;
}

/* A directory that is listed. */
struct listing {
    struct over over; /* Of each call; its limits are those below. */
    struct limits limits;
    int64_t each_ms; /* Of every call. */
    provider_entry_fn *fn;
    void *arg;
    char most[24]; /* An argument. */
};

static int run_listing(struct listing *listing, const char *script,
                       struct buf *out, struct err *err)
{
    if (listing->each_ms != DEADLINE_NONE) {
        listing->limits.deadline_ms = clock_deadline(listing->each_ms);
    }
    listing->over.script = script;
    return over_run(&listing->over, out, err);
}

/* Returns 1 where there are more than so many bytes; nothing is told then. */
static int list_at_once(struct listing *listing, size_t most, struct err *err)
{
    struct buf text = BUF_INIT(most + 1);
    int rc;

    (void)snprintf(listing->most, sizeof(listing->most), "%zu", most);
    listing->over.args[1] = listing->most;
    rc = run_listing(listing, over_list, &text, err);
    if (rc == 0 && text.size >= most) {
        rc = 1;
    } else if (rc == 0 && text.size) {
        rc = tell_list(text.data, text.data + text.size, listing->fn,
                       listing->arg, err);
    }
    buf_done(&text);
    return rc;
}

/* Tells those of some names that are still there. */
static int tell_piece(struct listing *listing, const char *names, size_t size,
                      struct err *err)
{
    struct buf text = BUF_INIT(OVER_LISTING);
    int rc;

    listing->over.input = names;
    listing->over.input_size = size;
    rc = run_listing(listing, over_named, &text, err);
    if (rc == 0 && text.size) {
        rc = tell_list(text.data, text.data + text.size, listing->fn,
                       listing->arg, err);
    }
    buf_done(&text);
    return rc;
}

/* The end of the first piece of some names, each of which ends with a NUL. */
static const char *piece_end(const char *at, const char *end)
{
    for (size_t n = 0; at < end && n < over_pieces.names; n++) {
        at += strlen(at) + 1;
    }
    return at;
}

/* Has the names told first, then their attributes, some at a time: each name
 * comes once, whatever changes meanwhile. */
static int list_by_pieces(struct listing *listing, struct err *err)
{
    struct buf names = BUF_INIT(OVER_LISTING);
    const char *at, *end;
    int rc = run_listing(listing, over_names, &names, err);

    if (rc == 0 && (!names.size || names.data[names.size - 1])) {
        rc = err_set(err, EIO, "the sandbox's listing makes no sense");
    }
    at = names.data;
    end = rc == 0 ? at + names.size : at;
    while (rc == 0 && at < end) {
        const char *next = piece_end(at, end);

        rc = tell_piece(listing, at, (size_t)(next - at), err);
        at = next;
    }
    buf_done(&names);
    return rc;
}

/* What is left of a call's time. */
static int64_t left_ms(const struct limits *limits)
{
    int64_t now = clock_ms();

    if (limits->deadline_ms == DEADLINE_NONE) {
        return DEADLINE_NONE;
    }
    return limits->deadline_ms > now ? limits->deadline_ms - now : 0;
}

int over_list_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, const struct limits *limits,
                   provider_entry_fn *fn, void *arg, struct err *err)
{
    struct listing listing = {.over = {.provider = provider,
                                       .sandbox = sandbox,
                                       .limits = &listing.limits,
                                       .args = {path}},
                              .limits = *limits,
                              .each_ms = left_ms(limits),
                              .fn = fn,
                              .arg = arg};
    int rc = list_at_once(&listing, over_pieces.bytes, err);

    if (rc != 1) {
        return rc;
    }
    rc = list_by_pieces(&listing, err);
    if (rc == -EOPNOTSUPP) { /* By the tools that the sandbox has. */
        err_clear(err);
        listing.over.input = NULL;
        listing.over.input_size = 0;
        rc = list_at_once(&listing, OVER_LISTING, err);
    }
    return rc == 1 ? err_set(err, EFBIG, "the directory is too large") : rc;
}

/* Tells what follows the attributes: entries where they are all there. */
static int tell_look(char *at, const char *end, size_t most,
                     struct provider_look *look, struct err *err)
{
    if (end - at < 4 || memcmp(at, "d\n", 2) != 0 ||
        memcmp(end - 2, "e\n", 2) != 0 || (size_t)(end - at) - 4 >= most) {
        return 0;
    }
    look->whole = true;
    return tell_list(at + 2, end - 2, look->fn, look->arg, err);
}

int over_look_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, const struct limits *limits,
                   struct provider_look *look, struct err *err)
{
    const size_t most = look->most * LOOK_RECORD;
    struct buf text = BUF_INIT(most + 2 * OVER_RECORD);
    struct over_path place;
    struct over over = {.provider = provider,
                        .sandbox = sandbox,
                        .limits = limits,
                        .script = over_look};
    const char *name;
    char bytes[24];
    char *at;
    int rc = over_split(path, &place, err);

    if (rc < 0) {
        return rc;
    }
    (void)snprintf(bytes, sizeof(bytes), "%zu", most);
    over.args[0] = place.dir;
    over.args[1] = place.name;
    over.args[2] = bytes;
    rc = over_run(&over, &text, err);
    at = text.data;
    if (rc == 0 &&
        (!at || !over_record(&at, text.data + text.size, &name, &look->attr))) {
        rc = err_set(err, EIO, "the sandbox's stat makes no sense");
    }
    if (rc == 0) {
        rc = tell_look(at, text.data + text.size, most, look, err);
    }
    buf_done(&text);
    return rc;
}

/* Tells the entries of a tree, at most so many. A record that was cut is not
 * the last. */
static int tell_tree(struct buf *text, const char *top, size_t most,
                     provider_tree_fn *fn, void *arg, struct err *err)
{
    char dir[2 * PATH_MAX];
    struct provider_entry entry;
    char *at = text->data;
    const char *end = at ? at + text->size : NULL;
    const char *path;
    int rc = 0;

    while (rc == 0 && at < end) {
        struct over_path place;

        if (!most-- || !over_record(&at, end, &path, &entry.attr)) {
            return err_set(err, E2BIG, "the tree is too large");
        }
        rc = over_split(path, &place, err);
        if (rc < 0) {
            return rc;
        }
        (void)snprintf(dir, sizeof(dir), "%s%s%s", top,
                       top[0] && place.dir[0] ? "/" : "", place.dir);
        entry.name = place.name;
        rc = fn(arg, dir, &entry);
    }
    return rc < 0 ? err_set(err, -rc, "the telling was ended") : 0;
}

int over_tree_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, size_t most, const struct limits *limits,
                   provider_tree_fn *fn, void *arg, struct err *err)
{
    struct buf text = BUF_INIT(OVER_LISTING);
    char bytes[24];
    const struct over over = {.provider = provider,
                              .sandbox = sandbox,
                              .limits = limits,
                              .script = over_tree,
                              .args = {path, bytes}};
    int rc;

    (void)snprintf(bytes, sizeof(bytes), "%zu",
                   most < OVER_LISTING / TREE_RECORD - 1
                       ? (most + 1) * TREE_RECORD
                       : (size_t)OVER_LISTING - 1);
    rc = over_run(&over, &text, err);
    if (rc == 0) {
        rc = tell_tree(&text, path, most, fn, arg, err);
    }
    buf_done(&text);
    return rc;
}

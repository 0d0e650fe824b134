/*
 * checkpoints/, checkpoints.log, restore and fork. What is below
 * checkpoints/NAME/ is a part of workspace.c.
 */
#include "core/buf.h"
#include "core/checkpoint.h"
#include "core/clock.h"
#include "fs/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    WORDS_MOST = 3
};

/* ---- checkpoints/ ---- */

static int checkpoints_find(const struct node_ctx *ctx, const char *name,
                            struct node *out, struct err *err)
{
    struct checkpoint c;
    int rc = strcmp(name, "last") == 0 || !checkpoint_shown(ctx->session)
                 ? err_set(err, ENOENT, "no such checkpoint")
                 : checkpoint_find(ctx->session, name, &c, err);

    if (rc == 0) {
        out->exec_n = c.key;
    }
    return rc;
}

struct naming {
    bool (*fn)(void *arg, uint64_t number, const char *name);
    void *arg;
};

static bool name_one(void *arg, const struct checkpoint *c)
{
    const struct naming *naming = arg;
    char label[CHECKPOINT_LABEL_SIZE];

    checkpoint_label(c, label);
    return naming->fn(naming->arg, c->key, label);
}

static int checkpoints_list(const struct node_ctx *ctx, uint64_t after,
                            bool (*fn)(void *arg, uint64_t number,
                                       const char *name),
                            void *arg, struct err *err)
{
    struct naming naming = {fn, arg};

    return checkpoint_shown(ctx->session)
               ? checkpoint_each(ctx->session, after, name_one, &naming, err)
               : 0;
}

static void checkpoints_start(const struct node_ctx *ctx, const char *name,
                              done_fn *done, void *arg)
{
    checkpoint_take(ctx->session, name, &ctx->caller, done, arg);
}

static int checkpoints_remove(const struct node_ctx *ctx, const char *name,
                              struct err *err)
{
    (void)ctx;
    return err_set(err, EPERM, "echo drop %.64s > checkpoints.log removes it",
                   name);
}

static const struct node_row checkpoint_row = {
    .name = "NAME",
    .id = FILES_ID_CHECKPOINT,
    .flags = NODE_WORKSPACE | NODE_KEYED,
    .mode = S_IFDIR | 0700,
    .up = &files_session_rows[FILES_CHECKPOINTS_ROW],
};

const struct node_children files_checkpoints = {
    .row = &checkpoint_row,
    .find = checkpoints_find,
    .list = checkpoints_list,
    .start = checkpoints_start,
    .remove = checkpoints_remove,
};

/* ---- checkpoints.log ---- */

struct lines {
    struct buf *out;
    int rc;
};

/* NAME TIME CAUSE CHANGED BYTES */
static bool add_line(void *arg, const struct checkpoint *c)
{
    struct lines *lines = arg;
    char label[CHECKPOINT_LABEL_SIZE];
    char time[CLOCK_TEXT_SIZE];
    char exec[32] = "";

    checkpoint_label(c, label);
    clock_format(c->time_us, time);
    if (c->exec) {
        (void)snprintf(exec, sizeof(exec), ":%" PRIu64, c->exec);
    }
    lines->rc = buf_printf(lines->out, "%s %s %s%s %" PRIu64 " %" PRIu64 "\n",
                           label, time, checkpoint_cause_name(c->cause), exec,
                           c->changed, c->bytes);
    return lines->rc == 0;
}

int files_checkpoints_show(const struct node_ctx *ctx, struct buf *out,
                           struct err *err)
{
    struct lines lines = {out, 0};
    int rc = checkpoint_each(ctx->session, 0, add_line, &lines, err);

    return rc == 0 && lines.rc < 0
               ? err_set(err, -lines.rc, "cannot list the checkpoints")
               : rc;
}

/* ---- What is written: words between blanks ---- */

struct words {
    char text[NODE_STORE_MAX + 1];
    char *words[WORDS_MOST];
    size_t count; /* Over WORDS_MOST: too many. */
};

static void split(const char *text, struct words *out)
{
    char *rest = NULL;
    char *word;

    out->count = 0;
    (void)snprintf(out->text, sizeof(out->text), "%s", text);
    word = strtok_r(out->text, " \t\n", &rest);
    while (word) {
        if (out->count < WORDS_MOST) {
            out->words[out->count] = word;
        }
        out->count++;
        word = strtok_r(NULL, " \t\n", &rest);
    }
}

static void refuse(done_fn *done, void *arg, const char *usage)
{
    struct err err = ERR_INIT;

    done(arg, err_set(&err, EINVAL, "it takes %s", usage), &err);
}

void files_checkpoints_store(const struct node_ctx *ctx, const char *text,
                             done_fn *done, void *arg)
{
    struct words words;

    split(text, &words);
    if (words.count != 2 || strcmp(words.words[0], "drop") != 0) {
        refuse(done, arg, "'drop NAME'");
        return;
    }
    checkpoint_drop(ctx->session, words.words[1], &ctx->caller, done, arg);
}

void files_restore_store(const struct node_ctx *ctx, const char *text,
                         done_fn *done, void *arg)
{
    struct words words;

    split(text, &words);
    if (words.count != 1) {
        refuse(done, arg, "a checkpoint's name");
        return;
    }
    checkpoint_restore(ctx->session, words.words[0], &ctx->caller, done, arg);
}

void files_fork_store(const struct node_ctx *ctx, const char *text,
                      done_fn *done, void *arg)
{
    struct words words;

    split(text, &words);
    if (words.count < 1 || words.count > 2) {
        refuse(done, arg, "'NEWID [CHECKPOINT]'");
        return;
    }
    checkpoint_fork(ctx->session, words.words[0],
                    words.count > 1 ? words.words[1] : NULL, &ctx->caller, done,
                    arg);
}

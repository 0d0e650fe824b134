/* The tree of control files. See node.h. */
#include "fs/node.h"

#include "core/buf.h"
#include "core/exec.h"
#include "core/session.h"
#include "fs/file.h"

#include <errno.h>
#include <string.h>

enum {
    ROOT_INO = 1,
    /* An inode number: a mark, the session, the command, the row. */
    INO_MARK_BIT = 62,
    INO_SESSION_BITS = 28,
    INO_EXEC_BITS = 26,
    INO_ROW_BITS = 8,
    /* Offsets of listings: the dots, the rows, and from here on children. */
    FIRST_ROW = 2,
    FIRST_CHILD = 64,
    BLOCK = 512,
};

void node_copy(const struct node *node, struct node *out)
{
    *out = *node;
    if (node->session) {
        session_ref(node->session);
    }
}

void node_drop(struct node *node)
{
    session_unref(node->session);
    node->session = NULL;
}

uint64_t node_command(const struct node *node)
{
    bool is_one = node->session && !(node->row->flags & NODE_KEYED);

    return is_one ? node->exec_n : 0;
}

int node_ctx_init(const struct node_mount *mount, const struct caller *caller,
                  const struct node *node, struct node_ctx *out,
                  struct err *err)
{
    struct node_ctx ctx = {
        .mount = mount,
        .session = node->session,
        .begin = node->begin,
        .number = node->exec_n,
        .caller = *caller,
    };

    if (node->session && session_gone(node->session)) {
        return err_set(err, ENOENT, "the session was removed");
    }
    if (node_command(node)) {
        int rc = session_exec_find(node->session, node->exec_n, &ctx.exec, err);

        if (rc < 0) {
            return rc;
        }
    }
    *out = ctx;
    return 0;
}

void node_ctx_done(struct node_ctx *ctx)
{
    exec_unref(ctx->exec);
    ctx->exec = NULL;
}

static uint64_t bits(uint64_t value, unsigned count)
{
    return value & ((UINT64_C(1) << count) - 1);
}

static uint64_t make_ino(uint64_t session, uint64_t exec_n,
                         const struct node_row *row)
{
    if (row == &node_root) {
        return ROOT_INO;
    }
    return (UINT64_C(1) << INO_MARK_BIT) |
           bits(session, INO_SESSION_BITS) << (INO_EXEC_BITS + INO_ROW_BITS) |
           bits(exec_n, INO_EXEC_BITS) << INO_ROW_BITS | row->id;
}

static uint64_t number_of(const struct session *session)
{
    return session ? session_number(session) : 0;
}

uint64_t node_ino(const struct node *node)
{
    return make_ino(number_of(node->session), node->exec_n + node->begin,
                    node->row);
}

/* Of the directory above: one that was made at run time lies in a directory
 * that is not its session's, or not its command's. */
static uint64_t up_ino(const struct node *dir)
{
    const struct node_row *up = dir->row->up;
    uint64_t number = number_of(dir->session);

    if (!up) {
        return node_ino(dir);
    }
    if (dir->exec_n || !up->children || up->children->row != dir->row) {
        return make_ino(number, 0, up);
    }
    return make_ino(0, 0, up);
}

static bool is_there(const struct node_ctx *ctx, const struct node_row *row)
{
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    bool there;

    if (row->ops && row->ops->there) {
        return row->ops->there(ctx);
    }
    if (!(row->flags & NODE_OPTIONAL)) {
        return true;
    }
    there = row->show(ctx, &text, &err) == 0;
    buf_done(&text);
    return there;
}

/* Makes a node its directory's child of that row. */
static void become(struct node *node, const struct node_ctx *ctx,
                   const struct node_row *row)
{
    node->row = row;
    node->begin = row->ops && row->ops->begin ? row->ops->begin(ctx) : 0;
}

static const struct node_row *find_row(const struct node_row *dir,
                                       const char *name)
{
    for (const struct node_row *row = dir->rows; row && row->name; row++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    return NULL;
}

int node_find(const struct node_ctx *ctx, const struct node *dir,
              const char *name, struct node *out, struct err *err)
{
    const struct node_children *children = dir->row->children;
    const struct node_row *row = find_row(dir->row, name);
    struct node found = {.row = NULL};
    int rc;

    if (strlen(name) > NODE_NAME_MAX) {
        return err_set(err, ENAMETOOLONG, "a name of over %d bytes",
                       NODE_NAME_MAX);
    }
    node_copy(dir, &found);
    if (row && is_there(ctx, row)) {
        become(&found, ctx, row);
        *out = found;
        return 0;
    }
    if (row || !children) {
        node_drop(&found);
        return err_set(err, ENOENT, "no such file");
    }
    found.row = children->row;
    rc = children->find(ctx, name, &found, err);
    if (rc < 0) {
        node_drop(&found);
        return rc;
    }
    *out = found;
    return 0;
}

struct listing {
    const struct node_ctx *ctx;
    const struct node *dir;
    node_entry_fn *fn;
    void *arg;
};

static bool tell(const struct listing *listing, const char *name, uint64_t ino,
                 mode_t mode, uint64_t next)
{
    struct stat attr;

    memset(&attr, 0, sizeof(attr));
    attr.st_ino = ino;
    attr.st_mode = mode;
    return listing->fn(listing->arg, name, &attr, next);
}

/* The entry at an offset below FIRST_CHILD; false: it did not fit. */
static bool tell_fixed(const struct listing *listing, uint64_t offset)
{
    const struct node *dir = listing->dir;
    struct node child = *dir;

    if (offset == 0) {
        return tell(listing, ".", node_ino(dir), S_IFDIR, 1);
    }
    if (offset == 1) {
        return tell(listing, "..", up_ino(dir), S_IFDIR, FIRST_ROW);
    }
    become(&child, listing->ctx, &dir->row->rows[offset - FIRST_ROW]);
    if ((child.row->flags & NODE_UNLISTED) ||
        !is_there(listing->ctx, child.row)) {
        return true;
    }
    return tell(listing, child.row->name, node_ino(&child),
                child.row->mode & S_IFMT, offset + 1);
}

static bool tell_child(void *arg, uint64_t number, const char *name)
{
    const struct listing *listing = arg;
    const struct node *dir = listing->dir;
    const struct node_row *row = dir->row->children->row;
    bool inside = dir->session || dir->row->children->numbered;
    uint64_t ino = inside ? make_ino(number_of(dir->session), number, row)
                          : make_ino(number, 0, row);

    return tell(listing, name, ino, row->mode & S_IFMT, FIRST_CHILD + number);
}

static uint64_t count_fixed(const struct node_row *dir)
{
    uint64_t n = FIRST_ROW;

    for (const struct node_row *row = dir->rows; row && row->name; row++) {
        n++;
    }
    return n;
}

int node_list(const struct node_ctx *ctx, const struct node *dir,
              uint64_t offset, node_entry_fn *fn, void *arg, struct err *err)
{
    const struct node_children *children = dir->row->children;
    struct listing listing = {ctx, dir, fn, arg};
    uint64_t fixed = count_fixed(dir->row);

    for (; offset < fixed; offset++) {
        if (!tell_fixed(&listing, offset)) {
            return 0;
        }
    }
    if (!children) {
        return 0;
    }
    return children->list(ctx, offset > FIRST_CHILD ? offset - FIRST_CHILD : 0,
                          tell_child, &listing, err);
}

static int text_size(const struct node_ctx *ctx, const struct node_row *row,
                     off_t *out, struct err *err)
{
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    int rc = row->show(ctx, &text, err);

    if (rc == 0) {
        *out = (off_t)text.size;
    }
    buf_done(&text);
    return rc;
}

static int file_size(const struct node_ctx *ctx, const struct node_row *row,
                     off_t *out, struct err *err)
{
    if (row->ops && row->ops->size) {
        *out = (off_t)row->ops->size(ctx);
        return 0;
    }
    if (row->show) {
        return text_size(ctx, row, out, err);
    }
    *out = 0;
    return 0;
}

/* When the file's content came about, as far as that is known. */
static int64_t changed_us(const struct node_ctx *ctx)
{
    struct exec_info info;

    if (!ctx->session) {
        return ctx->mount->started_us;
    }
    if (!ctx->exec) {
        return session_created_us(ctx->session);
    }
    exec_info(ctx->exec, &info);
    if (info.ended_us) {
        return info.ended_us;
    }
    return info.started_us ? info.started_us : info.submitted_us;
}

int node_stat(const struct node_ctx *ctx, const struct node *node,
              struct stat *out, struct err *err)
{
    int64_t us = changed_us(ctx);
    struct stat attr;
    int rc;

    memset(&attr, 0, sizeof(attr));
    rc = file_size(ctx, node->row, &attr.st_size, err);
    if (rc < 0) {
        return rc;
    }
    attr.st_ino = node_ino(node);
    attr.st_mode = node->row->mode;
    attr.st_nlink = 1;
    attr.st_blocks = (attr.st_size + BLOCK - 1) / BLOCK;
    attr.st_blksize = 4096;
    attr.st_mtim.tv_sec = us / 1000000;
    attr.st_mtim.tv_nsec = us % 1000000 * 1000;
    attr.st_atim = attr.st_mtim;
    attr.st_ctim = attr.st_mtim;
    *out = attr;
    return 0;
}

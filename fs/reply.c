/* Answers. See reply.h. */
#include "fs/reply.h"

#include "core/log.h"
#include "core/session.h"
#include "core/workspace.h"
#include "fs/inode.h"
#include "fs/kernel.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Programs meet these every day and know what to do. */
static bool is_ordinary(int code)
{
    static const int ordinary[] = {
        ENOENT,     EEXIST,  ENOTEMPTY, ENOTDIR, EISDIR, EPERM,
        EACCES,     ENODATA, ERANGE,    ELOOP,   EXDEV,  ENAMETOOLONG,
        EOPNOTSUPP, ETXTBSY, EINTR,     ENXIO,   EMLINK, EINPROGRESS,
    };

    for (size_t i = 0; i < ARRAY_SIZE(ordinary); i++) {
        if (ordinary[i] == code) {
            return true;
        }
    }
    return false;
}

static void log_it(enum log_level level, const struct reply_about *about,
                   const struct caller *caller, const struct err *err)
{
    char id[SESSION_ID_SIZE];
    const struct log_failure failure = {
        .op = about->op,
        .session = about->session ? id : NULL,
        .exec_n = about->exec_n,
        .name = about->name,
        .uid = caller->uid,
        .pid = caller->pid,
        .err = err,
    };

    if (about->session) {
        session_id(about->session, id);
    }
    log_failure(level, &failure);
}

static void count(struct fs *fs, int code)
{
    if (code > 0 && code < FS_ERRNOS) {
        (void)atomic_fetch_add(&fs->failures[code], 1);
    }
}

void reply_note(struct fs *fs, const struct reply_about *about,
                const struct caller *caller, const struct err *err)
{
    if (!about->probe || (err->code != EOPNOTSUPP && err->code != ENODATA)) {
        count(fs, err->code);
    }
    if (is_ordinary(err->code) && !about->always && !err->notable) {
        log_it(LOG_LEVEL_DEBUG, about, caller, err);
        return;
    }
    log_it(LOG_LEVEL_WARNING, about, caller, err);
    if (about->recorded) {
        return;
    }
    if (about->session) {
        session_fail(about->session, about->op, about->exec_n, about->name,
                     caller, err);
    } else {
        registry_fail(fs->mount.registry, about->op, about->name, caller, err);
    }
}

void reply_err(fuse_req_t req, const struct reply_about *about, int rc,
               const struct err *err)
{
    struct caller caller = fs_caller(req);

    assert(rc < 0 && err->code == -rc);
    reply_note(fs_of(req), about, &caller, err);
    (void)fuse_reply_err(req, -rc);
}

void reply_without(fuse_req_t req, const struct reply_about *about, int code,
                   const char *words)
{
    struct caller caller = fs_caller(req);
    struct err err = ERR_INIT;

    count(fs_of(req), code);
    (void)err_set(&err, code, "%s", words);
    log_it(LOG_LEVEL_DEBUG, about, &caller, &err);
    (void)fuse_reply_err(req, code);
}

void reply_ok(fuse_req_t req)
{
    (void)fuse_reply_err(req, 0);
}

/*
 * Most names of control files are asked for each time, since sessions come and
 * go, and no name of them that is not there is ever kept.
 */
static double keep_s(const struct fs *fs, const struct inode *inode,
                     const struct workspace *ws)
{
    const struct inode_key *key = inode_key(inode);

    if (ws) {
        return kernel_keep_s(fs, key->session, ws);
    }
    return key->row && key->row->flags & NODE_STEADY ? kernel_keep_steady_s(fs)
                                                     : 0.0;
}

/* What may be told by another node, too, is asked for each time. */
static double keep_attr_s(const struct fs *fs, const struct inode *inode,
                          const struct workspace *ws)
{
    const struct ws_node *node = inode_key(inode)->ws;

    if (node && (ws_node_shared(node) || ws_shared_written(ws))) {
        return 0.0;
    }
    return keep_s(fs, inode, ws);
}

void reply_fill_entry(struct fs *fs, struct inode *inode,
                      const struct stat *attr, struct fuse_entry_param *out)
{
    const struct inode_key *key = inode_key(inode);
    const struct workspace *ws = key->ws ? ws_node_tree(key->ws) : NULL;

    memset(out, 0, sizeof(*out));
    out->ino = inode_number(inode);
    out->attr = *attr;
    out->entry_timeout = keep_s(fs, inode, ws);
    if (key->ws) {
        kernel_telling(fs, inode);
    }
    /* The top of a workspace stays, but its attributes do not. */
    if (!key->row || !(key->row->flags & NODE_WORKSPACE)) {
        out->attr_timeout = keep_attr_s(fs, inode, ws);
    }
}

void reply_entry(fuse_req_t req, struct inode *inode, const struct stat *attr)
{
    struct fs *fs = fs_of(req);
    struct fuse_entry_param entry;

    reply_fill_entry(fs, inode, attr, &entry);
    if (fuse_reply_entry(req, &entry) < 0) {
        inode_forget(fs->inodes, inode, 1);
    }
}

bool reply_create(fuse_req_t req, struct inode *inode, const struct stat *attr,
                  const struct fuse_file_info *fi, uint32_t backing)
{
    struct fs *fs = fs_of(req);
    struct fuse_entry_param entry;

    reply_fill_entry(fs, inode, attr, &entry);
    if (kernel_reply_create(req, &entry, fi, backing) < 0) {
        inode_forget(fs->inodes, inode, 1);
        return false;
    }
    return true;
}

void reply_no_entry(fuse_req_t req, struct session *session,
                    const struct workspace *ws)
{
    struct fs *fs = fs_of(req);
    const struct fuse_entry_param entry = {.entry_timeout =
                                               kernel_keep_s(fs, session, ws)};

    count(fs, ENOENT);
    (void)fuse_reply_entry(req, &entry);
}

void reply_attr(fuse_req_t req, struct inode *inode, const struct workspace *ws,
                const struct stat *attr)
{
    struct fs *fs = fs_of(req);
    const struct inode_key *key = inode_key(inode);
    bool top = key->row && key->row->flags & NODE_WORKSPACE;

    if (ws) {
        kernel_telling(fs, inode);
    }
    (void)fuse_reply_attr(req, attr,
                          top && !ws ? 0.0 : keep_attr_s(fs, inode, ws));
}

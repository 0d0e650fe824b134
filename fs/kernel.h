/*
 * What depends on the kernel under the mount: what is negotiated with it, how
 * long it may keep what it is told, how it learns of changes, and which files
 * it reads and writes by itself. Whatever an old kernel lacks is done without;
 * so is what `-o without=` names.
 */
#ifndef SESSIONFS_KERNEL_H
#define SESSIONFS_KERNEL_H

#include "fs/fs.h"

struct workspace;
struct ws_node;

enum {
    /* From this minor version of protocol 7 on, Linux 6.16, changes can be
     * told by an epoch. */
    KERNEL_EPOCH_MINOR = 44
};

/* Names as in `stats` and in -o without=. */
enum kernel_feature {
    KERNEL_EPOCH,         /* Changes are told; names are kept till then. */
    KERNEL_NEGATIVE,      /* Kept are also names that are not there, */
    KERNEL_LISTINGS,      /* and listings, and pages that nothing changed. */
    KERNEL_READDIRPLUS,   /* Listings come with attributes. */
    KERNEL_PARALLEL_DIRS, /* Several look into one directory at once. */
    KERNEL_KILLPRIV,      /* No xattr is asked for at each write. */
    KERNEL_NOFLUSH,       /* Closing a file of a workspace asks nobody. */
    KERNEL_PASSTHROUGH,   /* Data of directories here never comes by us. */
    KERNEL_IO_URING,      /* Requests come by rings. */
    KERNEL_NEAR,          /* Else they are handled where they are made. */
    KERNEL_YIELD,         /* Who is answered there goes on at once. */
    KERNEL_FEATURES,
};

/** @param feature one @return its name; static */
const char *kernel_feature_name(enum kernel_feature feature);

/**
 * Reads names of features.
 *
 * @param text names, with colons between them; "" is none
 * @param out  a bit for each, on success
 * @param err  filled on failure: the names that there are
 * @return 0 or -EINVAL
 */
MUST_USE int kernel_features_parse(const char *text, unsigned *out,
                                   struct err *err);

/**
 * @param without a bit for each feature that is not to be used
 * @param shared  others than root may write to the mount
 * @return what is not negotiated yet, or NULL without memory
 */
struct kernel *kernel_new(unsigned without, bool shared);
/** @param kernel freed; NULL is fine */
void kernel_free(struct kernel *kernel);

/**
 * Puts itself between libfuse and the kernel, before INIT.
 *
 * @param fs  mounted; its kernel and fuse are set
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int kernel_attach(struct fs *fs, struct err *err);

/**
 * Negotiates, in the INIT request.
 *
 * @param kernel written
 * @param conn   changed
 */
void kernel_init(struct kernel *kernel, struct fuse_conn_info *conn);

/**
 * @param kernel the kernel, after INIT
 * @param out    gets the protocol's version, as "7.45"
 * @param size   of out
 */
void kernel_version(const struct kernel *kernel, char *out, size_t size);

/** @param kernel after INIT @param feature one @return whether it is used */
bool kernel_uses(const struct kernel *kernel, enum kernel_feature feature);

/* ---- What the kernel keeps: kernel_keep.c ---- */

/**
 * Tells for how long the kernel may keep names and attributes of a workspace.
 * What is told now is asked for again after the next kernel_changed(), whatever
 * this says.
 *
 * @param fs      the mount
 * @param session whose
 * @param ws      its tree; NULL: there is none
 * @return seconds
 */
double kernel_keep_s(const struct fs *fs, struct session *session,
                     const struct workspace *ws);

/**
 * Names the state of a workspace.
 *
 * @param fs      the mount
 * @param session whose
 * @param ws      its tree
 * @param changes kernel_changes() from before anything of it was found out
 * @return another number once something but the mount has changed it; 0: it may
 *         be doing so now
 */
unsigned long kernel_state(const struct fs *fs, struct session *session,
                           const struct workspace *ws, unsigned long changes);

/** @param fs the mount @return seconds for what is always the same */
double kernel_keep_steady_s(const struct fs *fs);

/** @param fs the mount @return a count that kernel_changed() moves first */
unsigned long kernel_changes(const struct fs *fs);

/**
 * Notes that the kernel is being told the attributes of a file, before it is.
 * Once the answer is out kernel_told() must follow.
 *
 * @param fs    the mount
 * @param inode whose
 */
void kernel_telling(struct fs *fs, struct inode *inode);

/** @param fs the mount @param number of an inode, which may be gone, whose
 *  attributes are others than the kernel can know */
void kernel_moved(struct fs *fs, fuse_ino_t number);

/**
 * Takes back what was told where files changed while it was found out.
 *
 * @param fs      the mount
 * @param number  of the inode, which may be gone
 * @param changes kernel_changes() from before it was found out
 */
void kernel_told(struct fs *fs, fuse_ino_t number, unsigned long changes);

/**
 * Tells whether what the kernel has kept of a file's data, or of a listing, is
 * true: nothing but the mount has changed it since it was last opened.
 *
 * @param fs      the mount
 * @param inode   that is being opened
 * @param ws      the tree that it is of
 * @param changes kernel_changes() from before it was opened
 * @param keep    set to whether it may be kept
 * @return whether what is read now may be kept
 */
bool kernel_keeps(struct fs *fs, struct inode *inode,
                  const struct workspace *ws, unsigned long changes,
                  bool *keep);

/**
 * Tells the kernel that files of a session changed behind it: names and
 * attributes that it kept are asked for again. Takes no lock of the kernel
 * that a request may hold; called with none of ours.
 *
 * @param fs      the mount
 * @param session whose files
 */
void kernel_changed(struct fs *fs, const struct session *session);

/**
 * Tells the kernel to ask anew where a file that had more names changes, or is
 * about to, and has only one by now: that may be known as another node, of
 * which all was kept since it had no more.
 *
 * @param fs      the mount
 * @param session whose file
 * @param node    by which it is changed
 * @param attr    of it now
 */
void kernel_shared(struct fs *fs, const struct session *session,
                   const struct ws_node *node, const struct stat *attr);

/* ---- Passthrough: kernel_pass.c ---- */

/*
 * How the kernel reaches an inode's data: every open file of an inode the same
 * way. The id by which the kernel knows the file behind it, and the number of
 * open files, in one word.
 */
struct kernel_backing {
    atomic_ullong word;
};

/**
 * Counts an open file.
 *
 * @param kernel  the kernel
 * @param backing of its inode
 * @param fd      any fd of the file behind it; -1: none
 * @return the id of the file behind it, 0: the kernel asks us for its data
 */
uint32_t kernel_pass_open(struct kernel *kernel, struct kernel_backing *backing,
                          int fd);
/** @param kernel the kernel @param backing with one open file less */
void kernel_pass_close(struct kernel *kernel, struct kernel_backing *backing);
/** @param kernel the kernel @param backing whose file is let go, if it is not
 *  open */
void kernel_pass_leave(struct kernel *kernel, struct kernel_backing *backing);
/** @param kernel the kernel @param backing of an inode that ends */
void kernel_pass_end(struct kernel *kernel, struct kernel_backing *backing);

/** @param kernel the kernel @return how many files behind inodes it knows */
uint64_t kernel_pass_count(const struct kernel *kernel);

/**
 * Answers a request that opens.
 *
 * @param req     answered
 * @param fi      the handle
 * @param backing as kernel_pass_open() said
 * @return 0 or a negative errno: the kernel did not take it
 */
MUST_USE int kernel_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
                               uint32_t backing);

/**
 * The same for a request that makes a file.
 *
 * @param req     answered
 * @param entry   the file
 * @param fi      the handle
 * @param backing as kernel_pass_open() said
 * @return 0 or a negative errno: the kernel did not take it
 */
MUST_USE int kernel_reply_create(fuse_req_t req,
                                 const struct fuse_entry_param *entry,
                                 const struct fuse_file_info *fi,
                                 uint32_t backing);

/* ---- The end ---- */

/**
 * Begins a notification: the connection is not closed during it.
 *
 * @param kernel the kernel
 * @return whether there is a connection; kernel_tell_end() follows then
 */
MUST_USE bool kernel_tell_begin(struct kernel *kernel);
/** @param kernel as given to kernel_tell_begin() */
void kernel_tell_end(struct kernel *kernel);

/**
 * Lets no further notification begin and waits for those that have. Before
 * the session's fd is closed.
 *
 * @param kernel the kernel
 */
void kernel_end(struct kernel *kernel);

#endif

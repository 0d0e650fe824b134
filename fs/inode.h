/*
 * The files that the kernel knows: its node numbers, lookup counts.
 *
 * A node number is an inode's address, so a request finds its inode without a
 * search; the number that stat shows is another one and always the same for a
 * file. An inode lives while the kernel counts lookups of it or somebody holds
 * a reference. Thread-safe.
 */
#ifndef SESSIONFS_INODE_H
#define SESSIONFS_INODE_H

#include "fs/kernel.h"
#include "fs/node.h"

struct ws_node;

/* What an inode stands for; constant while it lives. */
struct inode_key {
    const struct fs_part *part;
    const struct node_row *row; /* NULL: a file below workspace/. */
    struct session *session;    /* NULL above sessions/ID. */
    uint64_t exec_n;            /* 0 but for execs/N and below. */
    uint64_t begin;             /* As in struct node. */
    struct ws_node *ws;         /* NULL: a control file, or workspace/ itself,
                                   whose tree comes and goes. */
};

/**
 * @param root   what the mount's root is
 * @param kernel outlives the table
 * @return a table, or NULL without memory
 */
struct inode_table *inode_table_new(const struct inode_key *root,
                                    struct kernel *kernel);

/**
 * Forgets all lookups and open handles, as the kernel does at the end of a
 * mount. Inodes with other references stay until those are given back.
 *
 * @param table the table
 */
void inode_table_clear(struct inode_table *table);

/** @param table freed, with nobody using it or an inode; NULL is fine */
void inode_table_free(struct inode_table *table);

/** @param table a table @return how many inodes there are */
uint64_t inode_count(struct inode_table *table);

/**
 * @param table a table
 * @param ino   a node number that the kernel sent
 * @return its inode, borrowed for the request
 */
struct inode *inode_find(struct inode_table *table, fuse_ino_t ino);

/**
 * The number of a file's inode, which may be gone at once.
 *
 * @param table a table
 * @param key   borrowed
 * @return the number, 0: the kernel does not know the file
 */
fuse_ino_t inode_peek(struct inode_table *table, const struct inode_key *key);

/**
 * The inode of a file, with one more lookup counted: for the reply to a
 * request that finds or makes a file. reply_entry() gives the lookup back
 * when the kernel did not take the reply.
 *
 * @param table a table
 * @param key   borrowed; the inode takes references of its own
 * @return the inode, or NULL without memory
 */
struct inode *inode_look_up(struct inode_table *table,
                            const struct inode_key *key);

/**
 * Gives lookups back.
 *
 * @param table a table
 * @param inode may be freed
 * @param count how many
 */
void inode_forget(struct inode_table *table, struct inode *inode,
                  uint64_t count);

/** @param table its table @param inode one more reference @return inode */
struct inode *inode_ref(struct inode_table *table, struct inode *inode);
/** @param table its table @param inode one reference less; NULL is fine */
void inode_unref(struct inode_table *table, struct inode *inode);

/** @param inode an inode @return what it stands for, borrowed */
const struct inode_key *inode_key(const struct inode *inode);

/** @param inode an inode @return the kernel's number for it */
fuse_ino_t inode_number(const struct inode *inode);

/**
 * Counts an open handle of a file below workspace/, which takes a reference.
 *
 * @param table its table
 * @param inode the file or directory
 */
void inode_opened(struct inode_table *table, struct inode *inode);
/** @param table its table @param inode with one open handle less */
void inode_closed(struct inode_table *table, struct inode *inode);

/** @param inode an inode @return how the kernel reaches its data */
struct kernel_backing *inode_backing(struct inode *inode);

/** Has the kernel forget which file is behind an inode, if it is not open.
 *  @param table a table @param key of the inode, if there is one */
void inode_leave(struct inode_table *table, const struct inode_key *key);

/** Has the kernel forget which files are behind the inodes of a session's
 *  workspace, none of which is open. @param table a table @param session whose
 */
void inode_unpass(struct inode_table *table, const struct session *session);

/** @param inode an inode @param kept noted @return what was noted before */
unsigned long inode_set_kept(struct inode *inode, unsigned long kept);

/**
 * Notes that the kernel is told the attributes of an inode of a session.
 *
 * @param table its table
 * @param inode whose
 */
void inode_tell(struct inode_table *table, struct inode *inode);

/**
 * Tells the numbers of a session's inodes that were noted since the last call.
 * Without memory they stay noted.
 *
 * @param table   a table
 * @param session whose
 * @param out     an array, the caller's to free; NULL when there are none
 * @return how many
 */
size_t inode_take_told(struct inode_table *table, const struct session *session,
                       fuse_ino_t **out);

#endif

/*
 * Inside sessionfs-keeper: the process that makes sandboxes.
 *
 * It has one thread, so that it may clone freely, and waits for nothing but
 * the next request. Each sandbox's process 1 is a clone of it, or of a cradle
 * (cradle.h) that is one, and never executes another program; where there are
 * no cgroups, each command has a reaper, a clone of process 1. Everything here
 * runs in the keeper or in such a clone, as the functions say. One that fails
 * gives the reason in words, which the daemon is told (wire.h).
 */
#ifndef SESSIONFS_LOCAL_KEEPER_H
#define SESSIONFS_LOCAL_KEEPER_H

#include "core/err.h"
#include "providers/local/wire.h"

#include <limits.h>
#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* ---- proc.c ---- */

/**
 * Writes a file of a process in /proc, in one call.
 *
 * @param pid  whose
 * @param name of the file
 * @param text all of it
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int proc_write(pid_t pid, const char *name, const char *text,
                        struct err *err);

/* A child, and our end of the socket that we share. */
struct proc_child {
    pid_t pid; /* 0: there is none; or it is we. */
    int sock;  /* SEQPACKET. */
    int pidfd; /* In the parent. */
};

/**
 * Makes a process that goes on from here, with a copy of the memory.
 *
 * @param flags  of clone3()
 * @param cgroup it is born into; -1: the caller's
 * @param out    on success, in both: what each has of the other
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int proc_clone(uint64_t flags, int cgroup, struct proc_child *out,
                        struct err *err);

/** Ends a process, and waits for that a moment. @param child there is none any
 *  more, or was none before */
void proc_end(struct proc_child *child);

/** @param child there is none any more; what we have of it is closed */
void proc_forget(struct proc_child *child);

/* ---- user.c: a keeper that is not root, or has mounts of its own. ---- */

/**
 * Whether this process may map a range of ids for sandboxes, as root may. If
 * not, they have one id, its own.
 *
 * @return whether
 */
bool user_maps_ids(void);

/**
 * Moves the keeper into user, mount and group namespaces of its own, in which
 * it may do what root's may do outside.
 *
 * @param err filled on failure: what this machine refuses, in words
 * @return 0 or a negative errno
 */
MUST_USE int user_enter(struct err *err);

/**
 * Moves a keeper that is root into a mount namespace of its own.
 *
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int user_enter_mounts(struct err *err);

/**
 * Moves the keeper into those that an earlier one has made: its mounts can be
 * copied only there.
 *
 * @param user   namespace; -1: none but the machine's
 * @param mounts namespace
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int user_join(int user, int mounts, struct err *err);

/**
 * Opens the keeper's namespaces for user_join().
 *
 * @param user   on success; left as it is where that is NULL
 * @param mounts on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int user_namespaces(int *user, int *mounts, struct err *err);

/**
 * Opens what an fd of another mount namespace holds in ours, where its mount
 * can be copied. A mount of ours that is attached nowhere is taken as it is.
 *
 * @param fd  of a directory
 * @param err filled on failure
 * @return an O_PATH fd or a negative errno
 */
MUST_USE int user_reopen(int fd, struct err *err);

/**
 * Tells the path of an fd, which leads to what is mounted there now.
 *
 * @param fd  of a directory, in our mount namespace
 * @param out on success
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int user_path(int fd, char out[PATH_MAX], struct err *err);

/* ---- move.c ---- */

/**
 * Puts another mount in the place of a sandbox's workspace, in which nothing
 * is open. In a clone of the keeper that ends then: it is in the sandbox.
 *
 * @param space the sandbox's mount namespace
 * @param mount that the keeper has made, attached nowhere; it gets a copy
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int move_workspace(int space, int mount, struct err *err);

/* ---- filter.c: the system calls that commands have. ---- */

/* Two filters that are installed one on the other. */
struct filter {
    struct sock_fprog allow; /* Which calls there are; the rest is ENOSYS. */
    struct sock_fprog deny;  /* Arguments that allowed calls may not have. */
};

/**
 * Compiles the filters. In the keeper, once.
 *
 * @param one_id whether all sandboxes have the same id
 * @param out    filled on success; filter_done() frees it
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int filter_build(bool one_id, struct filter *out, struct err *err);

/** @param filter as built, or all zero; freed */
void filter_done(struct filter *filter);

/**
 * Puts the filters on the calling process, which has no_new_privs, and on all
 * that it will start. In process 1, once: the kernel takes long over them. They
 * leave it clone3, by which it starts commands.
 *
 * @param filter as built
 * @return 0 or a negative errno
 */
MUST_USE int filter_install(const struct filter *filter);

/**
 * Takes clone3 from the calling process, since no filter sees what it is asked
 * for. In a command's process.
 *
 * @return 0 or a negative errno
 */
MUST_USE int filter_take_clone3(void);

/* ---- template.c: what of this machine all sandboxes see. ---- */

#define SYSTEM_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

enum {
    TEMPLATE_PLACES = 3
};

/* The root directory of sandboxes, in a mount namespace of its own: system
 * directories, devices and what is the same in all, read-only. */
struct template
{
    int mounts;      /* The namespace; -1: it is to be made. */
    int home;        /* The keeper's own, */
    int root;        /* and its root directory. */
    int table;       /* Tells when its mounts have changed. */
    int64_t made_us; /* By the wall clock. */
    struct stat seen[TEMPLATE_PLACES]; /* Where things may be replaced. */
};

/**
 * @param out nothing is made yet; template_close() ends it, also after a
 *            failure
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int template_open(struct template *out, struct err *err);

/** @param template as opened; closed */
void template_close(struct template *template);

/**
 * Makes it, or makes it anew where this machine has changed since.
 *
 * @param template as opened
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int template_renew(struct template *template, struct err *err);

/**
 * Goes where a sandbox's root directory is: what is cloned with a mount
 * namespace of its own then has a copy of that.
 *
 * @param mounts the template's namespace
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int template_enter(int mounts, struct err *err);

/** Comes back from there. @param template where we are at home @param err
 *  filled on failure @return 0 or a negative errno */
MUST_USE int template_leave(const struct template *template, struct err *err);

/**
 * Makes such a namespace.
 *
 * @param rootfs a directory whose system directories are taken in place of
 *               this machine's; -1: none
 * @param out    the namespace, on success; it ends when this is closed
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int template_make(int rootfs, int *out, struct err *err);

/* ---- tree.c: what a sandbox sees. ---- */

/** Gives a mount attributes, and makes it private. @param fd and path of it
 *  @param path relative to fd @param flags of mount_setattr() @param attr what
 *  is set @param err filled on failure @return 0 or a negative errno */
MUST_USE int tree_set_attr(int fd, const char *path, unsigned flags,
                           uint64_t attr, struct err *err);

/** Makes the working directory, which is a mount, the root of this process's
 *  mounts and leaves all others. @param err filled on failure @return 0 or a
 *  negative errno */
MUST_USE int tree_leave_old(struct err *err);

/**
 * Copies the mount of a workspace. In the keeper.
 *
 * @param workspace a directory
 * @param out       on success: it is attached nowhere
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int tree_open(int workspace, int *out, struct err *err);

/**
 * Adds to the template's mounts what the sandbox has of its own. In the
 * sandbox, privileged there, alone in new namespaces.
 *
 * @param workspace as opened
 * @param tmp_bytes the most in each of its directories in memory
 * @param scripts   on success: a directory that only the owner of this fd can
 *                  write to; the sandbox sees it as WIRE_SCRIPTS
 * @param oom       on success: the caller's oom_score_adj, to write to
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int tree_enter(int workspace, int64_t tmp_bytes, int *scripts,
                        int *oom, struct err *err);

/* ---- idmap.c, overlay.c: a workspace of layers. ---- */

/**
 * Copies the mount of a directory, unattached and read-only, so that its
 * owners are a sandbox's. In the keeper.
 *
 * @param dir  of this machine
 * @param base host id of the sandbox's id 0
 * @param out  the mount, on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int idmap_copy(int dir, uint32_t base, int *out, struct err *err);

/* The layers of an overlay; directories, borrowed. */
struct overlay_plan {
    int upper;        /* What the session writes; -1: nothing can be. */
    int work;         /* Empty; no mount has used it before. */
    int lower;        /* What lies below. */
    int layers;       /* A directory of layers, named by numbers, and */
    int chain;        /* a file: those between, as uint64_t, downwards: */
    int deep;         /* so many. */
    bool map_lower;   /* Its owners become the sandbox's (idmap_copy()). */
    bool attach;      /* See overlay_copies(). */
    bool synced;      /* What waits for the disk does. */
    uint32_t id_base; /* Host id of the sandbox's id 0. */
};

/**
 * Whether the kernel copies mounts that are attached nowhere, as Linux does
 * since 6.15. Where it does not, an overlay that a sandbox is to get a copy of
 * has to be attached in the keeper's own mount namespace.
 *
 * @return whether
 */
bool overlay_copies(void);

/**
 * Mounts an overlay. It is attached nowhere, or on its `work` in the keeper's
 * mount namespace: it goes from there when that is removed. In the keeper.
 *
 * @param plan borrowed
 * @param out  the mount, on success; else it ends with the last fd in it
 * @param err  filled on failure
 * @return 0, -EINVAL where the directories cannot be layers, or another
 *         negative errno
 */
MUST_USE int overlay_mount(const struct overlay_plan *plan, int *out,
                           struct err *err);

/* An option of an overlay's mount; without a value: a flag. */
struct overlay_option {
    const char *key;
    const char *value;
};

enum {
    OVERLAY_OPTIONS = 5
};

/**
 * Tells the options of a mount but for its layers.
 *
 * @param plan  borrowed
 * @param lower what lies below
 * @param out   so many of them
 * @return how many
 */
size_t overlay_list_options(const struct overlay_plan *plan, int lower,
                            struct overlay_option out[OVERLAY_OPTIONS]);

/* ---- attached.c: an overlay on older kernels. ---- */

/**
 * Mounts an overlay that has `attach`, of more than one directory.
 *
 * @param plan   borrowed
 * @param mapped a mount in place of the plan's `lower`, attached nowhere; or -1
 * @param out    the mount, on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int attached_mount(const struct overlay_plan *plan, int mapped,
                            int *out, struct err *err);

/* ---- rlimit.c: limits of each process. ---- */

/**
 * Sets the limits that commands inherit. In the sandbox, before it gives up
 * its privileges.
 *
 * @param quota       the sandbox's
 * @param counts_pids RLIMIT_NPROC is not what limits processes
 * @param err         filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int rlimit_set_all(const struct wire_quota *quota, bool counts_pids,
                            struct err *err);

/* ---- sandbox.c: a sandbox's process 1 up to its lock-down. ---- */

/* What a sandbox is made of; borrowed. */
struct sandbox_plan {
    int workspace; /* A directory of this machine. */
    int mounts;    /* The namespace its root directory is copied from. */
    const struct template *template;
    int cgroup;       /* It is born into this group; -1: there is none. */
    bool one_id;      /* It has one id, the keeper's own; */
    uint32_t id_base; /* else this is the host's id for its id 0. */
    struct wire_quota quota;
    bool in_cradle;   /* The caller ends; its parent is to be the parent. */
    bool counts_pids; /* Something better than RLIMIT_NPROC limits them. */
    const struct filter *filter;
};

/* A new sandbox; fds are the caller's. */
struct sandbox_made {
    int sock;  /* To init, which says WIRE_READY or WIRE_FAILED next. */
    int pidfd; /* Of init. */
    int space; /* Its mount namespace; -1: it could not be opened. */
};

/**
 * Starts a sandbox and returns before it is ready. In the keeper.
 *
 * @param plan borrowed
 * @param out  written on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int sandbox_start(const struct sandbox_plan *plan,
                           struct sandbox_made *out, struct err *err);

/**
 * Finds out whether this machine lets us make sandboxes. In the keeper.
 *
 * @param err filled on failure: what is missing, in words
 * @return 0 or a negative errno
 */
MUST_USE int sandbox_probe(struct err *err);

/* ---- reaper.c: a command's processes where no cgroup holds them. ---- */

/**
 * Makes a new child of process 1 a reaper: the process below which all of a
 * command's stay.
 *
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int reaper_become(struct err *err);

/**
 * Tells how the command ended, and ends when all its processes have ended. In a
 * reaper; never returns.
 *
 * @param pid   its child, which runs the command
 * @param reply gets WIRE_EXITED
 */
NORETURN void reaper_serve(pid_t pid, int reply);

/**
 * Signals all processes below a reaper once. In process 1, as the others.
 *
 * @param reaper whose; it is not signalled itself
 * @param signal to send
 * @return how many there were
 */
int reaper_signal(pid_t reaper, int signal);

/**
 * Sends the processes below a reaper a signal that ends them, and continues
 * them. Where they are many, all of the sandbox are stopped for a moment, so
 * that none can outrun this; the others are continued then, also those that
 * were stopped before.
 *
 * @param reaper whose; it ends when they have
 * @param signal SIGTERM or SIGKILL
 * @param again  it was not enough: as if they were many
 */
void reaper_end(pid_t reaper, int signal, bool again);

/**
 * Kills the processes whose reaper was killed.
 *
 * @param reapers all that live
 * @param count   how many
 */
void reaper_kill_strays(const pid_t *reapers, size_t count);

/** @return how many processes of the sandbox are not stopped */
int reaper_count_running(void);

/* ---- init.c: a sandbox's process 1 in service. ---- */

/* What init works with. */
struct init_plan {
    int sock;    /* To the daemon. */
    int scripts; /* The directory WIRE_SCRIPTS, to write to. */
    int oom;     /* Its own oom_score_adj, to write to; -1: none, */
    int oom_own; /* and what it was. */
    bool one_id; /* Commands have init's own id. */
    const struct filter *filter; /* For commands. */
};

/**
 * Runs commands and reaps processes until the socket ends; never returns.
 *
 * @param plan borrowed
 */
NORETURN void init_serve(const struct init_plan *plan);

#endif

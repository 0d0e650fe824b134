/*
 * The workspaces of sandboxes: what holds each on disk, and the mount of it.
 *
 * In a sandbox's directory lie `upper`, which has what the session wrote,
 * `work`, the kernel's, and `lower`, which is empty: the layers of an overlay.
 * It is mounted once, attached nowhere, at first need, and stays while the
 * daemon lives or until the workspace is removed; runs of the sandbox get
 * copies of the mount. With a `base` in the config that directory of this
 * machine is the lower layer, read-only, its owner shown as the sandbox's user
 * (idmap_copy()). Where there can be no overlay, `workspace` is a plain
 * directory instead, and used as it is. Thread-safe.
 */
#ifndef SESSIONFS_LOCAL_VOLUME_H
#define SESSIONFS_LOCAL_VOLUME_H

#include "core/provider.h"
#include "providers/local/link.h"

struct head;
struct layers;
struct volumes;

/**
 * @param link   borrowed; makes the mounts
 * @param layers borrowed; lie below
 * @param synced whether what waits for the disk does, as fsync() says it
 * @param out    no volumes, on success
 * @return 0 or -ENOMEM
 */
MUST_USE int volumes_new(struct link *link, struct layers *layers, bool synced,
                         struct volumes **out);
/** @param volumes freed, and with it the mounts; NULL is fine */
void volumes_free(struct volumes *volumes);

/**
 * Makes a workspace and opens it. What a create that was cut off has left is
 * taken over.
 *
 * @param volumes all of them
 * @param sandbox which
 * @param limits  deadline and token
 * @param plain   on success: why it is no overlay; "" where it is one
 * @param err     filled on failure
 * @return an O_PATH fd or a negative errno
 */
MUST_USE int volume_make(struct volumes *volumes, const struct sandbox *sandbox,
                         const struct limits *limits, struct err *plain,
                         struct err *err);

/**
 * Opens a workspace; mounts it where that was not done yet.
 *
 * @param volumes all of them
 * @param sandbox which
 * @param limits  deadline and token
 * @param err     filled on failure
 * @return an O_PATH fd, -ESTALE when it is gone, or another negative errno
 */
MUST_USE int volume_open(struct volumes *volumes, const struct sandbox *sandbox,
                         const struct limits *limits, struct err *err);

/**
 * Looks whether there is a workspace. Mounts nothing.
 *
 * @param sandbox which
 * @param err     filled on failure
 * @return 0, -ESTALE when it is gone, or another negative errno
 */
MUST_USE int volume_check(const struct sandbox *sandbox, struct err *err);

/** @param volumes all of them @param number of a session @return the mount of
 *  its overlay, the caller's to close; -1: there is none */
int volume_mount(struct volumes *volumes, uint64_t number);

/**
 * Mounts a workspace of which something else is noted than is mounted.
 *
 * @param volumes all of them
 * @param sandbox which
 * @param head    what it is to be; borrowed
 * @param limits  deadline and token
 * @param out     the mount, on success
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int volume_mount_as(struct volumes *volumes,
                             const struct sandbox *sandbox,
                             const struct head *head,
                             const struct limits *limits, int *out,
                             struct err *err);

/** Puts a mount in the place of another. @param volumes all of them @param
 *  number of a session whose workspace is mounted @param mount taken @return
 *  the one before, the caller's to close */
int volume_swap(struct volumes *volumes, uint64_t number, int mount);

/** Takes over a mount that an earlier daemon has made: another of the same
 *  directories would spoil them while a sandbox has that. @param volumes all of
 *  them @param number of the session @param mount taken on success @return 0 or
 *  -ENOMEM */
MUST_USE int volume_adopt(struct volumes *volumes, uint64_t number, int mount);

/** @param volumes all of them @param sandbox which, made or not @return the
 *  ids that its files have */
struct link_ids volume_ids(const struct volumes *volumes,
                           const struct sandbox *sandbox);

/**
 * Mounts what a workspace is with a layer on top, to be read.
 *
 * @param volumes all of them
 * @param sandbox which
 * @param top     the layer, which the caller has a reference to; 0: none
 * @param limits  deadline and token
 * @param err     filled on failure
 * @return a readable fd of the tree, or a negative errno
 */
MUST_USE int volume_view(struct volumes *volumes, const struct sandbox *sandbox,
                         uint64_t top, const struct limits *limits,
                         struct err *err);

/** Gives up the mount of a workspace, which has changed on disk: the next
 *  need mounts it anew. @param volumes all of them @param number of a session
 */
void volume_forget(struct volumes *volumes, uint64_t number);

/** Opens what a session wrote, to be read. @param dir of the session
 *  @return a directory, or -1 */
int volume_open_written(const char *dir);

/**
 * Removes a workspace with all that is in it; success when there is none.
 *
 * @param volumes all of them
 * @param sandbox which; no process of it lives
 * @param limits  deadline and token; what they leave is no workspace any more,
 *                and the next call removes it
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int volume_remove(struct volumes *volumes,
                           const struct sandbox *sandbox,
                           const struct limits *limits, struct err *err);

#endif

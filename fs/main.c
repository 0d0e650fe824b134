/* sessionfs: arguments, start, the mount's life, the end. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/loop.h"
#include "fs/check.h"
#include "fs/control.h"
#include "fs/daemon.h"
#include "fs/fs.h"
#include "fs/held.h"
#include "fs/inode.h"
#include "fs/kernel.h"
#include "fs/options.h"
#include "fs/park.h"
#include "fs/poll.h"
#include "fs/run.h"
#include "fs/serve.h"
#include "fs/signals.h"
#include "fs/start.h"
#include "fs/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_THREADS = 16,
    NAPS = 1000, /* For the end of a connection. */
    NAP_NS = 10 * 1000 * 1000,
};

static void workspace_changed(void *arg, struct session *session)
{
    kernel_changed(arg, session);
}

static void workspace_moved(void *arg, struct session *session)
{
    struct fs *fs = arg;

    inode_unpass(fs->inodes, session);
}

static void session_news(void *arg, struct session *session)
{
    pollers_wake(arg, session);
}

static void sandbox_left(void *arg, const char *id, const char *status)
{
    (void)arg;
    log_warning("the sandbox of session '%s' is left behind: %s", id, status);
}

/* The memory holds what commands are given. 1 and not 0: a program that takes
 * dumps is then not started either. */
static void forbid_core_dumps(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max ? 1 : 0;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
}

/* Open files and running commands cost descriptors. */
static void raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- FUSE's side ---- */

/* The options for the kernel, as one list. */
static bool make_list(const struct options *options, char **list)
{
    char name[sizeof("fsname=") + sizeof(options->source)];

    (void)snprintf(name, sizeof(name), "fsname=%s", options->source);
    return fuse_opt_add_opt(list, "default_permissions,nosuid,nodev,"
                                  "subtype=sessionfs") == 0 &&
           fuse_opt_add_opt_escaped(list, name) == 0 &&
           (!options->read_only || fuse_opt_add_opt(list, "ro") == 0) &&
           (!options->no_exec || fuse_opt_add_opt(list, "noexec") == 0) &&
           (!options->allow_other ||
            fuse_opt_add_opt(list, "allow_other") == 0);
}

static int make_args(const struct options *options, struct fuse_args *args,
                     struct err *err)
{
    AUTO_FREE char *list = NULL;
    bool done =
        make_list(options, &list) && fuse_opt_add_arg(args, "sessionfs") == 0 &&
        fuse_opt_add_arg(args, "-o") == 0 && fuse_opt_add_arg(args, list) == 0;

    return done ? 0 : err_no_memory(err);
}

static int new_fuse(struct fs *fs, const struct options *options,
                    struct err *err)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    int rc = make_args(options, &args, err);

    if (rc == 0) {
        fs->fuse = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), fs);
        rc = fs->fuse ? 0 : err_set(err, EINVAL, "cannot set up FUSE");
    }
    fuse_opt_free_args(&args);
    return rc;
}

/* For a user who is not root, who may only by this program's leave. */
static void fusermount_stale(char *mount_point)
{
    char program[] = "fusermount3";
    char options[] = "-uzq";
    char last[] = "--";
    char *argv[] = {program, options, last, mount_point, NULL};
    pid_t pid;

    if (posix_spawnp(&pid, program, NULL, NULL, argv, environ) == 0) {
        (void)waitpid(pid, NULL, 0);
    }
}

/*
 * The mount of a daemon that died answers ENOTCONN and hides the directory,
 * though the kernel may have kept what the directory looks like. While the
 * connection ends, which for one by rings is after the process, requests are
 * cut off.
 */
static bool is_stale(const char *mount_point)
{
    const struct timespec nap = {0, NAP_NS};
    struct statx st;
    int code = EINTR;

    for (int i = 0; i < NAPS; i++) {
        code = statx(AT_FDCWD, mount_point, AT_STATX_FORCE_SYNC,
                     STATX_BASIC_STATS, &st) < 0
                   ? errno
                   : 0;
        if (code != ECONNABORTED && code != ECANCELED) {
            break;
        }
        (void)nanosleep(&nap, NULL);
    }
    return code == ENOTCONN;
}

static void clear_stale(char *mount_point)
{
    if (is_stale(mount_point)) {
        log_warning("unmounting what a dead daemon left at '%s'", mount_point);
        if (umount2(mount_point, MNT_DETACH) < 0) {
            fusermount_stale(mount_point);
        }
    }
}

/* Whether what was mounted last on a directory is a sessionfs. Does not ask
 * that, which may be another user's. */
static bool has_mount(const char *mount_point)
{
    FILE *table = setmntent("/proc/self/mounts", "re");
    char line[4 * PATH_MAX];
    struct mntent entry;
    bool has = false;

    while (table && getmntent_r(table, &entry, line, sizeof(line))) {
        if (strcmp(entry.mnt_dir, mount_point) == 0) {
            has = strcmp(entry.mnt_type, "fuse.sessionfs") == 0;
        }
    }
    if (table) {
        (void)endmntent(table);
    }
    return has;
}

static int mount_fuse(struct fs *fs, const struct options *options,
                      struct err *err)
{
    char mount_point[PATH_MAX];

    memcpy(mount_point, options->mount_point, sizeof(mount_point));
    clear_stale(mount_point);
    if (has_mount(mount_point)) {
        return err_set(err, EBUSY, "a sessionfs is mounted on '%s' already",
                       mount_point);
    }
    if (fuse_session_mount(fs->fuse, options->mount_point) != 0) {
        return err_set(err, EIO, "cannot mount on '%s'", options->mount_point);
    }
    return kernel_attach(fs, err);
}

/* Without asking ourselves: nobody serves yet. */
static void tell_mounted(struct fs *fs, const struct options *options)
{
    struct statx st;

    if (statx(AT_FDCWD, options->mount_point, AT_STATX_DONT_SYNC, 0, &st) ==
        0) {
        registry_mounted(fs->mount.registry, st.stx_dev_major,
                         st.stx_dev_minor);
    }
}

static int serve_requests(struct fs *fs, struct err *err)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc;

    if (!config) {
        return err_no_memory(err);
    }
    fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
    fuse_loop_cfg_set_idle_threads(config, MAX_THREADS);
    rc = fuse_session_loop_mt(fs->fuse, config);
    fuse_loop_cfg_destroy(config);
    return rc < 0 ? err_set(err, -rc, "the connection to the kernel broke: %s",
                            strerror(-rc))
                  : 0;
}

/* ---- Ours ---- */

static int new_parts(struct fs *fs, const struct options *options,
                     struct err *err)
{
    const struct inode_key root = {.part = &control_part, .row = &node_root};

    fs->kernel =
        kernel_new(options->features, options->allow_other || fs->uid != 0);
    fs->pollers = pollers_new();
    fs->held = held_new();
    fs->inodes = fs->kernel ? inode_table_new(&root, fs->kernel) : NULL;
    if (!fs->kernel || !fs->pollers || !fs->held || !fs->inodes) {
        return err_no_memory(err);
    }
    return 0;
}

/* What needs threads: after the fork. */
static int start(struct fs *fs, const struct options *options, struct err *err)
{
    const struct registry_hooks hooks = {fs, workspace_changed, session_news,
                                         sandbox_left, workspace_moved};
    int rc = loop_new(&fs->loop, err);

    fs->mount.stats = stats_write;
    fs->mount.stats_arg = fs;
    if (rc < 0) {
        return rc;
    }
    fs->parks = parks_new(fs->loop);
    if (!fs->parks) {
        return err_no_memory(err);
    }
    return start_registry(options, provider_table, fs->loop, &hooks,
                          &fs->mount.registry, err);
}

/* `sessionfs serve` finds the sessions of a mount too. */
static void serve_others(struct fs *fs, const struct options *options)
{
    struct err err = ERR_INIT;

    if (!options->read_only && server_open(fs->mount.registry, options->state,
                                           &fs->server, &err) < 0) {
        log_warning("'sessionfs serve' will not find this mount: %s", err.msg);
    }
}

/* From the outside in: requests, notifications, the mount, the sessions. */
static void stop(struct fs *fs)
{
    if (fs->parks) {
        parks_close(fs->parks);
    }
    if (fs->kernel) {
        kernel_end(fs->kernel);
    }
    if (fs->fuse) {
        fuse_session_unmount(fs->fuse);
    }
    registry_send(fs->mount.registry, fs->end_ms);
    if (fs->held) {
        held_clear(fs->held);
    }
    if (fs->inodes) {
        inode_table_clear(fs->inodes);
    }
    server_close(fs->server);
    if (!registry_close(fs->mount.registry, fs->end_ms)) {
        log_error("a call of an engine does not end; it is left behind");
        _exit(EXIT_FAILURE);
    }
    loop_free(fs->loop);
    parks_free(fs->parks);
    pollers_free(fs->pollers);
    held_free(fs->held);
    inode_table_free(fs->inodes);
    if (fs->fuse) {
        fuse_session_destroy(fs->fuse);
    }
    kernel_free(fs->kernel);
}

static int run(struct fs *fs, const struct options *options,
               struct daemon *daemon, struct err *err)
{
    int rc = start(fs, options, err);

    if (rc == 0) {
        rc = signals_begin(fs->fuse, err);
    }
    if (rc == 0) {
        rc = mount_fuse(fs, options, err);
    }
    if (rc < 0) {
        return rc;
    }
    tell_mounted(fs, options);
    serve_others(fs, options);
    daemon_ready(daemon, options);
    rc = serve_requests(fs, err);
    /* At once, for who starts another. */
    registry_ending(fs->mount.registry);
    daemon_ending();
    signals_hold();
    return rc;
}

static int mount_and_serve(const struct options *options, struct err *err)
{
    struct daemon daemon;
    struct fs fs = {
        .mount = {.started_us = clock_wall_us()},
        .end_ms = start_end_ms(options),
        .uid = getuid(),
        .gid = options->gid,
        .shared = options->group[0] != '\0',
    };
    int rc = new_parts(&fs, options, err);

    if (rc == 0) {
        rc = new_fuse(&fs, options, err);
    }
    if (rc == 0) {
        rc = daemon_start(&daemon, options->foreground, err);
    }
    if (rc == 0) {
        rc = run(&fs, options, &daemon, err);
    }
    stop(&fs);
    return rc;
}

/* Whether a word says what the program is to be: where mount(8) mounts from a
 * source of that name, the mount point and options follow. */
static bool is_word(int argc, char **argv, const char *word)
{
    return argc > 1 && strcmp(argv[1], word) == 0 &&
           !(argc > 3 && argv[2][0] != '-' && strcmp(argv[3], "-o") == 0);
}

/* What serves, in one way or another. */
static int serve(const struct options *options)
{
    struct err err = ERR_INIT;
    int rc;

    log_setup(LOG_TO_STDERR, options->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
    /* Modes of files are those that requests ask for. */
    (void)umask(0);
    raise_fd_limit();
    forbid_core_dumps();
    rc = options->serve ? serve_main(options, provider_table, &err)
                        : mount_and_serve(options, &err);
    if (rc < 0) {
        log_error("%s", err.msg);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static int parse(int argc, char **argv, struct options *out, struct err *err)
{
    return is_word(argc, argv, "serve")
               ? options_parse_serve(argc - 1, argv + 1, out, err)
               : options_parse(argc, argv, out, err);
}

int main(int argc, char **argv)
{
    struct options options;
    struct err err = ERR_INIT;

    if (is_word(argc, argv, "run")) {
        return run_main(argc - 1, argv + 1);
    }
    if (parse(argc, argv, &options, &err) < 0) {
        (void)fprintf(stderr, "sessionfs: %s\n", err.msg);
        return 2;
    }
    if (options.help) {
        options_help(options.serve, provider_table);
        return EXIT_SUCCESS;
    }
    if (options.version) {
        (void)printf("sessionfs %s\n", SESSIONFS_VERSION);
        return EXIT_SUCCESS;
    }
    if (options.check) {
        return check_run(&options, provider_table);
    }
    return serve(&options);
}

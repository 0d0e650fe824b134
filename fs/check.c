/* What works here. See check.h. */
#include "fs/check.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/provider.h"
#include "core/store_dir.h"
#include "fs/check_kernel.h"
#include "fs/options.h"
#include "fs/start.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LIMITS_SIZE = 64 * 1024,
    LACKING_SIZE = 1024 * 1024,
};

/* Whether a line says "works". */
static bool tell(const char *what, int rc, const struct err *err)
{
    if (rc < 0) {
        (void)printf("%s: does not work: %s\n", what, err->msg);
    } else {
        (void)printf("%s: works\n", what);
    }
    return rc == 0;
}

/* Whether there is a program in the path that mounts for those who may not. */
static bool has_fusermount(void)
{
    const char *path = getenv("PATH");
    AUTO_FREE char *copy = strdup(path ? path : "/usr/bin:/bin");
    char *left = copy;

    while (left) {
        char file[PATH_MAX];
        struct stat st;

        (void)snprintf(file, sizeof(file), "%s/fusermount3",
                       strsep(&left, ":"));
        if (stat(file, &st) == 0 && (st.st_mode & S_ISUID) &&
            access(file, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int check_fuse(struct err *err)
{
    AUTO_FD int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    AUTO_FD int context = -1;

    if (device < 0) {
        return err_errno(err, "/dev/fuse");
    }
    /* What comes before a mount, and is refused to the same. */
    context = fsopen("fuse", FSOPEN_CLOEXEC);
    if (context >= 0) {
        return 0;
    }
    if (errno != EPERM) {
        return err_errno(err, "the kernel's file system");
    }
    return has_fusermount()
               ? 0
               : err_set(err, EPERM,
                         "no right to mount, and no setuid fusermount3 in "
                         "the path");
}

/* ---- Providers ---- */

/* `{"value": …, "by": …, "why": …}` of one limit. */
static int tell_limit(void *arg, const char *key, const struct js *value,
                      struct err *err)
{
    const char *by = js_text(value, "by");
    const char *why = js_text(value, "why");

    (void)arg;
    (void)err;
    (void)printf("  limit %s: %s%s%s\n", key, by ? by : "none",
                 why && *why ? ": " : "", why ? why : "");
    return 0;
}

/* How each limit of a sandbox would hold. */
static void tell_limits(struct provider *provider)
{
    struct instance instance = {.external_id = NULL};
    const struct sandbox sandbox = {
        .id = "check", .dir = "/", .config = "{}", .instance = &instance};
    struct buf text = BUF_INIT(LIMITS_SIZE);
    struct err err = ERR_INIT;
    struct js *limits = NULL;

    if (provider_limits(provider, &sandbox, &text, &err) < 0 ||
        js_parse(buf_str(&text), text.size, &limits, &err) < 0 ||
        js_each(limits, tell_limit, NULL, &err) < 0) {
        (void)printf("  limits: not known: %s\n", err.msg);
    }
    js_free(limits);
    buf_done(&text);
}

static bool check_provider(const struct provider_ops *ops,
                           const struct provider_env *env)
{
    struct provider *provider = NULL;
    struct err err = ERR_INIT;
    char what[128];
    int rc = provider_open(ops, env, &provider, &err);

    (void)snprintf(what, sizeof(what), "provider %s", ops->name);
    (void)tell(what, rc, &err);
    if (rc == 0) {
        tell_limits(provider);
        provider_close(provider);
    }
    return rc == 0;
}

/* Whether the chosen one is there and works. */
static bool check_each(const struct options *options,
                       const struct provider_ops *const *providers,
                       const struct provider_env *env)
{
    bool known = false;
    bool good = false;

    for (; *providers; providers++) {
        bool chosen = strcmp((*providers)->name, options->provider) == 0;
        bool works = check_provider(*providers, env);

        known |= chosen;
        good |= chosen && works;
    }
    if (!known) {
        (void)printf("provider %s: there is no such provider\n",
                     options->provider);
    }
    return good;
}

/* Of the scratch directory. */
static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *place)
{
    (void)st;
    (void)type;
    (void)place;
    (void)remove(path);
    return 0;
}

/* Providers get a state directory that is not the real one. */
static bool check_providers(const struct options *options,
                            const struct provider_ops *const *providers)
{
    char dir[] = "/tmp/sessionfs-check.XXXXXX";
    struct provider_env env = {.uid = getuid(), .gid = getgid()};
    struct err err = ERR_INIT;
    bool good = false;
    int rc = mkdtemp(dir) ? loop_new(&env.loop, &err)
                          : err_errno(&err, "make '%s'", dir);

    if (rc == 0) {
        env.state_dir = dir;
        good = check_each(options, providers, &env);
        loop_free(env.loop);
    } else {
        (void)tell("providers", rc, &err);
    }
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    return good;
}

/* What is begun is also ended: a signal comes after that. */
static void hold_signals(sigset_t *before)
{
    sigset_t held;

    (void)sigemptyset(&held);
    (void)sigaddset(&held, SIGHUP);
    (void)sigaddset(&held, SIGINT);
    (void)sigaddset(&held, SIGQUIT);
    (void)sigaddset(&held, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &held, before);
}

/* One that a daemon uses works. */
static bool check_store(const struct options *options)
{
    struct err err = ERR_INIT;
    int rc = store_dir_check(options->state, &err);
    bool good = tell("store", rc == -EBUSY ? 0 : rc, &err);

    if (rc == -EBUSY) {
        (void)printf("  %s\n", err.msg);
    }
    return good;
}

/* A start reads them all, and uses none. */
static bool check_profiles(const struct options *options,
                           const struct provider_ops *const *providers)
{
    struct buf lacking = BUF_INIT(LACKING_SIZE);
    struct err err = ERR_INIT;
    bool good =
        tell("profiles",
             start_check_profiles(options, providers, &lacking, &err), &err);
    const char *line = buf_str(&lacking);

    while (*line) {
        int len = (int)strcspn(line, "\n");

        (void)printf("  %.*s\n", len, line);
        line += len + 1;
    }
    buf_done(&lacking);
    return good;
}

int check_run(const struct options *options,
              const struct provider_ops *const *providers)
{
    struct err err = ERR_INIT;
    sigset_t before;
    bool good = tell("fuse", check_fuse(&err), &err);

    if (good) {
        check_kernel_fuse();
    }
    good &= check_store(options);
    if (options->profiles[0]) {
        good &= check_profiles(options, providers);
    }
    (void)printf("sandboxes:\n");
    check_kernel_sandboxes();
    hold_signals(&before);
    good &= check_providers(options, providers);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Controllers of cgroups. See control.h. */
#include "providers/local/control.h"

#include "core/cleanup.h"
#include "providers/local/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

enum {
    PERIOD_US = 100000,
    LINE_SIZE = 2 * PATH_MAX,
    SHARES = 1024,      /* Of one ordinary process. */
    SHARES_MAX = 262144 /* The kernel's. */
};

/* The machine keeps this part of its memory, whatever the sandboxes take. */
#define KEPT_PART 16
#define KEPT_MIN  (INT64_C(256) << 20)

static const char *const names[WIRE_CONTROLS] = {
    [WIRE_CONTROL_MEMORY] = "memory",
    [WIRE_CONTROL_PIDS] = "pids",
    [WIRE_CONTROL_CPU] = "cpu",
};

static int write_int(int group, const char *file, int64_t value,
                     struct err *err)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    return cgroup_write(group, file, text, err);
}

/* ---- Version 1: finding the hierarchies ---- */

/* Whether a list of words with commas between has one. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    while (list) {
        if (strncmp(list, word, len) == 0 &&
            (list[len] == ',' || list[len] == ':' || list[len] == '\0' ||
             list[len] == '\n')) {
            return true;
        }
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return false;
}

/* Where a controller's hierarchy is mounted, and which part of it. */
static bool find_mount(const char *controller, char root[PATH_MAX],
                       char place[PATH_MAX])
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[LINE_SIZE];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file)) {
        char *type = strstr(line, " - cgroup ");
        char *options = type ? strrchr(type, ' ') : NULL;

        found = options && has_word(options + 1, controller) &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", root, place) == 2;
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

/* The path of this process in a controller's hierarchy. */
static bool find_path(const char *controller, char out[PATH_MAX])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[LINE_SIZE];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;

        found = path && has_word(list + 1, controller);
        if (found) {
            path[strcspn(path, "\n")] = '\0';
            (void)snprintf(out, PATH_MAX, "%.*s", PATH_MAX - 1, path + 1);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

/* Opens the group that this process is in. */
static int open_self(const char *controller, struct err *err)
{
    char root[PATH_MAX];
    char place[PATH_MAX];
    char path[PATH_MAX];
    const char *below = path;
    AUTO_FD int mount = -1;
    int fd;

    if (!find_mount(controller, root, place) || !find_path(controller, path)) {
        return err_set(err, ENOENT, "no %s controller is mounted", controller);
    }
    if (strcmp(root, "/") != 0 && strncmp(path, root, strlen(root)) == 0) {
        below += strlen(root);
    }
    below += strspn(below, "/");
    mount = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = mount < 0 ? -1
                   : openat(mount, below[0] ? below : ".",
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, "the %s controller's group", controller)
                  : fd;
}

/* ---- The keeper's groups ---- */

/* Of a dead keeper: its group of version 2 has been cleared. */
static void clear_leftover(int parent, const char *name, int v2)
{
    if (faccessat(v2, name, F_OK, 0) < 0) {
        (void)cgroup_remove(parent, name);
    }
}

/* All sandboxes together leave the machine some memory: so none but theirs is
 * ended where it ends. */
static void limit_all(enum wire_control what, enum wire_means means, int group)
{
    struct err ignored = ERR_INIT;
    struct sysinfo info;

    if (what == WIRE_CONTROL_MEMORY && sysinfo(&info) == 0) {
        int64_t all = (int64_t)info.totalram * (int64_t)info.mem_unit;
        int64_t kept = all / KEPT_PART;

        kept = kept < KEPT_MIN ? KEPT_MIN : kept;
        if (all > 2 * kept) {
            (void)write_int(group,
                            means == WIRE_MEANS_V2 ? "memory.max"
                                                   : "memory.limit_in_bytes",
                            all - kept, &ignored);
        }
    } else if (what == WIRE_CONTROL_CPU && means == WIRE_MEANS_V1) {
        int64_t shares = SHARES * sysconf(_SC_NPROCESSORS_ONLN);

        /* As much as an ordinary process on each processor. */
        (void)write_int(group, "cpu.shares",
                        shares > SHARES_MAX ? SHARES_MAX : shares, &ignored);
    }
}

static int open_v1(struct control *control, enum wire_control what, int v2,
                   struct err *err)
{
    AUTO_FD int self = open_self(names[what], err);
    int rc;

    if (self < 0) {
        return self;
    }
    cgroup_each_keeper(self, clear_leftover, v2);
    rc = cgroup_make(self, control->group->name, 0, &control->of[what].parent,
                     err);
    if (rc == 0) {
        control->of[what].self = TAKE_FD(self);
        control->of[what].means = WIRE_MEANS_V1;
        limit_all(what, WIRE_MEANS_V1, control->of[what].parent);
    }
    return rc;
}

/* Whether a group has a process; the first of all may. */
static bool is_in_use(int group)
{
    AUTO_FD int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    char first;

    return faccessat(group, "cgroup.type", F_OK, 0) == 0 &&
           read(fd, &first, 1) != 0;
}

/* Whether the keeper and the daemon are all that is in a group. */
static bool is_ours_alone(int group, pid_t daemon)
{
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char line[32];
    bool alone = file != NULL;

    while (alone && fgets(line, sizeof(line), file)) {
        long pid = strtol(line, NULL, 10);

        alone = pid == getpid() || pid == daemon;
    }
    if (file) {
        (void)fclose(file);
    } else {
        cleanup_fd(&fd);
    }
    return alone;
}

/*
 * A group gives its children a controller only where it has no process, or they
 * become such that none can be started in: so the daemon and its keeper go into
 * one of their own, if they are alone.
 */
static int step_aside(int self, pid_t daemon, struct err *err)
{
    const pid_t pids[] = {daemon, getpid()};
    AUTO_FD int aside = -1;
    int rc = 0;

    if (!is_in_use(self)) {
        return 0;
    }
    if (!is_ours_alone(self, daemon)) {
        return err_set(err, EBUSY,
                       "the daemon shares its cgroup with other processes");
    }
    (void)mkdirat(self, CGROUP_ASIDE, 0755);
    aside = openat(self, CGROUP_ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(pids); i++) {
        rc = write_int(aside, "cgroup.procs", pids[i], err);
    }
    return rc;
}

/* `sign`: whether children get a controller. */
static int give(int group, char sign, enum wire_control what, struct err *err)
{
    char word[16];

    (void)snprintf(word, sizeof(word), "%c%s", sign, names[what]);
    return cgroup_write(group, "cgroup.subtree_control", word, err);
}

static int open_v2(struct control *control, enum wire_control what,
                   pid_t daemon, struct err *err)
{
    const struct group *group = control->group;
    int rc = step_aside(group->self, daemon, err);

    if (rc == 0) {
        rc = give(group->self, '+', what, err);
    }
    if (rc == 0) {
        rc = give(group->own, '+', what, err);
    }
    if (rc == 0) {
        control->of[what].means = WIRE_MEANS_V2;
        limit_all(what, WIRE_MEANS_V2, group->own);
    }
    return rc;
}

void control_open(const struct group *group, pid_t daemon, struct control *out,
                  struct err *why)
{
    err_clear(why);
    out->group = group;
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        struct err err = ERR_INIT;
        int rc;

        out->of[i].means = WIRE_MEANS_NONE;
        out->of[i].self = -1;
        out->of[i].parent = -1;
        rc = cgroup_has_word(group->self, "cgroup.controllers", names[i])
                 ? open_v2(out, i, daemon, &err)
                 : open_v1(out, i, group->self, &err);
        if (rc < 0 && !why->code) {
            *why = err;
        }
    }
}

void control_rest(const struct control *control)
{
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        struct err ignored = ERR_INIT;

        if (control->of[i].means == WIRE_MEANS_V2 &&
            give(control->group->own, '-', i, &ignored) == 0) {
            (void)give(control->group->self, '-', i, &ignored);
        }
    }
}

void control_resume(struct control *control, pid_t daemon, struct err *why)
{
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        struct err err = ERR_INIT;

        if (control->of[i].means == WIRE_MEANS_V2 &&
            open_v2(control, i, daemon, &err) < 0) {
            control->of[i].means = WIRE_MEANS_NONE;
            *why = err;
        }
    }
}

bool control_close(struct control *control)
{
    bool gone = true;

    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        if (control->of[i].parent >= 0) {
            cleanup_fd(&control->of[i].parent);
            gone =
                cgroup_remove(control->of[i].self, control->group->name) == 0 &&
                gone;
            cleanup_fd(&control->of[i].self);
        }
    }
    return gone;
}

/* ---- A sandbox's groups ---- */

bool control_needs_cradle(const struct control *control)
{
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        if (control->of[i].means == WIRE_MEANS_V1) {
            return true;
        }
    }
    return false;
}

int control_make(const struct control *control, const char *name,
                 struct control_groups *out, struct err *err)
{
    struct control_groups groups;
    int rc = 0;

    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        groups.of[i] = -1;
    }
    for (unsigned i = 0; rc == 0 && i < WIRE_CONTROLS; i++) {
        if (control->of[i].parent >= 0) {
            rc =
                cgroup_make(control->of[i].parent, name, 0, &groups.of[i], err);
        }
    }
    if (rc < 0) {
        control_groups_done(&groups);
        return rc;
    }
    *out = groups;
    return 0;
}

void control_groups_done(struct control_groups *groups)
{
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        cleanup_fd(&groups->of[i]);
    }
}

int control_enter(const struct control_groups *groups, struct err *err)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < WIRE_CONTROLS; i++) {
        if (groups->of[i] >= 0) {
            rc = cgroup_write(groups->of[i], "cgroup.procs", "0", err);
        }
    }
    return rc;
}

static int limit_memory(int group, bool v2, int64_t bytes, struct err *err)
{
    struct err ignored = ERR_INIT;
    int rc = write_int(group, v2 ? "memory.max" : "memory.limit_in_bytes",
                       bytes, err);

    /* Where there is swap, it is not for what is beyond. */
    if (rc == 0 && v2) {
        (void)write_int(group, "memory.swap.max", 0, &ignored);
    } else if (rc == 0) {
        (void)write_int(group, "memory.memsw.limit_in_bytes", bytes, &ignored);
    }
    return rc;
}

static int limit_cpu(int group, bool v2, int64_t percent, struct err *err)
{
    int64_t quota = percent * (PERIOD_US / 100);
    char text[64];
    int rc;

    if (v2) {
        (void)snprintf(text, sizeof(text), "%" PRId64 " %d", quota, PERIOD_US);
        return cgroup_write(group, "cpu.max", text, err);
    }
    rc = write_int(group, "cpu.cfs_period_us", PERIOD_US, err);
    return rc == 0 ? write_int(group, "cpu.cfs_quota_us", quota, err) : rc;
}

static int limit_one(enum wire_control what, int group, bool v2,
                     const struct wire_quota *quota, struct err *err)
{
    switch (what) {
    case WIRE_CONTROL_MEMORY:
        return limit_memory(group, v2, quota->memory_bytes, err);
    case WIRE_CONTROL_PIDS:
        /* Process 1 is none of the commands'. */
        return write_int(group, "pids.max", quota->pids + 1, err);
    case WIRE_CONTROL_CPU:
        return limit_cpu(group, v2, quota->cpu_percent, err);
    case WIRE_CONTROLS:
        break;
    }
    return err_set(err, EINVAL, "no such controller");
}

int control_limit(const struct control *control,
                  const struct control_groups *groups, int group,
                  const struct wire_quota *quota, struct err *err)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < WIRE_CONTROLS; i++) {
        enum wire_means means = control->of[i].means;

        if (means != WIRE_MEANS_NONE) {
            bool v2 = means == WIRE_MEANS_V2;

            rc = limit_one(i, v2 ? group : groups->of[i], v2, quota, err);
        }
    }
    return rc;
}

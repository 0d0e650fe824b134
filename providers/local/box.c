/* One run of a sandbox. See box.h. */
#include "providers/local/box.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cgroup.h"
#include "providers/local/link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    POLL_FIRST_US = 30,  /* The kernel tells of a freeze 10 ms late; */
    POLL_MOST_US = 2000, /* so we look, ever more seldom. */
    FORKS_ON = 1,        /* Looks at which forks fail again and again. */
    ABANDON_MS = 1000,   /* For the end of one that did not become ready. */
};

/* Distinguishes boxes of one session. */
static atomic_uint_fast64_t next_run;

/* Ends a wait that has lasted too long, else sleeps a little. */
static int take_breath(long *us, const char *verb, const struct limits *limits,
                       struct err *err)
{
    struct timespec ts = {.tv_sec = 0, .tv_nsec = *us * 1000};
    char late[64];
    int rc;

    (void)snprintf(late, sizeof(late), "the sandbox's processes do not %s",
                   verb);
    rc = limits_check(limits, late, err);
    if (rc < 0) {
        return rc;
    }
    (void)nanosleep(&ts, NULL);
    *us = *us * 2 > POLL_MOST_US ? POLL_MOST_US : *us * 2;
    return 0;
}

/* Waits until the cgroup's event has a value: until its processes `verb`. */
static int await_event(const struct box *box, const char *key, bool value,
                       const char *verb, const struct limits *limits,
                       struct err *err)
{
    long us = POLL_FIRST_US;
    int rc = 0;

    while (rc == 0 && cgroup_is(box->cgroup, key) != value) {
        rc = take_breath(&us, verb, limits, err);
    }
    return rc;
}

/* What init says next. */
static int await_init(const struct box *box, const struct limits *limits,
                      struct wire *out, struct err *err)
{
    int fds[WIRE_FD_MAX];
    int rc = limits_wait(limits, box->sock, POLLIN, err);

    if (rc == 0) {
        rc = wire_recv(box->sock, out, fds, err);
    }
    if (rc == -EPIPE) {
        return err_set(err, EIO, "the sandbox's first process died");
    }
    if (rc == 0) {
        wire_close(fds);
    }
    return rc;
}

static int await_ready(const struct box *box, const struct limits *limits,
                       struct err *err)
{
    struct wire wire;
    int rc = await_init(box, limits, &wire, err);

    if (rc == 0 && wire.type != WIRE_READY) {
        rc = err_set(err, wire.code > 0 ? wire.code : EPROTO, "%s", wire.words);
    }
    return rc;
}

/* The caller's limits may have passed, but its cgroup should not stay. */
static void abandon(struct box *box)
{
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(ABANDON_MS),
                            .cancel = &never};
    struct err ignored = ERR_INIT;

    (void)box_end(box, &limits, &ignored);
    box_unref(box);
}

int box_start(struct link *link, uint64_t number, const struct link_plan *plan,
              const struct limits *limits, struct box **out, struct err *err)
{
    struct box *box = calloc(1, sizeof(*box));
    struct link_plan named = *plan;
    struct link_made made;
    int rc;

    if (!box) {
        return err_no_memory(err);
    }
    (void)snprintf(box->name, sizeof(box->name), "%" PRIu64 ".%" PRIu64, number,
                   (uint64_t)atomic_fetch_add(&next_run, 1));
    named.name = box->name;
    rc = link_start(link, &named, limits, &made, err);
    if (rc < 0) {
        free(box);
        return rc;
    }
    list_init(&box->link);
    list_init(&box->leftovers);
    box->keeper = link;
    box->name_held = link_name_box(link);
    box->number = number;
    box->ids = plan->ids;
    box->quota = plan->quota;
    box->sock = made.sock;
    box->pidfd = made.pidfd;
    box->space = made.space;
    box->cgroup = made.cgroup;
    memcpy(box->groups, made.groups, sizeof(box->groups));
    memcpy(box->groups_name, made.groups_name, sizeof(box->groups_name));
    atomic_init(&box->frozen, false);
    atomic_init(&box->serial, 0);
    mutex_init(&box->lock);
    atomic_init(&box->refs, 1);
    rc = await_ready(box, limits, err);
    if (rc < 0) {
        abandon(box);
        return rc;
    }
    *out = box;
    return 0;
}

/* ---- Holding and adopting ---- */

void box_hold(const struct box *box, int mount)
{
    struct wire wire = {.code = box->cgroup >= 0, /* There is one. */
                        .quota = box->quota,
                        .held = {.box = box->name_held,
                                 .number = box->number,
                                 .frozen = atomic_load(&box->frozen)}};
    int fds[WIRE_BOX_FDS] = {[WIRE_BOX_SOCK] = box->sock,
                             [WIRE_BOX_PIDFD] = box->pidfd,
                             [WIRE_BOX_CGROUP] = box->cgroup,
                             [WIRE_BOX_MOUNT] = mount,
                             [WIRE_BOX_SPACE] = box->space};

    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        fds[WIRE_BOX_GROUPS + i] = box->groups[i];
    }
    (void)snprintf(wire.held.name, sizeof(wire.held.name), "%s", box->name);
    (void)snprintf(wire.held.groups_name, sizeof(wire.held.groups_name), "%s",
                   box->groups_name);
    link_hold(box->keeper, &wire, fds, WIRE_BOX_FDS);
}

int box_move(const struct box *box, int mount, const struct limits *limits,
             struct err *err)
{
    int rc = box->space < 0
                 ? err_set(err, EOPNOTSUPP, "the sandbox's mounts are its own")
                 : link_move(box->keeper, box->space, mount, limits, err);

    if (rc == 0) {
        box_hold(box, mount);
    }
    return rc;
}

void box_unhold(const struct box *box)
{
    const struct wire_held held = {.box = box->name_held};

    link_drop(box->keeper, &held);
}

void box_count_run(const char *name)
{
    const char *dot = strchr(name, '.');
    uint64_t run = dot ? strtoull(dot + 1, NULL, 10) : 0;

    if (run >= atomic_load(&next_run)) {
        atomic_store(&next_run, run + 1);
    }
}

static void fill_adopted(struct box *box, struct link *link,
                         struct link_held *held)
{
    const struct wire_held *what = &held->wire.held;
    int *fds = held->fds;
    struct err ignored = ERR_INIT;

    list_init(&box->link);
    list_init(&box->leftovers);
    box->keeper = link;
    box->name_held = what->box;
    box->number = what->number;
    box->ids = link_ids(link, what->number);
    box->quota = held->wire.quota;
    box->sock = TAKE_FD(fds[WIRE_BOX_SOCK]);
    box->pidfd = TAKE_FD(fds[WIRE_BOX_PIDFD]);
    box->space = TAKE_FD(fds[WIRE_BOX_SPACE]);
    box->cgroup = TAKE_FD(fds[WIRE_BOX_CGROUP]);
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        box->groups[i] = TAKE_FD(fds[WIRE_BOX_GROUPS + i]);
    }
    (void)snprintf(box->name, sizeof(box->name), "%.47s", what->name);
    (void)snprintf(box->groups_name, sizeof(box->groups_name), "%.31s",
                   what->groups_name);
    atomic_init(&box->frozen, what->frozen != 0);
    atomic_init(&box->serial, 0);
    mutex_init(&box->lock);
    /* Above what an earlier daemon has asked. */
    box->freezes = (uint64_t)clock_wall_us();
    atomic_init(&box->refs, 1);
    if (box->cgroup >= 0) {
        box_find_commands(box);
    }
    /* What was met before is no news. */
    (void)box_met_limit(box, &ignored);
    box->refused = box->met[WIRE_CONTROL_PIDS];
}

struct box *box_adopt(struct link *link, struct link_held *held)
{
    struct box *box;

    if (held->fds[WIRE_BOX_SOCK] < 0 || held->fds[WIRE_BOX_PIDFD] < 0 ||
        (held->wire.code && held->fds[WIRE_BOX_CGROUP] < 0)) {
        return NULL;
    }
    box = calloc(1, sizeof(*box));
    if (box) {
        fill_adopted(box, link, held);
    }
    return box;
}

struct box *box_ref(struct box *box)
{
    atomic_fetch_add(&box->refs, 1);
    return box;
}

void box_unref(struct box *box)
{
    if (box && atomic_fetch_sub(&box->refs, 1) == 1) {
        list_each_safe(node, &box->leftovers)
        {
            free(container_of(node, struct box_leftover, link));
        }
        box_drop_spare(box);
        mutex_done(&box->lock);
        (void)close(box->sock);
        (void)close(box->pidfd);
        cleanup_fd(&box->space);
        cleanup_fd(&box->cgroup);
        for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
            cleanup_fd(&box->groups[i]);
        }
        free(box);
    }
}

/* Its socket ends a little before it: with its files, so with its commands. */
bool box_alive(const struct box *box)
{
    struct pollfd fds[2] = {{.fd = box->pidfd, .events = POLLIN},
                            {.fd = box->sock, .events = 0}};

    return poll(fds, 2, 0) == 0;
}

static int freeze_group(const struct box *box, bool freeze,
                        const struct limits *limits, struct err *err)
{
    int rc = cgroup_freeze(box->cgroup, freeze, err);

    if (rc == 0) {
        rc = await_event(box, "frozen", freeze, freeze ? "freeze" : "thaw",
                         limits, err);
    }
    return rc;
}

static int ask_to_freeze(struct box *box, bool freeze, struct err *err)
{
    const struct wire wire = {
        .type = WIRE_FREEZE, .n = ++box->freezes, .code = freeze};

    return box_send(box, &wire, NULL, 0, err);
}

/* The answer to the last question; those that nobody took come before it. */
static int await_frozen(const struct box *box, const struct limits *limits,
                        struct wire *out, struct err *err)
{
    int rc;

    do {
        rc = await_init(box, limits, out, err);
    } while (rc == 0 && out->n != box->freezes);
    return rc;
}

/* Init stops them, and tells how many have not stopped yet. */
static int freeze_by_init(struct box *box, bool freeze,
                          const struct limits *limits, struct err *err)
{
    struct wire answer = {.code = 1};
    long us = POLL_FIRST_US;
    int rc = 0;

    while (rc == 0 && answer.code != 0) {
        rc = ask_to_freeze(box, freeze, err);
        if (rc == 0) {
            rc = await_frozen(box, limits, &answer, err);
        }
        if (rc == 0 && answer.code != 0) {
            rc = take_breath(&us, "stop", limits, err);
        }
    }
    return rc;
}

static void note_frozen(const struct box *box, bool frozen)
{
    const struct wire_held held = {.box = box->name_held, .frozen = frozen};

    link_note(box->keeper, &held);
}

int box_still(struct box *box, bool still, const struct limits *limits,
              struct err *err)
{
    int rc = box->cgroup >= 0 ? freeze_group(box, still, limits, err)
                              : freeze_by_init(box, still, limits, err);
    struct err ignored = ERR_INIT;

    if (rc < 0 && still) {
        (void)(box->cgroup >= 0 ? cgroup_freeze(box->cgroup, false, &ignored)
                                : ask_to_freeze(box, false, &ignored));
    }
    return rc;
}

int box_freeze(struct box *box, bool freeze, const struct limits *limits,
               struct err *err)
{
    int rc;

    if (freeze) {
        note_frozen(box, true); /* Before it is. */
    }
    rc = box_still(box, freeze, limits, err);
    if (rc == 0) {
        atomic_store(&box->frozen, freeze);
    }
    if (freeze ? rc < 0 : rc == 0) {
        note_frozen(box, false);
    }
    return rc;
}

/* Process 1 takes all others with it, and is the last to go. */
static int end_init(const struct box *box, const struct limits *limits,
                    struct err *err)
{
    if (syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0U) < 0 &&
        errno != ESRCH) {
        return err_errno(err, "cannot kill the sandbox's first process");
    }
    return limits_wait(limits, box->pidfd, POLLIN, err);
}

static void remove_group(int group, const char *name)
{
    AUTO_FD int parent = -1;

    if (group >= 0) {
        parent = openat(group, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (parent >= 0) {
        (void)cgroup_remove(parent, name);
    }
}

static void note_end(struct box *box)
{
    mutex_lock(&box->lock);
    box->ended = true;
    mutex_unlock(&box->lock);
}

static int end_group(struct box *box, const struct limits *limits,
                     struct err *err)
{
    struct err gone = ERR_INIT;

    if (cgroup_kill(box->cgroup, &gone) == 0) {
        int rc = await_event(box, "populated", false, "end", limits, err);

        if (rc < 0) {
            return rc;
        }
    }
    note_end(box);
    /* Where the group is gone, another keeper has cleared it. */
    remove_group(box->cgroup, box->name);
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        remove_group(box->groups[i], box->groups_name);
    }
    return 0;
}

int box_end(struct box *box, const struct limits *limits, struct err *err)
{
    return box->cgroup >= 0 ? end_group(box, limits, err)
                            : end_init(box, limits, err);
}

/* How often a limit was met, as the kernel counts. */
static int64_t count_met(const struct box *box, enum wire_control what)
{
    int group = box->groups[what];
    bool v1 = group >= 0;

    if (!v1) {
        group = box->cgroup;
    }
    if (group < 0) {
        return 0;
    }
    if (what == WIRE_CONTROL_MEMORY) {
        return cgroup_count(group, v1 ? "memory.oom_control" : "memory.events",
                            "oom_kill");
    }
    return cgroup_count(group, "pids.events", "max");
}

static void tell_pids(const struct box *box, struct err *why)
{
    (void)err_set(why, EDQUOT,
                  "pids: the sandbox had its %" PRId64
                  " processes, and could make no more",
                  box->quota.pids);
}

bool box_forks_on(struct box *box, struct err *why)
{
    const int64_t now = count_met(box, WIRE_CONTROL_PIDS);

    box->refusals = now > box->refused ? box->refusals + 1 : 0;
    box->refused = now;
    if (box->refusals <= FORKS_ON) {
        return false;
    }
    /* Once more only when it goes on. */
    box->refusals = 0;
    tell_pids(box, why);
    return true;
}

bool box_met_limit(struct box *box, struct err *why)
{
    const int64_t memory = count_met(box, WIRE_CONTROL_MEMORY);
    const int64_t pids = count_met(box, WIRE_CONTROL_PIDS);
    bool met = true;

    if (memory > box->met[WIRE_CONTROL_MEMORY]) {
        (void)err_set(why, EDQUOT,
                      "memory_bytes: a process was killed where the sandbox "
                      "had taken its %" PRId64 " bytes",
                      box->quota.memory_bytes);
    } else if (pids > box->met[WIRE_CONTROL_PIDS]) {
        tell_pids(box, why);
    } else {
        met = false;
    }
    box->met[WIRE_CONTROL_MEMORY] = memory;
    box->met[WIRE_CONTROL_PIDS] = pids;
    return met;
}

int box_send(const struct box *box, const struct wire *wire, const int *fds,
             size_t count, struct err *err)
{
    return wire_send(box->sock, wire, fds, count, err);
}

/* A watch over the disk. See watch.h. */
#include "providers/local/watch.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/disk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    TURN_MS = 500,       /* Between looks at the file system. */
    OLD_MS = 1000,       /* A sum is taken again after that, after more */
    OLD_MAX_MS = 16000,  /* up to this while it stays the same, */
    OLD_TIMES = 100,     /* or after this many times as long as it took. */
    REST_TIMES = 5,      /* The least between two, likewise. */
    SUM_MAX_MS = 5000,   /* Then what has been found must do. */
    SHARE = 20,          /* One part in so many of the disk stays free, */
    GROWTH = 1024 * 1024 /* Who grows by less fills no disk. */
};

#define FREE_MAX (INT64_C(1) << 30) /* but never more than this. */

/* A session. */
struct watched {
    struct list link;
    uint64_t number;
    char *dir;
    int64_t limit;
    bool runs;
    bool touched; /* Written to through the mount since the last sum. */
    bool known;   /* Summed once: */
    int64_t used; /* so much, */
    int64_t free; /* with so much left for all, */
    int64_t at_ms;
    int64_t took_ms;
    int64_t old_ms;
    int64_t stopped_at; /* Bytes at which it was stopped; 0: it was not. */
};

/* What the file system has. */
struct room {
    int64_t free;  /* Bytes, also those for root, */
    int64_t avail; /* without them, */
    int64_t least; /* which must not become less than this. */
    bool low;
};

struct watch {
    int state;
    struct watch_calls calls;
    pthread_t thread;
    struct mutex lock;
    struct cond change;
    struct list all GUARDED; /* By lock, */
    bool ending GUARDED;     /* too. */
};

/* A sum that is being made, without the lock. */
struct sum {
    char *dir;
    int64_t used;
    int64_t took_ms;
};

/* ---- The file system ---- */

static void read_room(const struct watch *watch, struct room *out)
{
    struct statvfs st;
    int64_t size;

    memset(out, 0, sizeof(*out));
    if (fstatvfs(watch->state, &st) < 0) {
        return;
    }
    size = (int64_t)st.f_blocks * (int64_t)st.f_frsize;
    out->free = (int64_t)st.f_bfree * (int64_t)st.f_frsize;
    out->avail = (int64_t)st.f_bavail * (int64_t)st.f_frsize;
    out->least = size / SHARE < FREE_MAX ? size / SHARE : FREE_MAX;
    /* Some file systems do not count files. */
    out->low = out->avail < out->least ||
               (st.f_files > 0 && st.f_favail < st.f_files / 1000);
}

static int refuse_low(const struct room *room, struct err *err)
{
    return err_set(err, ENOSPC,
                   "the disk of the state directory is nearly full: %" PRId64
                   " bytes are free, %" PRId64 " are kept",
                   room->avail, room->least);
}

static int refuse_over(const struct watched *watched, struct err *err)
{
    return err_set(err, EDQUOT,
                   "disk_bytes: the session's files take %" PRId64
                   " bytes, its limit is %" PRId64,
                   watched->used, watched->limit);
}

/* ---- Sessions ---- */

static struct watched *find_locked(struct watch *watch, uint64_t number)
    REQUIRES(watch->lock)
{
    list_each(node, &watch->all)
    {
        struct watched *watched = container_of(node, struct watched, link);

        if (watched->number == number) {
            return watched;
        }
    }
    return NULL;
}

static void free_watched(struct watched *watched)
{
    if (watched) {
        free(watched->dir);
        free(watched);
    }
}

static struct watched *new_watched(uint64_t number, const char *dir,
                                   int64_t limit)
{
    struct watched *watched = calloc(1, sizeof(*watched));

    if (!watched) {
        return NULL;
    }
    list_init(&watched->link);
    watched->number = number;
    watched->limit = limit;
    watched->touched = true;
    watched->old_ms = OLD_MS;
    watched->dir = strdup(dir);
    if (!watched->dir) {
        free(watched);
        return NULL;
    }
    return watched;
}

int watch_add(struct watch *watch, uint64_t number, const char *dir,
              int64_t limit)
{
    struct watched *fresh = new_watched(number, dir, limit);
    struct watched *watched;

    if (!fresh) {
        return -ENOMEM;
    }
    mutex_lock(&watch->lock);
    watched = find_locked(watch, number);
    if (watched) {
        watched->limit = limit;
        watched->touched = true;
    } else {
        list_add(&watch->all, &TAKE_PTR(fresh)->link);
    }
    cond_broadcast(&watch->change);
    mutex_unlock(&watch->lock);
    free_watched(fresh);
    return 0;
}

void watch_drop(struct watch *watch, uint64_t number)
{
    struct watched *watched;

    mutex_lock(&watch->lock);
    watched = find_locked(watch, number);
    if (watched) {
        list_remove(&watched->link);
    }
    mutex_unlock(&watch->lock);
    free_watched(watched);
}

void watch_runs(struct watch *watch, uint64_t number, bool runs)
{
    struct watched *watched;

    mutex_lock(&watch->lock);
    watched = find_locked(watch, number);
    if (watched) {
        watched->runs = runs;
        watched->touched = true; /* Once more when it has stopped. */
        watched->old_ms = OLD_MS;
        cond_broadcast(&watch->change);
    }
    mutex_unlock(&watch->lock);
}

/* What it holds at least, if all that became free was its own. */
static int64_t least_used(const struct watched *watched,
                          const struct room *room)
{
    int64_t freed = room->free - watched->free;

    return watched->used - (freed > 0 ? freed : 0);
}

/* What it holds at most, if all that was taken is its own. */
static int64_t most_used(const struct watched *watched, const struct room *room)
{
    int64_t taken = watched->free - room->free;

    return watched->used + (taken > 0 ? taken : 0);
}

int watch_room(struct watch *watch, uint64_t number, struct err *err)
{
    struct watched *watched;
    struct room room;
    int rc = 0;

    read_room(watch, &room);
    if (room.low) {
        return refuse_low(&room, err);
    }
    mutex_lock(&watch->lock);
    watched = find_locked(watch, number);
    if (watched) {
        if (!watched->touched) {
            watched->touched = true;
            cond_broadcast(&watch->change);
        }
        if (watched->known && least_used(watched, &room) > watched->limit) {
            rc = refuse_over(watched, err);
        }
    }
    mutex_unlock(&watch->lock);
    return rc;
}

/* ---- The thread ---- */

static bool is_due(const struct watched *watched, const struct room *room)
{
    int64_t age = clock_ms() - watched->at_ms;
    int64_t old = watched->took_ms * OLD_TIMES;

    if (!watched->runs && !watched->touched) {
        return false;
    }
    if (!watched->known) {
        return true;
    }
    if (age < watched->took_ms * REST_TIMES) {
        return false;
    }
    return room->low || most_used(watched, room) > watched->limit ||
           age > (old > watched->old_ms ? old : watched->old_ms);
}

/* The sessions whose trees are to be read now: `count` of them, to free(). */
static uint64_t *list_due(struct watch *watch, const struct room *room,
                          size_t *count)
{
    uint64_t *out = NULL;
    size_t all = 0;

    *count = 0;
    mutex_lock(&watch->lock);
    list_each(node, &watch->all)
    {
        all++;
    }
    out = all ? calloc(all, sizeof(*out)) : NULL;
    list_each(node, &watch->all)
    {
        const struct watched *watched =
            container_of(node, struct watched, link);

        if (out && is_due(watched, room)) {
            out[(*count)++] = watched->number;
        }
    }
    mutex_unlock(&watch->lock);
    return out;
}

/* Copies what the sum needs; false when the session has gone. */
static bool begin_sum(struct watch *watch, uint64_t number, struct sum *out)
{
    struct watched *watched;

    memset(out, 0, sizeof(*out));
    mutex_lock(&watch->lock);
    watched = watch->ending ? NULL : find_locked(watch, number);
    if (watched) {
        out->dir = strdup(watched->dir);
        watched->touched = false;
    }
    mutex_unlock(&watch->lock);
    return out->dir != NULL;
}

static void read_tree(const struct watch *watch, struct sum *sum)
{
    AUTO_FD int top = watch->calls.open(sum->dir);
    int64_t begin = clock_ms();

    if (top >= 0) {
        (void)disk_sum(top, begin + SUM_MAX_MS, &sum->used);
    }
    sum->took_ms = clock_ms() - begin;
}

/*
 * Whether its processes are to be stopped for what it holds. Those that only
 * take things away may go on, though it is still too much.
 */
static bool judge(struct watched *watched, struct err *why)
{
    if (watched->used <= watched->limit) {
        watched->stopped_at = 0;
        return false;
    }
    if (watched->used <= watched->stopped_at + GROWTH) {
        return false;
    }
    watched->stopped_at = watched->used;
    (void)refuse_over(watched, why);
    return watched->runs;
}

static int64_t next_old(const struct watched *watched, int64_t used)
{
    if (used != watched->used) {
        return OLD_MS;
    }
    return watched->old_ms < OLD_MAX_MS ? watched->old_ms * 2 : OLD_MAX_MS;
}

/* Takes note of a sum; tells how much more it is than the last one. */
static int64_t end_sum(struct watch *watch, uint64_t number,
                       const struct sum *sum, const struct room *room,
                       struct err *why)
{
    struct watched *watched;
    int64_t growth = 0;

    mutex_lock(&watch->lock);
    watched = find_locked(watch, number);
    if (watched) {
        growth =
            watched->known && watched->runs ? sum->used - watched->used : 0;
        watched->old_ms = next_old(watched, sum->used);
        watched->known = true;
        watched->used = sum->used;
        watched->free = room->free;
        watched->at_ms = clock_ms();
        watched->took_ms = sum->took_ms;
        if (!judge(watched, why)) {
            err_clear(why);
        }
    }
    mutex_unlock(&watch->lock);
    return growth;
}

/* One look at all that is due; on a full disk who filled it is stopped. */
static void look(struct watch *watch)
{
    struct room room;
    struct err why = ERR_INIT;
    uint64_t hog = 0;
    int64_t most = GROWTH;
    size_t count;
    uint64_t *due;

    read_room(watch, &room);
    due = list_due(watch, &room, &count);
    for (size_t i = 0; i < count; i++) {
        struct sum sum;
        int64_t growth;

        if (!begin_sum(watch, due[i], &sum)) {
            continue;
        }
        read_tree(watch, &sum);
        growth = end_sum(watch, due[i], &sum, &room, &why);
        free(sum.dir);
        if (why.code) {
            watch->calls.stop(watch->calls.arg, due[i], &why);
        } else if (growth > most) {
            most = growth;
            hog = due[i];
        }
    }
    free(due);
    if (room.low && hog) {
        (void)refuse_low(&room, &why);
        watch->calls.stop(watch->calls.arg, hog, &why);
    }
}

/* Without anything that may grow there is nothing to look at. */
static bool anything_locked(struct watch *watch) REQUIRES(watch->lock)
{
    list_each(node, &watch->all)
    {
        const struct watched *watched =
            container_of(node, struct watched, link);

        if (watched->runs || watched->touched) {
            return true;
        }
    }
    return false;
}

/* Waits for the next turn; false at the end. */
static bool await_turn(struct watch *watch)
{
    int64_t turn = clock_deadline(TURN_MS);
    bool go_on;

    mutex_lock(&watch->lock);
    while (!watch->ending && (clock_ms() < turn || !anything_locked(watch))) {
        (void)cond_wait(&watch->change, &watch->lock,
                        clock_ms() < turn ? turn : DEADLINE_NONE);
    }
    go_on = !watch->ending;
    mutex_unlock(&watch->lock);
    return go_on;
}

static void *watch_main(void *arg)
{
    struct watch *watch = arg;

    while (await_turn(watch)) {
        look(watch);
        if (watch->calls.turn) {
            watch->calls.turn(watch->calls.arg);
        }
    }
    return NULL;
}

/* ---- Its life ---- */

/* Signals are for the threads of the program that expect them. */
static int start_thread(struct watch *watch)
{
    sigset_t all;
    sigset_t before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&watch->thread, NULL, watch_main, watch);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void free_watch(struct watch *watch)
{
    struct list *node;

    mutex_lock(&watch->lock);
    node = list_pop(&watch->all);
    while (node) {
        free_watched(container_of(node, struct watched, link));
        node = list_pop(&watch->all);
    }
    mutex_unlock(&watch->lock);
    cond_done(&watch->change);
    mutex_done(&watch->lock);
    cleanup_fd(&watch->state);
    free(watch);
}

int watch_new(const char *state_dir, const struct watch_calls *calls,
              struct watch **out, struct err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    int rc = 0;

    if (!watch) {
        return err_no_memory(err);
    }
    watch->calls = *calls;
    mutex_init(&watch->lock);
    cond_init(&watch->change);
    list_init(&watch->all);
    watch->state = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (watch->state < 0) {
        rc = err_errno(err, "%s", state_dir);
    } else {
        rc = start_thread(watch);
        rc = rc ? err_set(err, rc, "cannot start a thread") : 0;
    }
    if (rc < 0) {
        free_watch(watch);
        return rc;
    }
    *out = watch;
    return 0;
}

void watch_free(struct watch *watch)
{
    if (!watch) {
        return;
    }
    mutex_lock(&watch->lock);
    watch->ending = true;
    cond_broadcast(&watch->change);
    mutex_unlock(&watch->lock);
    (void)pthread_join(watch->thread, NULL);
    free_watch(watch);
}

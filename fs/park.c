/* Requests that wait. See park.h. */
#include "fs/park.h"

#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/session.h"
#include "fs/task.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_AGAIN_MS = 100,
    CLOSE_MS = 2000, /* For replies that are being written. */
};

struct park {
    struct parks *parks;
    struct list link GUARDED; /* by lock: in parks->waiting while it waits. */
    struct list chosen;       /* Of parks_tick(), in the loop's thread. */
    bool answered GUARDED;    /* by lock */
    bool armed GUARDED;       /* by lock: libfuse knows our callback. */
    bool replying GUARDED;    /* by lock: the work answers it. */
    atomic_bool interrupted;  /* FUSE_INTERRUPT came. */
    atomic_uint refs;
    fuse_req_t req;
    pid_t tid;
    int64_t deadline_ms;
    struct reply_about about; /* Its name and session are owned. */
    const struct park_kind *kind;
    void *arg;
};

struct parks {
    struct mutex lock; /* A leaf, but for libfuse's locks of a request. */
    struct list waiting GUARDED; /* by lock */
    int64_t next_ms GUARDED;     /* by lock: when the timer fires at last. */
    bool closed GUARDED;         /* by lock */
    bool dropped GUARDED;        /* by lock: those that waited, too. */
    unsigned replying GUARDED;   /* by lock: parks that the work answers. */
    struct cond change;          /* Of dropped and replying. */
    struct loop *loop;
    struct loop_timer *timer; /* Of the loop's thread; NULL once closed. */
};

static void parks_tick(void *arg);

struct parks *parks_new(struct loop *loop)
{
    struct parks *parks = calloc(1, sizeof(*parks));

    if (!parks) {
        return NULL;
    }
    parks->timer = loop_timer_new(loop, parks_tick, parks);
    if (!parks->timer) {
        free(parks);
        return NULL;
    }
    mutex_init(&parks->lock);
    cond_init(&parks->change);
    list_init(&parks->waiting);
    parks->next_ms = DEADLINE_NONE;
    parks->loop = loop;
    return parks;
}

void parks_free(struct parks *parks)
{
    if (parks) {
        cond_done(&parks->change);
        mutex_done(&parks->lock);
        free(parks);
    }
}

size_t parks_count(struct parks *parks)
{
    size_t count = 0;

    mutex_lock(&parks->lock);
    list_each(at, &parks->waiting)
    {
        count++;
    }
    mutex_unlock(&parks->lock);
    return count;
}

struct park *park_new(fuse_req_t req, const struct reply_about *about,
                      const struct park_kind *kind, void *arg)
{
    struct park *park = calloc(1, sizeof(*park));
    char *name = about->name ? strdup(about->name) : NULL;
    struct err err = ERR_INIT;

    if (!park || (about->name && !name)) {
        free(park);
        free(name);
        if (kind->free) {
            kind->free(arg);
        }
        reply_err(req, about, err_no_memory(&err), &err);
        return NULL;
    }
    list_init(&park->link);
    list_init(&park->chosen);
    park->parks = fs_of(req)->parks;
    atomic_init(&park->refs, 2); /* One is park_wait()'s. */
    park->req = req;
    park->tid = fuse_req_ctx(req)->pid;
    park->deadline_ms =
        clock_deadline(kind->most_ms ? kind->most_ms : DEADLINE_NONE);
    park->about = *about;
    park->about.name = name;
    if (about->session) {
        session_ref(about->session);
    }
    park->kind = kind;
    park->arg = arg;
    return park;
}

struct park *park_ref(struct park *park)
{
    atomic_fetch_add(&park->refs, 1);
    return park;
}

static void reply_ended(struct park *park)
{
    struct parks *parks = park->parks;

    mutex_lock(&parks->lock);
    if (park->replying) {
        park->replying = false;
        parks->replying--;
        cond_broadcast(&parks->change);
    }
    mutex_unlock(&parks->lock);
}

void park_unref(struct park *park)
{
    if (!park || atomic_fetch_sub(&park->refs, 1) > 1) {
        return;
    }
    reply_ended(park);
    if (park->kind->free) {
        park->kind->free(park->arg);
    }
    session_unref(park->about.session);
    free((void *)(uintptr_t)park->about.name);
    free(park);
}

const struct reply_about *park_about(const struct park *park)
{
    return &park->about;
}

/* Called by libfuse, which holds the request's lock: so it only makes a mark.
 * park_take() passes that lock before anything is freed. */
static void on_interrupt(fuse_req_t req, void *data)
{
    struct park *park = data;

    (void)req;
    if (!atomic_exchange(&park->interrupted, true)) {
        loop_post(park->parks->loop, parks_tick, park->parks);
    }
}

fuse_req_t park_take(struct park *park)
{
    struct parks *parks = park->parks;
    bool mine;
    bool armed;

    mutex_lock(&parks->lock);
    mine = !park->answered;
    armed = park->armed;
    park->answered = true;
    if (mine) {
        park->replying = true;
        parks->replying++;
    }
    list_remove(&park->link);
    mutex_unlock(&parks->lock);
    if (!mine) {
        return NULL;
    }
    if (armed) {
        fuse_req_interrupt_func(park->req, NULL, NULL);
    }
    return park->req;
}

void park_end(void *arg, int rc, const struct err *err)
{
    struct park *park = arg;
    fuse_req_t req = park_take(park);

    if (req && rc < 0) {
        reply_err(req, &park->about, rc, err);
    } else if (req) {
        reply_ok(req);
    }
    park_unref(park);
}

static const char *drop_words(int code)
{
    switch (code) {
    case EINTR:
        return "interrupted";
    case EINPROGRESS:
        return "not done yet, and goes on";
    case ENOTCONN:
        return "the filesystem is being unmounted";
    case EAGAIN:
        return "too many requests of the session wait";
    default:
        return "took too long";
    }
}

/* Answers in place of the work. */
static void drop(struct park *park, int code)
{
    fuse_req_t req = park_take(park);

    if (!req) {
        return;
    }
    /* First: what the answer says is so then, whatever becomes of us. */
    if (park->kind->dropped) {
        park->kind->dropped(park->arg, code);
    }
    if (code) {
        reply_without(req, &park->about, code, drop_words(code));
    } else {
        reply_ok(req);
    }
    reply_ended(park);
}

/* Returns whether the timer must be moved forward. */
static bool enlist(struct park *park)
{
    struct parks *parks = park->parks;
    bool sooner = false;

    if (!park->answered) {
        list_add(&parks->waiting, &park->link);
        park->armed = true;
        fuse_req_interrupt_func(park->req, on_interrupt, park);
        sooner = park->deadline_ms < parks->next_ms;
    }
    return sooner;
}

/* Whether as many of its session wait as may: each keeps memory, and by rings
 * a place in one. */
static bool is_full(struct parks *parks, const struct session *session)
    REQUIRES(parks->lock)
{
    unsigned n = 0;

    list_each(node, &parks->waiting)
    {
        n += container_of(node, struct park, link)->about.session == session;
    }
    return n >= PARKS_MOST;
}

void park_wait(struct park *park)
{
    struct parks *parks = park->parks;
    bool sooner = false;
    int refused = 0;

    mutex_lock(&parks->lock);
    if (parks->closed) {
        refused = ENOTCONN;
    } else if (is_full(parks, park->about.session)) {
        refused = EAGAIN;
    } else {
        sooner = enlist(park);
    }
    mutex_unlock(&parks->lock);
    if (refused) {
        drop(park, refused);
    } else if (sooner) {
        loop_post(parks->loop, parks_tick, parks);
    }
    park_unref(park);
}

/* Moves the parks that need a look to `out`, each with a reference. */
static void choose(struct parks *parks, bool all, struct list *out)
{
    int64_t now = clock_ms();

    mutex_lock(&parks->lock);
    list_each(at, &parks->waiting)
    {
        struct park *park = container_of(at, struct park, link);

        if (all || park->deadline_ms <= now ||
            atomic_load(&park->interrupted)) {
            list_add(out, &park_ref(park)->chosen);
        }
    }
    mutex_unlock(&parks->lock);
}

static void look_at(struct park *park)
{
    if (park->deadline_ms <= clock_ms()) {
        drop(park, park->kind->late);
    } else if (atomic_load(&park->interrupted) && task_interrupted(park->tid)) {
        drop(park, EINTR);
    }
}

static int64_t next_look(struct parks *parks) REQUIRES(parks->lock)
{
    int64_t next = DEADLINE_NONE;

    list_each(at, &parks->waiting)
    {
        const struct park *park = container_of(at, struct park, link);
        int64_t due = park->deadline_ms;

        if (atomic_load(&park->interrupted)) {
            int64_t again = clock_deadline(LOOK_AGAIN_MS);

            due = again < due ? again : due;
        }
        next = due < next ? due : next;
    }
    return next;
}

/* In the loop's thread: looks, and sets the timer for the next look. */
static void parks_tick(void *arg)
{
    struct parks *parks = arg;
    struct list chosen;
    struct list *at;
    int64_t next;

    list_init(&chosen);
    choose(parks, false, &chosen);
    at = list_pop(&chosen);
    while (at) {
        struct park *park = container_of(at, struct park, chosen);

        look_at(park);
        park_unref(park);
        at = list_pop(&chosen);
    }
    mutex_lock(&parks->lock);
    next = next_look(parks);
    parks->next_ms = next;
    mutex_unlock(&parks->lock);
    if (parks->timer) {
        loop_timer_set(parks->timer, next);
    }
}

static void drop_all(void *arg)
{
    struct parks *parks = arg;
    struct list chosen;
    struct list *at;

    loop_timer_free(parks->timer);
    parks->timer = NULL;
    list_init(&chosen);
    choose(parks, true, &chosen);
    at = list_pop(&chosen);
    while (at) {
        struct park *park = container_of(at, struct park, chosen);

        drop(park, ENOTCONN);
        park_unref(park);
        at = list_pop(&chosen);
    }
    mutex_lock(&parks->lock);
    parks->dropped = true;
    cond_broadcast(&parks->change);
    mutex_unlock(&parks->lock);
}

void parks_close(struct parks *parks)
{
    int64_t deadline = clock_deadline(CLOSE_MS);
    int rc = 0;

    mutex_lock(&parks->lock);
    parks->closed = true;
    loop_post(parks->loop, drop_all, parks);
    while (!parks->dropped || (parks->replying && rc == 0)) {
        rc = cond_wait(&parks->change, &parks->lock,
                       parks->dropped ? deadline : DEADLINE_NONE);
    }
    mutex_unlock(&parks->lock);
}

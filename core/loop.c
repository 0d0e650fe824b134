/* The epoll loop. See loop.h. */
#include "core/loop.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

struct post {
    struct list link;
    loop_fn *fn;
    void *arg;
};

struct loop_source {
    struct loop *loop;
    struct list link; /* In loop->dead after its end. */
    int fd;
    loop_fd_fn *fn; /* NULL once freed: events of this round are dropped. */
    void *arg;
};

struct loop_timer {
    struct loop *loop;
    struct list link; /* In loop->timers while armed, soonest first. */
    int64_t deadline_ms;
    loop_fn *fn;
    void *arg;
};

struct loop {
    struct mutex lock;
    struct list posts GUARDED; /* by lock */
    struct list timers;        /* By the loop's thread, like dead. */
    struct list dead;          /* Sources freed in this round. */
    pthread_t thread;
    int epoll_fd;
    int wake_fd;
    bool stop; /* By the loop's thread. */
};

static void *loop_main(void *arg);

static void free_loop(struct loop *loop)
{
    cleanup_fd(&loop->epoll_fd);
    cleanup_fd(&loop->wake_fd);
    mutex_done(&loop->lock);
    free(loop);
}

static int start(struct loop *loop, struct err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int rc;

    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        return err_errno(err, "epoll_create1");
    }
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        return err_errno(err, "eventfd");
    }
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0) {
        return err_errno(err, "epoll_ctl");
    }
    rc = pthread_create(&loop->thread, NULL, loop_main, loop);
    return rc ? err_set(err, rc, "cannot start the loop's thread") : 0;
}

int loop_new(struct loop **out, struct err *err)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    int rc;

    if (!loop) {
        return err_no_memory(err);
    }
    mutex_init(&loop->lock);
    list_init(&loop->posts);
    list_init(&loop->timers);
    list_init(&loop->dead);
    loop->epoll_fd = -1;
    loop->wake_fd = -1;
    rc = start(loop, err);
    if (rc < 0) {
        free_loop(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

static void stop_loop(void *arg)
{
    struct loop *loop = arg;

    loop->stop = true;
}

void loop_free(struct loop *loop)
{
    if (!loop) {
        return;
    }
    loop_post(loop, stop_loop, loop);
    (void)pthread_join(loop->thread, NULL);
    free_loop(loop);
}

void loop_post(struct loop *loop, loop_fn *fn, void *arg)
{
    struct post *post = malloc(sizeof(*post));

    if (!post) {
        abort();
    }
    post->fn = fn;
    post->arg = arg;
    mutex_lock(&loop->lock);
    list_add(&loop->posts, &post->link);
    mutex_unlock(&loop->lock);
    (void)eventfd_write(loop->wake_fd, 1);
}

int loop_source_new(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn,
                    void *arg, struct loop_source **out, struct err *err)
{
    struct loop_source *source = calloc(1, sizeof(*source));
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (!source) {
        return err_no_memory(err);
    }
    list_init(&source->link);
    source->loop = loop;
    source->fd = fd;
    source->fn = fn;
    source->arg = arg;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        int rc = err_errno(err, "epoll_ctl");

        free(source);
        return rc;
    }
    *out = source;
    return 0;
}

void loop_source_free(struct loop_source *source)
{
    if (!source) {
        return;
    }
    (void)epoll_ctl(source->loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->fn = NULL;
    list_add(&source->loop->dead, &source->link);
}

struct loop_timer *loop_timer_new(struct loop *loop, loop_fn *fn, void *arg)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));

    if (timer) {
        list_init(&timer->link);
        timer->loop = loop;
        timer->fn = fn;
        timer->arg = arg;
    }
    return timer;
}

void loop_timer_set(struct loop_timer *timer, int64_t deadline_ms)
{
    struct list *at = &timer->loop->timers;

    list_remove(&timer->link);
    if (deadline_ms == DEADLINE_NONE) {
        return;
    }
    timer->deadline_ms = deadline_ms;
    while (at->prev != &timer->loop->timers &&
           container_of(at->prev, struct loop_timer, link)->deadline_ms >
               deadline_ms) {
        at = at->prev;
    }
    list_add(at, &timer->link);
}

void loop_timer_free(struct loop_timer *timer)
{
    if (timer) {
        list_remove(&timer->link);
        free(timer);
    }
}

static struct loop_timer *first_timer(struct loop *loop)
{
    return list_empty(&loop->timers)
               ? NULL
               : container_of(loop->timers.next, struct loop_timer, link);
}

static int next_timeout(struct loop *loop)
{
    const struct loop_timer *timer = first_timer(loop);

    return clock_timeout(timer ? timer->deadline_ms : DEADLINE_NONE);
}

static void run_posts(struct loop *loop)
{
    for (;;) {
        struct list *node;
        struct post *post;

        mutex_lock(&loop->lock);
        node = list_pop(&loop->posts);
        mutex_unlock(&loop->lock);
        if (!node) {
            return;
        }
        post = container_of(node, struct post, link);
        post->fn(post->arg);
        free(post);
    }
}

static void run_timers(struct loop *loop)
{
    int64_t now = clock_ms();
    struct loop_timer *timer = first_timer(loop);

    while (timer && timer->deadline_ms <= now) {
        list_remove(&timer->link);
        timer->fn(timer->arg);
        timer = first_timer(loop);
    }
}

static void bury_sources(struct loop *loop)
{
    struct list *node = list_pop(&loop->dead);

    while (node) {
        free(container_of(node, struct loop_source, link));
        node = list_pop(&loop->dead);
    }
}

static void *loop_main(void *arg)
{
    struct loop *loop = arg;
    struct epoll_event events[64];
    eventfd_t count;

    while (!loop->stop) {
        int n = epoll_wait(loop->epoll_fd, events, ARRAY_SIZE(events),
                           next_timeout(loop));

        for (int i = 0; i < n; i++) {
            struct loop_source *source = events[i].data.ptr;

            if (!source) {
                (void)eventfd_read(loop->wake_fd, &count);
            } else if (source->fn) {
                source->fn(source->arg, events[i].events);
            }
        }
        run_posts(loop);
        run_timers(loop);
        bury_sources(loop);
    }
    return NULL;
}

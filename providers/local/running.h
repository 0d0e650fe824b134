/*
 * A command that runs, or whose output is still open, as the loop's thread
 * follows it. Others only find it in local->commands, under the lock, to
 * signal it.
 */
#ifndef SESSIONFS_LOCAL_RUNNING_H
#define SESSIONFS_LOCAL_RUNNING_H

#include "providers/local/local.h"

enum {
    RUNNING_STREAMS = 2
}; /* By enum command_stream. */

enum running_phase {
    RUNNING_FREELY,
    RUNNING_TERM, /* Asked to end; killed when the timer fires. */
    RUNNING_KILL, /* Killed; given up when `give_up_ms` comes. */
    RUNNING_OVER, /* sink->exited has been called. */
};

struct running_stream {
    struct running *running;
    int fd;     /* -1: at its end. */
    bool plain; /* The sink cannot take it itself. */
    struct loop_source *source;
};

struct running {
    struct list link; /* In local->commands. */
    struct local *local;
    struct box *box;
    uint64_t n;
    int64_t pid;
    int cgroup; /* -1: none; `reply` is open while a process of it lives. */
    struct box_leftover *cgroup_name;
    const struct command_sink *sink;
    void *arg;
    struct running_stream streams[RUNNING_STREAMS];
    int64_t output; /* Bytes of both. */
    int reply;      /* -1: nothing more of it is waited for. */
    bool told;      /* How it ended, or that it is not known. */
    bool recorded;  /* The end is; by local->lock. */
    struct loop_source *reply_source;
    int cancel; /* Of the command's token. */
    struct loop_source *cancel_source;
    struct loop_timer *timer;
    int64_t timeout_at_ms;
    int64_t deadline_us; /* The same by the wall clock, of an adopted one. */
    int64_t give_up_ms;
    int64_t kill_again_ms;
    enum running_phase phase;
    struct command_result result;
    atomic_bool over; /* Not to be signalled any more. */
};

/**
 * Makes an object without fds.
 *
 * @param local   the provider
 * @param box     it takes a reference
 * @param command borrowed for the call
 * @return the object, or NULL without memory
 */
struct running *running_new(struct local *local, struct box *box,
                            const struct command *command);

/** Has it held for the next daemon. @param running with its streams @param fds
 *  by enum wire_command_fd, borrowed */
void running_hold(const struct running *running,
                  const int fds[WIRE_COMMAND_FDS]);

/** Has it held no more. @param box its box @param n of the command */
void running_unhold(const struct box *box, uint64_t n);

/** @param running one that is not followed; freed with all fds */
void running_free(struct running *running);

/** @param running its command runs; belongs to the loop's thread from now */
void running_follow(struct running *running);

/** Sends a signal to its processes. @param running followed, or under the
 *  lock @param signal to send @param err filled on failure @return 0, -EPIPE
 *  when the sandbox is dead, -EAGAIN */
MUST_USE int running_signal(const struct running *running, int signal,
                            struct err *err);

/** Kills its processes, or begins to. @param running as running_signal()
 *  @param err filled on failure @return 0 or a negative errno */
int running_kill(const struct running *running, struct err *err);

/**
 * Kills it for a limit. In the loop's thread.
 *
 * @param running may be over
 * @param why     which limit; borrowed
 */
void running_stop(struct running *running, const struct err *why);

/** Notes how the command ended, unless it is we who end it. @param running
 *  not yet told of @param told WIRE_EXITED; NULL: that is not known */
void running_note_end(struct running *running, const struct wire *told);

/** Closes its output and ends it as it is. @param running in the loop's
 *  thread; freed @param leave what runs does so for the next daemon */
void running_close(struct running *running, bool leave);

#endif

/*
 * How commands are ended, for which sandbox.v1 has no word: each has a mark in
 * its environment, which all its descendants inherit, and a script in the
 * sandbox signals whoever has it. See command.h.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/jsonl/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_MS = 10000
};

/* $1: the mark; $2: a signal; $3: whether it is to be the end, by TERM or KILL.
 * Processes that fork on and on are stopped before they are killed, and who is
 * becoming another program has no environment for a moment: so one look that
 * finds nothing is not enough. */
static const char script[] =
    "LC_ALL=C\n"
    "all() {\n"
    "    some=\n"
    "    for e in $(grep -lsF -e \"$m\" /proc/[0-9]*/environ); do\n"
    "        e=${e#/proc/}\n"
    "        kill -s \"$1\" \"${e%/environ}\" && some=1\n"
    "    done\n"
    "    [ \"$some\" ]\n"
    "}\n"
    "m=$1\n"
    "exec 2>/dev/null\n"
    "all \"$2\"\n"
    "[ \"$3\" ] || exit 0\n"
    "i=0\n"
    "while [ \"$2\" = TERM ] && [ $i -lt 5 ] && all 0; do\n"
    "    sleep 0.2\n"
    "    i=$((i + 1))\n"
    "done\n"
    "i=0 clean=0\n"
    "while [ $clean -lt 3 ] && [ $i -lt 100 ]; do\n"
    "    if all STOP; then\n"
    "        clean=0\n"
    "        all KILL\n"
    "    else\n"
    "        clean=$((clean + 1))\n"
    "        sleep 0.02\n"
    "    fi\n"
    "    i=$((i + 1))\n"
    "done\n";

/* Work for a thread; all of it is its own. */
struct work {
    struct jsonl *jsonl;
    struct lease *lease; /* A reference. */
    char mark[MARK_SIZE];
    char signal[16];
    const char *end; /* "": only the signal. */
    char *dir;       /* To be removed; NULL: none. */
};

static void free_work(struct work *work)
{
    lease_unref(work->jsonl, work->lease);
    free(work->dir);
    free(work);
}

/* A method whose answer is of no use. Returns whether it was done. */
static bool call(const struct work *work, const char *method, struct js *params)
{
    struct quick quick = {.program = &work->lease->program,
                          .session = work->lease->session,
                          .method = method,
                          .params = params};
    const struct limits limits = {.deadline_ms = clock_deadline(CALL_MS),
                                  .cancel = &work->jsonl->closing};
    struct answer answer;
    struct err ignored = ERR_INIT;
    int rc;

    answer_init(&answer, 0);
    rc = quick_call(work->jsonl, &quick, &limits, &answer, &ignored);
    answer_done(&answer);
    return rc == 0;
}

/* Nobody waits for the script's end: the command's own will tell. */
static void send(void *arg)
{
    struct work *work = arg;
    const char *const args[] = {work->mark, work->signal, work->end, NULL};

    if (!call(work, "spawn", wire_script(script, args))) {
        (void)call(work, "exec", wire_script(script, args));
    }
    free_work(work);
}

static void tidy(void *arg)
{
    struct work *work = arg;
    struct js *params = js_object();

    js_set_text(params, "path", work->dir);
    (void)call(work, "remove", params);
    free_work(work);
}

static struct work *new_work(const struct running *running)
{
    struct work *work = calloc(1, sizeof(*work));

    if (work) {
        work->jsonl = running->jsonl;
        work->lease = lease_ref(running->jsonl, running->lease);
        memcpy(work->mark, running->mark, sizeof(work->mark));
    }
    return work;
}

static int hand_over(struct work *work, work_fn *fn)
{
    int rc = workers_run(work->jsonl->aside, fn, work);

    if (rc < 0) {
        free_work(work);
    }
    return rc;
}

int ending_begin(const struct running *running, enum ending how, int signal)
{
    struct work *work = new_work(running);

    if (!work) {
        return -ENOMEM;
    }
    work->end = how == ENDING_SIGNAL ? "" : "end";
    if (how == ENDING_SIGNAL) {
        (void)snprintf(work->signal, sizeof(work->signal), "%s",
                       sigabbrev_np(signal));
    } else {
        (void)snprintf(work->signal, sizeof(work->signal), "%s",
                       how == ENDING_KILL ? "KILL" : "TERM");
    }
    return hand_over(work, send);
}

void ending_tidy(struct running *running)
{
    struct work *work = running->script ? new_work(running) : NULL;

    if (work) {
        work->dir = TAKE_PTR(running->script);
        (void)!hand_over(work, tidy);
    }
    free(TAKE_PTR(running->script));
}

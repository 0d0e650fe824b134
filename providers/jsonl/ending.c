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
    CALL_MS = 10000,
    MARKS_MAX = 64 * 1024, /* Bytes that surely go into one argument. */
};

/* $1: marks, each behind -e; $2: a signal; $3: where it is to be the end, by
 * TERM or KILL, how many looks have to find nothing. Processes that fork on and
 * on are stopped before they are killed, and who is becoming another program
 * has no environment for a moment, which is long on a busy machine: so one look
 * that finds nothing is not enough, and the looks are ever further apart. */
static const char script[] =
    "LC_ALL=C\n"
    "all() {\n"
    "    some=\n"
    "    for e in $(grep -lsF $m /proc/[0-9]*/environ); do\n"
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
    "while [ $clean -lt $3 ] && [ $i -lt 100 ]; do\n"
    "    if all STOP; then\n"
    "        clean=0\n"
    "        all KILL\n"
    "    else\n"
    "        clean=$((clean + 1))\n"
    "        sleep 0.$clean\n"
    "    fi\n"
    "    i=$((i + 1))\n"
    "done\n"
    "[ $clean -ge $3 ]\n";

/* Of commands that run, and of those that have not been seen for a while. */
#define LOOKS      "5"
#define LOOKS_LOST "3"

/* Work for a thread; all of it is its own. */
struct work {
    struct list link; /* lease->endings, by jsonl's lock. */
    struct jsonl *jsonl;
    struct lease *lease; /* A reference. */
    char mark[MARK_SIZE];
    char signal[16];
    const char *end; /* Looks; "": only the signal. */
    char *dir;       /* To be removed; NULL: none. */
    char *marks;     /* Of this and others, each behind -e; NULL: not yet. */
};

static void free_work(struct work *work)
{
    struct jsonl *jsonl = work->jsonl;

    lease_unref(jsonl, work->lease);
    free(work->dir);
    free(work->marks);
    free(work);
    mutex_lock(&jsonl->lock);
    jsonl->endings--;
    cond_broadcast(&jsonl->closed);
    mutex_unlock(&jsonl->lock);
}

/* Takes the work. */
static int hand_over(struct work *work, work_fn *fn)
{
    int rc = workers_run(work->jsonl->aside, fn, work);

    if (rc < 0) {
        free_work(work);
    }
    return rc;
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

/* The marks of a work and of all that wait for the same, which are done with
 * it then. */
static void gather(const struct work *work, struct buf *out)
{
    struct jsonl *jsonl = work->jsonl;
    struct list same;
    int rc = buf_printf(out, "-e %s", work->mark);

    list_init(&same);
    mutex_lock(&jsonl->lock);
    list_each_safe(node, &work->lease->endings)
    {
        const struct work *other = container_of(node, struct work, link);

        if (rc == 0 && strcmp(other->signal, work->signal) == 0 &&
            strcmp(other->end, work->end) == 0) {
            rc = buf_printf(out, " -e %s", other->mark);
            if (rc == 0) {
                list_remove(node);
                list_add(&same, node);
            }
        }
    }
    mutex_unlock(&jsonl->lock);
    for (struct list *node = list_pop(&same); node; node = list_pop(&same)) {
        free_work(container_of(node, struct work, link));
    }
}

/* Nobody waits for the script's end: the commands' own will tell. */
static bool send(const struct work *work, const char *method, const char *marks)
{
    const char *const args[] = {marks, work->signal, work->end, NULL};

    return call(work, method, wire_script(script, args));
}

/* Takes the work. */
static void send_by_exec(void *arg)
{
    struct work *work = arg;

    (void)send(work, "exec", work->marks);
    free_work(work);
}

/* A call of exec lasts as long as the script: meanwhile others go on. Takes the
 * work. */
static void send_one(struct work *work)
{
    struct buf marks = BUF_INIT(MARKS_MAX);

    gather(work, &marks);
    if (marks.size && !send(work, "spawn", marks.data)) {
        work->marks = strdup(marks.data);
    }
    buf_done(&marks);
    if (work->marks) {
        (void)!hand_over(work, send_by_exec);
    } else {
        free_work(work);
    }
}

/* Those that were told as lost hold up no others. */
static void send_lost(void *arg)
{
    struct work *work = arg;
    char marks[MARK_SIZE + sizeof("-e ")];

    (void)snprintf(marks, sizeof(marks), "-e %s", work->mark);
    if (send(work, "spawn", marks) || send(work, "exec", marks)) {
        mark_drop(work->lease, work->mark);
    }
    free_work(work);
}

/* The next that waits, or NULL: then nobody is at it any more. */
static struct work *next_work(struct jsonl *jsonl, struct lease *lease)
{
    struct list *node;

    mutex_lock(&jsonl->lock);
    node = list_pop(&lease->endings);
    lease->ending = node != NULL;
    mutex_unlock(&jsonl->lock);
    return node ? container_of(node, struct work, link) : NULL;
}

/* Gives up what came while a thread could not be had. */
static void drop_all(struct jsonl *jsonl, struct lease *lease)
{
    struct work *work = next_work(jsonl, lease);

    while (work) {
        free_work(work);
        work = next_work(jsonl, lease);
    }
}

/* One thread for each sandbox: commands often end in company, and one script
 * does for all of them. */
static void send_all(void *arg)
{
    struct work *work = arg;
    struct jsonl *jsonl = work->jsonl;
    struct lease *lease = lease_ref(jsonl, work->lease);

    while (work) {
        send_one(work);
        work = next_work(jsonl, lease);
    }
    lease_unref(jsonl, lease);
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
        list_init(&work->link);
        work->jsonl = running->jsonl;
        work->lease = lease_ref(running->jsonl, running->lease);
        memcpy(work->mark, running->mark, sizeof(work->mark));
        mutex_lock(&work->jsonl->lock);
        work->jsonl->endings++;
        mutex_unlock(&work->jsonl->lock);
    }
    return work;
}

/* Takes the work. */
static int queue(struct work *work)
{
    struct jsonl *jsonl = work->jsonl;
    struct lease *lease = lease_ref(jsonl, work->lease);
    bool begin;
    int rc = 0;

    mutex_lock(&jsonl->lock);
    begin = !lease->ending;
    lease->ending = true;
    if (!begin) {
        list_add(&lease->endings, &work->link);
    }
    mutex_unlock(&jsonl->lock);
    if (begin) {
        rc = hand_over(work, send_all);
    }
    if (rc < 0) {
        drop_all(jsonl, lease);
    }
    lease_unref(jsonl, lease);
    return rc;
}

int ending_begin(const struct running *running, enum ending how, int signal)
{
    struct work *work = new_work(running);

    if (!work) {
        return -ENOMEM;
    }
    work->end = how == ENDING_SIGNAL ? "" : LOOKS;
    if (how == ENDING_SIGNAL) {
        (void)snprintf(work->signal, sizeof(work->signal), "%s",
                       sigabbrev_np(signal));
    } else {
        (void)snprintf(work->signal, sizeof(work->signal), "%s",
                       how == ENDING_TERM ? "TERM" : "KILL");
    }
    return how == ENDING_LOST ? hand_over(work, send_lost) : queue(work);
}

int ending_now(struct jsonl *jsonl, const struct lease *lease,
               const char *marks, const struct limits *limits, struct err *err)
{
    const char *const args[] = {marks, "KILL", LOOKS_LOST, NULL};
    const struct provider_script kill = {.text = script, .args = args};
    struct buf none = BUF_INIT(0);
    int code = 0;
    int rc = quick_run(jsonl,
                       &(struct quick_script){.program = &lease->program,
                                              .session = lease->session,
                                              .script = &kill},
                       limits, &none, &code, err);

    buf_done(&none);
    return rc == 0 && code != 0 ? err_set(err, EBUSY, "they would not end")
                                : rc;
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

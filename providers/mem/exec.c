/*
 * Commands of the provider `mem`, interpreted line by line in the loop's
 * thread. A line is a word and the rest of the line; there are no quotes:
 *
 *     echo TEXT         TEXT and a newline on stdout; the same as printf
 *     err TEXT          the same on stderr
 *     spam BYTES        so many `x` on stdout
 *     cat PATH          a file of the sandbox on stdout
 *     write PATH TEXT   makes or overwrites a file: TEXT and a newline
 *     append PATH TEXT  the same at its end
 *     mkdir PATH        makes a directory
 *     rm PATH           removes a file
 *     pwd, cwd          the working directory
 *     sleep MS          waits; milliseconds
 *     hang              waits for ever
 *     exit N            ends with N
 *     kill SIGNO        ends by that signal
 *     later MS TEXT     TEXT on stdout MS milliseconds after the end
 *     true, false, :, # as in sh
 *
 * As in sh, an unknown word is 127, a command that fails leaves 1 and words on
 * stderr, and the last line's status is the command's. argv is one such line.
 */
#include "providers/mem/mem.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    CHUNK = 64 * 1024
};

/* By the loop's thread, but for what is by the lock. */
struct mem_command {
    struct list link; /* In mem->commands, by its lock. */
    uint64_t number;
    uint64_t n;
    bool begun;  /* By the lock, */
    bool exited; /* too. */

    struct mem *mem;
    char *text;
    char *next; /* The line that is due. */
    char *cwd;
    const char *external_id; /* Of the sandbox; owned. */
    int64_t timeout_ms;
    struct cancel *cancel;
    const struct command_sink *sink;
    void *arg;
    int status;
    uint64_t spam; /* Bytes that are still due. */
    char *later;   /* Text that comes after the end; in text. */
    int64_t later_ms;
    struct loop_timer *step;
    struct loop_timer *timeout;
    struct loop_source *source;
};

static void free_command(struct mem_command *cmd)
{
    if (cmd) {
        loop_timer_free(cmd->step);
        loop_timer_free(cmd->timeout);
        free(cmd->text);
        free(cmd->cwd);
        free((void *)(uintptr_t)cmd->external_id);
        free(cmd);
    }
}

/* The very end: nothing of the command is left. */
static void close_command(struct mem_command *cmd)
{
    struct mem *mem = cmd->mem;

    cmd->sink->closed(cmd->arg);
    mutex_lock(&mem->lock);
    list_remove(&cmd->link);
    cond_broadcast(&mem->closed);
    mutex_unlock(&mem->lock);
    free_command(cmd);
}

static void finish(struct mem_command *cmd, const struct command_result *result)
{
    loop_source_free(cmd->source);
    cmd->source = NULL;
    loop_timer_set(cmd->timeout, DEADLINE_NONE);
    mutex_lock(&cmd->mem->lock);
    cmd->exited = true;
    mutex_unlock(&cmd->mem->lock);
    cmd->sink->exited(cmd->arg, result);
    if (cmd->later && result->end == COMMAND_EXITED) {
        loop_timer_set(cmd->step, clock_deadline(cmd->later_ms));
    } else {
        close_command(cmd);
    }
}

static void finish_as(struct mem_command *cmd, enum command_end end, int code,
                      int signal)
{
    const struct command_result result = {
        .end = end, .code = code, .signal = signal};

    finish(cmd, &result);
}

/* A line in one piece, so that who is woken by it has all of it. */
static void say(struct mem_command *cmd, enum command_stream stream,
                const char *text)
{
    size_t size = strlen(text);
    AUTO_FREE char *line = malloc(size + 2);

    if (line) {
        (void)snprintf(line, size + 2, "%s\n", text);
        cmd->sink->output(cmd->arg, stream, line, size + 1);
        return;
    }
    if (size) {
        cmd->sink->output(cmd->arg, stream, text, size);
    }
    cmd->sink->output(cmd->arg, stream, "\n", 1);
}

static void complain(struct mem_command *cmd, const char *word,
                     const char *what, int status)
{
    char text[ERR_MSG_SIZE + 256];

    (void)snprintf(text, sizeof(text), "%.200s: %s", word, what);
    say(cmd, COMMAND_STDERR, text);
    cmd->status = status;
}

/* Cuts the next word off; the rest of the line is returned. */
static char *cut_word(char *line)
{
    char *end = line + strcspn(line, " ");

    if (*end) {
        *end = '\0';
        end++;
    }
    return end;
}

/* What a line leaves the command to do. */
enum step {
    STEP_NEXT,
    STEP_WAIT, /* For the timer, or for ever. */
    STEP_ENDED,
};

static enum step run_timed(struct mem_command *cmd, const char *word,
                           char *rest)
{
    if (strcmp(word, "sleep") == 0) {
        loop_timer_set(cmd->step, clock_deadline(strtol(rest, NULL, 10)));
    } else if (strcmp(word, "spam") == 0) {
        cmd->spam = strtoull(rest, NULL, 10);
        loop_timer_set(cmd->step, clock_ms());
    }
    return STEP_WAIT; /* And nothing else for `hang`. */
}

static enum step run_end(struct mem_command *cmd, const char *word,
                         const char *rest)
{
    int n = (int)strtol(rest, NULL, 10);

    if (strcmp(word, "kill") == 0) {
        finish_as(cmd, COMMAND_KILLED, 0, n);
    } else {
        finish_as(cmd, COMMAND_EXITED, n & 0xff, 0);
    }
    return STEP_ENDED;
}

static struct mem_box *own_box(struct mem_command *cmd) REQUIRES(cmd->mem->lock)
{
    char *id = (char *)(uintptr_t)cmd->external_id;
    struct instance instance = {.external_id = id};
    const struct sandbox sandbox = {.number = cmd->number,
                                    .instance = &instance};

    return mem_find(cmd->mem, &sandbox);
}

/* Tries the words that work on files. */
static bool run_if_file(struct mem_command *cmd, const char *word, char *rest)
{
    struct err err = ERR_INIT;
    char *text = NULL;
    char *data = NULL;
    size_t size = 0;
    int rc;

    if (!mem_is_verb(word)) {
        return false;
    }
    text = cut_word(rest);
    mutex_lock(&cmd->mem->lock);
    rc = mem_run_verb(own_box(cmd), word, rest, text, &data, &size, &err);
    mutex_unlock(&cmd->mem->lock);
    if (rc < 0) {
        complain(cmd, rest, err.msg, 1);
    } else if (size) {
        cmd->sink->output(cmd->arg, COMMAND_STDOUT, data, size);
    }
    free(data);
    return true;
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0) {
        words++;
    }
    return *words != NULL;
}

static enum step run_word(struct mem_command *cmd, char *word, char *rest)
{
    static const char *const timed[] = {"sleep", "hang", "spam", NULL};
    static const char *const ends[] = {"exit", "kill", NULL};
    static const char *const echoes[] = {"echo", "printf", NULL};
    static const char *const places[] = {"pwd", "cwd", NULL};
    static const char *const idle[] = {"true", "false", ":", NULL};

    cmd->status = strcmp(word, "false") == 0;
    if (is_one_of(word, timed)) {
        return run_timed(cmd, word, rest);
    }
    if (is_one_of(word, ends)) {
        return run_end(cmd, word, rest);
    }
    if (is_one_of(word, echoes)) {
        say(cmd, COMMAND_STDOUT, rest);
    } else if (strcmp(word, "err") == 0) {
        say(cmd, COMMAND_STDERR, rest);
    } else if (is_one_of(word, places)) {
        say(cmd, COMMAND_STDOUT, cmd->cwd);
    } else if (strcmp(word, "later") == 0) {
        cmd->later = cut_word(rest);
        cmd->later_ms = strtol(rest, NULL, 10);
    } else if (!run_if_file(cmd, word, rest) && !is_one_of(word, idle)) {
        complain(cmd, word, "not found", 127);
    }
    return STEP_NEXT;
}

static enum step run_line(struct mem_command *cmd)
{
    char *line = cmd->next;
    char *end = line + strcspn(line, "\n");

    cmd->next = *end ? end + 1 : end;
    *end = '\0';
    line += strspn(line, " \t");
    if (!*line || *line == '#') {
        return STEP_NEXT;
    }
    end = cut_word(line);
    return run_word(cmd, line, end);
}

/* Sends a part of what `spam` owes; false when it is done. */
static bool spam_more(struct mem_command *cmd)
{
    static char bytes[CHUNK]; /* The loop's thread is the only one here. */
    size_t size = cmd->spam < CHUNK ? (size_t)cmd->spam : CHUNK;

    if (!size) {
        return false;
    }
    memset(bytes, 'x', size);
    cmd->sink->output(cmd->arg, COMMAND_STDOUT, bytes, size);
    cmd->spam -= size;
    loop_timer_set(cmd->step, clock_ms());
    return true;
}

/* The timer's function: goes on with the script, or says what comes later. */
static void on_step(void *arg)
{
    struct mem_command *cmd = arg;
    enum step step = STEP_NEXT;

    if (cmd->exited) {
        say(cmd, COMMAND_STDOUT, cmd->later);
        close_command(cmd);
        return;
    }
    if (spam_more(cmd)) {
        return;
    }
    while (step == STEP_NEXT && *cmd->next) {
        step = run_line(cmd);
    }
    if (step == STEP_NEXT) {
        finish_as(cmd, COMMAND_EXITED, cmd->status, 0);
    }
}

static void on_timeout(void *arg)
{
    finish_as(arg, COMMAND_TIMEOUT, 0, 0);
}

static void on_cancel(void *arg, uint32_t events)
{
    (void)events;
    finish_as(arg, COMMAND_CANCELED, 0, 0);
}

/* The command's first turn in the loop's thread. */
static void begin(void *arg)
{
    struct mem_command *cmd = arg;
    struct err err = ERR_INIT;

    mutex_lock(&cmd->mem->lock);
    cmd->begun = true;
    mutex_unlock(&cmd->mem->lock);
    cmd->sink->started(cmd->arg, (int64_t)(1000 + cmd->n));
    if (loop_source_new(cmd->mem->loop, cmd->cancel->fd, EPOLLIN, on_cancel,
                        cmd, &cmd->source, &err) < 0) {
        finish_as(cmd, COMMAND_LOST, 0, 0);
        return;
    }
    if (cmd->timeout_ms) {
        loop_timer_set(cmd->timeout, clock_deadline(cmd->timeout_ms));
    }
    loop_timer_set(cmd->step, clock_ms());
}

/* The script, or argv as one line; NULL without memory. */
static char *copy_text(const struct command *command)
{
    size_t size = 1;
    char *text;

    if (command->shell) {
        return strndup(command->shell, command->shell_size);
    }
    for (size_t i = 0; command->argv[i]; i++) {
        size += strlen(command->argv[i]) + 1;
    }
    text = calloc(1, size);
    for (size_t i = 0; text && command->argv[i]; i++) {
        (void)strcat(text, i ? " " : "");
        (void)strcat(text, command->argv[i]);
    }
    return text;
}

static struct mem_command *new_command(struct mem *mem,
                                       const struct sandbox *sandbox,
                                       const struct command *command)
{
    struct mem_command *cmd = calloc(1, sizeof(*cmd));

    if (!cmd) {
        return NULL;
    }
    cmd->mem = mem;
    cmd->number = sandbox->number;
    cmd->n = command->n;
    cmd->timeout_ms = command->timeout_ms;
    cmd->text = copy_text(command);
    cmd->next = cmd->text;
    cmd->cwd = strdup(command->cwd ? command->cwd : "/workspace");
    cmd->external_id = strdup(sandbox->instance->external_id);
    cmd->step = loop_timer_new(mem->loop, on_step, cmd);
    cmd->timeout = loop_timer_new(mem->loop, on_timeout, cmd);
    if (!cmd->text || !cmd->cwd || !cmd->external_id || !cmd->step ||
        !cmd->timeout) {
        free_command(cmd); /* The timers were never armed. */
        return NULL;
    }
    return cmd;
}

/* Whether a command may start in the sandbox. */
static int check_running(struct mem *mem, const struct sandbox *sandbox,
                         struct err *err) REQUIRES(mem->lock)
{
    const struct mem_box *box = mem_find(mem, sandbox);

    if (!box) {
        return err_set(err, ESTALE, "the sandbox is gone");
    }
    return box->paused ? err_set(err, EHOSTDOWN, "the sandbox is paused") : 0;
}

int mem_exec(struct provider *provider, const struct sandbox *sandbox,
             const struct command *command, const struct limits *limits,
             const struct command_sink *sink, void *arg, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_command *cmd;
    int rc = mem_fault(mem, "exec", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    cmd = new_command(mem, sandbox, command);
    if (!cmd) {
        return err_no_memory(err);
    }
    cmd->cancel = limits->cancel;
    cmd->sink = sink;
    cmd->arg = arg;
    mutex_lock(&mem->lock);
    rc = check_running(mem, sandbox, err);
    if (rc == 0) {
        list_add(&mem->commands, &cmd->link);
        loop_post(mem->loop, begin, cmd);
    }
    mutex_unlock(&mem->lock);
    if (rc < 0) {
        free_command(cmd);
    }
    return rc;
}

/* An order to end commands, on its way to the loop's thread. */
struct order {
    struct mem *mem;
    uint64_t number; /* 0: of all sessions. */
    uint64_t n;      /* 0: all of them. */
    struct command_result result;
};

static bool is_meant(const struct order *order, const struct mem_command *cmd)
{
    return cmd->begun && !cmd->exited &&
           (!order->number || cmd->number == order->number) &&
           (!order->n || cmd->n == order->n);
}

static struct mem_command *find_command(const struct order *order)
    REQUIRES(order->mem->lock)
{
    list_each(node, &order->mem->commands)
    {
        struct mem_command *cmd = container_of(node, struct mem_command, link);

        if (is_meant(order, cmd)) {
            return cmd;
        }
    }
    return NULL;
}

static void obey_order(void *arg)
{
    struct order *order = arg;
    struct mem_command *cmd;

    do {
        mutex_lock(&order->mem->lock);
        cmd = find_command(order);
        mutex_unlock(&order->mem->lock);
        if (cmd) {
            finish(cmd, &order->result);
        }
    } while (cmd);
    free(order);
}

static void post_order(const struct order *order)
{
    struct order *copy = malloc(sizeof(*copy));

    if (copy) {
        *copy = *order;
        loop_post(order->mem->loop, obey_order, copy);
    }
}

void mem_end_commands(struct mem *mem, uint64_t number, enum command_end end)
{
    post_order(&(struct order){
        .mem = mem,
        .number = number,
        .result = {.end = end, .signal = end == COMMAND_KILLED ? SIGKILL : 0}});
}

static void all_obeyed(void *arg)
{
    struct mem *mem = arg;

    mutex_lock(&mem->lock);
    mem->obeyed = true;
    cond_broadcast(&mem->closed);
    mutex_unlock(&mem->lock);
}

void mem_settle(struct mem *mem)
{
    mem_end_commands(mem, 0, COMMAND_LOST);
    loop_post(mem->loop, all_obeyed, mem);
    mutex_lock(&mem->lock);
    while (!mem->obeyed || !list_empty(&mem->commands)) {
        (void)cond_wait(&mem->closed, &mem->lock, DEADLINE_NONE);
    }
    mutex_unlock(&mem->lock);
}

int mem_signal(struct provider *provider, const struct sandbox *sandbox,
               uint64_t n, int signal, struct err *err)
{
    const struct order order = {
        .mem = mem_of(provider),
        .number = sandbox->number,
        .n = n,
        .result = {.end = COMMAND_KILLED, .signal = signal}};
    bool found;

    mutex_lock(&order.mem->lock);
    found = find_command(&order) != NULL;
    mutex_unlock(&order.mem->lock);
    if (!found) {
        return err_set(err, ESRCH, "the command does not run");
    }
    if (signal != 0 && signal != SIGCONT && signal != SIGSTOP &&
        signal != SIGWINCH && signal != SIGCHLD) {
        post_order(&order);
    }
    return 0;
}

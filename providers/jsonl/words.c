/* See words.h. */
#include "providers/jsonl/words.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/quote.h"

#include <stdio.h>
#include <string.h>

enum {
    SPAN_MS = 10000,
    LINES = 100, /* In the log, for each span. */
};

static void keep(struct words *words)
{
    struct buf shown = BUF_INIT(sizeof(words->line));

    if (quote_words(&shown, words->line) == 0) {
        (void)snprintf(words->last, sizeof(words->last), "%.*s", WORDS_LAST - 1,
                       buf_str(&shown));
    }
    buf_done(&shown);
}

/* A line is complete. */
static void log_it(struct words *words, const char *name)
{
    int64_t now = clock_ms();

    words->line[words->size] = '\0';
    words->size = 0;
    if (buf_blank(words->line, strlen(words->line))) {
        return;
    }
    keep(words);
    if (now - words->since_ms > SPAN_MS) {
        words->since_ms = now;
        words->lines = 0;
    }
    words->lines++;
    if (words->lines <= LINES) {
        log_line(LOG_LEVEL_INFO, "%s: %s", name, words->line);
    } else if (words->lines == LINES + 1) {
        log_line(LOG_LEVEL_WARNING, "%s: says too much, the rest is dropped",
                 name);
    }
}

void words_take(struct words *words, const char *name, const char *data,
                size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != '\n' && data[i] != '\0') {
            words->line[words->size++] = data[i];
        }
        if (data[i] == '\n' || words->size == sizeof(words->line) - 1) {
            log_it(words, name);
        }
    }
}

void words_end(struct words *words, const char *name)
{
    if (words->size) {
        log_it(words, name);
    }
}

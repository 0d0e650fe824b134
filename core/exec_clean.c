/* See exec_clean.h. */
#include "core/exec_clean.h"

#include <stdbool.h>

enum {
    IN_TEXT,
    IN_ESCAPE,
    IN_CSI,
    IN_STRING,        /* Of OSC, DCS and the like, */
    IN_STRING_ESCAPE, /* perhaps at its end. */
    IN_CHARSET,
};

static bool is_plain(char c)
{
    return (c >= ' ' && c < 127) || c == '\t';
}

static void put(struct clean *clean, const char *data, size_t size)
{
    if (clean->returned) {
        clean->returned = false;
        clean->pos = clean->start;
        if (clean->back) {
            clean->back(clean->arg, clean->start);
        }
    }
    if (clean->text) {
        clean->text(clean->arg, clean->pos, data, size);
    }
    clean->pos += size;
}

static void put_newline(struct clean *clean)
{
    clean->returned = false;
    put(clean, "\n", 1);
    clean->start = clean->pos;
    clean->lines++;
    if (clean->line) {
        clean->line(clean->arg, clean->pos);
    }
}

static void step_text(struct clean *clean, char c)
{
    switch (c) {
    case '\033':
        clean->state = IN_ESCAPE;
        break;
    case '\r':
        clean->returned = true;
        break;
    case '\n':
        put_newline(clean);
        break;
    default:
        put(clean, &c, 1);
    }
}

/* Each of these says whether the byte belongs to the sequence. */

static bool step_escape(struct clean *clean, char c)
{
    switch (c) {
    case '[':
        clean->state = IN_CSI;
        return true;
    case ']':
    case 'P':
    case 'X':
    case '^':
    case '_':
        clean->state = IN_STRING;
        return true;
    case '(':
    case ')':
    case '*':
    case '+':
    case '-':
    case '.':
    case '/':
    case '#':
    case '%':
    case ' ':
        clean->state = IN_CHARSET;
        return true;
    default:
        clean->state = IN_TEXT;
        return c >= '0' && c <= '~';
    }
}

static bool step_csi(struct clean *clean, char c)
{
    if (c >= ' ' && c <= '?') {
        return true;
    }
    clean->state = IN_TEXT;
    return c >= '@' && c <= '~';
}

/* A string that is never ended must not swallow the rest: another sequence ends
 * it too. */
static bool step_string(struct clean *clean, char c)
{
    if (clean->state == IN_STRING_ESCAPE) {
        return step_escape(clean, c);
    }
    if (c == '\033') {
        clean->state = IN_STRING_ESCAPE;
    } else if (c == '\a') {
        clean->state = IN_TEXT;
    } else if (c == '\n') {
        clean->state = IN_TEXT;
        return false;
    }
    return true;
}

static bool step_sequence(struct clean *clean, char c)
{
    switch (clean->state) {
    case IN_ESCAPE:
        return step_escape(clean, c);
    case IN_CSI:
        return step_csi(clean, c);
    case IN_STRING:
    case IN_STRING_ESCAPE:
        return step_string(clean, c);
    default:
        clean->state = IN_TEXT;
        return is_plain(c);
    }
}

void clean_feed(struct clean *clean, const char *data, size_t size)
{
    size_t i = 0;

    while (i < size) {
        size_t run = i;

        if (clean->state == IN_TEXT && clean->utf8.left == 0) {
            while (run < size && is_plain(data[run])) {
                run++;
            }
        }
        if (run > i) {
            put(clean, data + i, run - i);
            i = run;
            continue;
        }
        if (!clean->bad && !utf8_step(&clean->utf8, (unsigned char)data[i])) {
            clean->bad = true;
            clean->utf8.left = 0;
        }
        if (clean->state == IN_TEXT || !step_sequence(clean, data[i])) {
            step_text(clean, data[i]);
        }
        i++;
    }
}

void clean_end(struct clean *clean)
{
    clean->bad = clean->bad || clean->utf8.left != 0;
    if (clean->pos > clean->start) {
        clean->lines++;
    }
}

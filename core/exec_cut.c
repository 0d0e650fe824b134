/* See exec_cut.h. */
#include "core/exec_cut.h"

#include <inttypes.h>
#include <string.h>

enum {
    MARKS = 80, /* Reserved for the marks of head and tail, */
    MARK = 48,  /* and for that of each region. */
    LEAST = 40, /* A region of fewer bytes says nothing. */
    HEAD_PERCENT = 20,
};

/* ---- Looking for errors ---- */

/* A word in lower case, which is in errors' lines. */
static bool word_at(const char *at, size_t left)
{
    static const char *const words[] = {
        "error", "fail",   "exception",           "traceback",
        "panic", "fatal",  "undefined reference", "cannot ",
        "can't", "denied", "no such file",        "not found",
        "abort", "assert", "segmentation fault",  "unresolved",
    };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t len = strlen(words[i]);

        if (words[i][0] == *at && len <= left &&
            memcmp(at, words[i], len) == 0) {
            return true;
        }
    }
    return false;
}

bool cut_is_error(const char *line, size_t size)
{
    static const char first[256] = {
        ['e'] = 1, ['f'] = 1, ['t'] = 1, ['p'] = 1, ['u'] = 1,
        ['c'] = 1, ['d'] = 1, ['n'] = 1, ['a'] = 1, ['s'] = 1,
    };
    char lower[CUT_LINE];

    if (size > sizeof(lower)) {
        size = sizeof(lower);
    }
    for (size_t i = 0; i < size; i++) {
        lower[i] = line[i];
        if (line[i] >= 'A' && line[i] <= 'Z') {
            lower[i] = (char)(line[i] | 0x20);
        }
    }
    for (size_t i = 0; i < size; i++) {
        if (first[(unsigned char)lower[i]] && word_at(lower + i, size - i)) {
            return true;
        }
    }
    return false;
}

void cut_text(struct cut_finder *finder, const char *data, size_t size)
{
    size_t room = sizeof(finder->line) - finder->size;

    if (size > room) {
        size = room;
    }
    memcpy(finder->line + finder->size, data, size);
    finder->size += size;
}

void cut_back(struct cut_finder *finder)
{
    finder->size = 0;
}

/* Where the context of the present line begins. */
static uint64_t context_start(const struct cut_finder *finder)
{
    unsigned ring = CUT_AROUND + 1;
    unsigned back = finder->known < CUT_AROUND ? finder->known : CUT_AROUND;

    return back ? finder->starts[(finder->next + ring - back) % ring]
                : finder->start;
}

static void begin_region(struct cut_finder *finder)
{
    struct cut_range *region = &finder->regions[finder->count];

    region->from = context_start(finder);
    if (finder->count && region->from < region[-1].to) {
        region->from = region[-1].to;
    }
    finder->errors[finder->count] = finder->start;
    finder->count++;
}

void cut_line(struct cut_finder *finder, uint64_t pos)
{
    /* Where no more can be noted, no more need be found. */
    bool wanted = finder->after || finder->count < CUT_REGIONS;

    if (wanted && cut_is_error(finder->line, finder->size)) {
        if (!finder->after) {
            begin_region(finder);
        }
        finder->after = CUT_AROUND + 1;
    }
    if (finder->after) {
        finder->after--;
        finder->regions[finder->count - 1].to = pos;
    }
    finder->starts[finder->next] = finder->start;
    finder->next = (finder->next + 1) % (CUT_AROUND + 1);
    finder->known += finder->known <= CUT_AROUND;
    finder->start = pos;
    finder->size = 0;
}

/* ---- Choosing ---- */

/* Adds a range that does not end before the last one begins. */
static void add_range(struct cut *cut, uint64_t from, uint64_t to)
{
    while (cut->count && from <= cut->pieces[cut->count - 1].range.to) {
        const struct cut_range *last = &cut->pieces[cut->count - 1].range;

        from = from < last->from ? from : last->from;
        to = to > last->to ? to : last->to;
        cut->count--;
    }
    if (from < to) {
        cut->pieces[cut->count].range = (struct cut_range){from, to};
        buf_init(&cut->pieces[cut->count].text, SIZE_MAX);
        cut->count++;
    }
}

/* A region where it fits; else what of it surrounds its first error. */
static struct cut_range clip(const struct cut_range *region, uint64_t error,
                             uint64_t room)
{
    struct cut_range range = *region;

    if (range.to - range.from > room) {
        if (error - range.from > room / 4) {
            range.from = error - room / 4;
        }
        if (range.to - range.from > room) {
            range.to = range.from + room;
        }
    }
    return range;
}

void cut_choose(struct cut_finder *finder, uint64_t size, uint64_t budget,
                struct cut *cut)
{
    struct cut_range chosen[CUT_REGIONS];
    uint64_t left = budget - MARKS;
    uint64_t room = left / 2; /* For the regions. */
    uint64_t head;
    unsigned count = 0;

    for (unsigned i = 0; finder && i < finder->count; i++) {
        if (room < MARK + LEAST) {
            break;
        }
        chosen[i] = clip(&finder->regions[i], finder->errors[i], room - MARK);
        room -= chosen[i].to - chosen[i].from + MARK;
        left -= chosen[i].to - chosen[i].from + MARK;
        count++;
    }
    head = left * HEAD_PERCENT / 100;
    memset(cut, 0, sizeof(*cut));
    cut->size = size;
    add_range(cut, 0, head);
    for (unsigned i = 0; i < count; i++) {
        add_range(cut, chosen[i].from, chosen[i].to);
    }
    add_range(cut, size - (left - head), size);
}

void cut_nothing(uint64_t size, struct cut *cut)
{
    memset(cut, 0, sizeof(*cut));
    cut->size = size;
    add_range(cut, 0, size);
}

/* ---- Filling ---- */

int cut_add(struct cut *cut, uint64_t pos, const char *data, size_t size)
{
    int rc = 0;

    for (unsigned i = 0; i < cut->count && rc == 0; i++) {
        struct cut_piece *piece = &cut->pieces[i];
        uint64_t from = pos > piece->range.from ? pos : piece->range.from;
        uint64_t to =
            pos + size < piece->range.to ? pos + size : piece->range.to;

        if (from < to) {
            rc =
                buf_add(&piece->text, data + (from - pos), (size_t)(to - from));
        }
    }
    return rc;
}

void cut_drop(struct cut *cut, uint64_t pos)
{
    for (unsigned i = 0; i < cut->count; i++) {
        struct cut_piece *piece = &cut->pieces[i];
        uint64_t keep = pos > piece->range.from ? pos - piece->range.from : 0;

        if (keep < piece->text.size) {
            piece->text.size = (size_t)keep;
        }
    }
}

static bool is_inner(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Whether the text ends with a whole character. */
static bool ends_well(const struct buf *text)
{
    size_t inner = 0;
    unsigned char lead;

    while (inner < text->size && is_inner(text->data[text->size - 1 - inner])) {
        inner++;
    }
    if (inner == text->size) {
        return inner == 0;
    }
    lead = (unsigned char)text->data[text->size - 1 - inner];
    return inner == (lead < 0xc0   ? 0U
                     : lead < 0xe0 ? 1U
                     : lead < 0xf0 ? 2U
                                   : 3U);
}

/* Leaves out parts of characters at both ends; `skip` of them at the begin. */
static size_t trim(struct cut_piece *piece, size_t *skip)
{
    struct buf *text = &piece->text;

    *skip = 0;
    while (*skip < text->size && is_inner(text->data[*skip])) {
        (*skip)++;
    }
    piece->range.from += *skip;
    while (text->size > *skip && !ends_well(text)) {
        text->size--;
        piece->range.to--;
    }
    return text->size - *skip;
}

static int add_mark(struct buf *out, uint64_t omitted)
{
    return omitted ? buf_printf(out,
                                "\n\n[... %" PRIu64 " bytes omitted ...]"
                                "\n\n",
                                omitted)
                   : 0;
}

int cut_join(struct cut *cut, struct buf *out)
{
    uint64_t at = 0;
    int rc = 0;

    for (unsigned i = 0; i < cut->count && rc == 0; i++) {
        struct cut_piece *piece = &cut->pieces[i];
        size_t skip;
        size_t size = trim(piece, &skip);

        rc = add_mark(out, piece->range.from - at);
        if (rc == 0 && size) {
            rc = buf_add(out, piece->text.data + skip, size);
        }
        at = piece->range.to;
    }
    return rc < 0 ? rc : add_mark(out, cut->size - at);
}

void cut_done(struct cut *cut)
{
    for (unsigned i = 0; i < cut->count; i++) {
        buf_done(&cut->pieces[i].text);
    }
    cut->count = 0;
}

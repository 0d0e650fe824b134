/* Gathered scripts. See gather.h. */
#include "fs/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct text {
    struct list link;
    uint64_t owner;
    struct buf bytes;
};

void gather_init(struct gather *gather, size_t max)
{
    list_init(&gather->texts);
    gather->max = max;
    gather->poison = 0;
}

static void free_text(struct text *text)
{
    list_remove(&text->link);
    buf_done(&text->bytes);
    free(text);
}

void gather_done(struct gather *gather)
{
    list_each_safe(at, &gather->texts)
    {
        free_text(container_of(at, struct text, link));
    }
}

static struct text *find(const struct gather *gather, uint64_t owner)
{
    list_each(at, &gather->texts)
    {
        struct text *text = container_of(at, struct text, link);

        if (text->owner == owner) {
            return text;
        }
    }
    return NULL;
}

static struct text *find_or_make(struct gather *gather, uint64_t owner)
{
    struct text *text = find(gather, owner);

    if (!text) {
        text = calloc(1, sizeof(*text));
        if (!text) {
            return NULL;
        }
        text->owner = owner;
        buf_init(&text->bytes, gather->max);
        list_add(&gather->texts, &text->link);
    }
    return text;
}

static int add(struct gather *gather, uint64_t owner, const void *data,
               size_t size)
{
    struct text *text;

    if (memchr(data, '\0', size)) {
        return -EINVAL;
    }
    text = find_or_make(gather, owner);
    return text ? buf_add(&text->bytes, data, size) : -ENOMEM;
}

static int tell(const struct gather *gather, struct err *err)
{
    switch (gather->poison) {
    case EFBIG:
        return err_set(err, EFBIG, "a script of over %zu bytes", gather->max);
    case EINVAL:
        return err_set(err, EINVAL, "a NUL byte in a script");
    default:
        return err_set(err, gather->poison, "cannot keep the script");
    }
}

int gather_add(struct gather *gather, uint64_t owner, const void *data,
               size_t size, struct err *err)
{
    if (!gather->poison) {
        int rc = add(gather, owner, data, size);

        if (rc == 0) {
            return 0;
        }
        gather->poison = -rc;
        gather_done(gather);
    }
    return tell(gather, err);
}

static bool is_blank(const struct buf *bytes)
{
    for (size_t i = 0; i < bytes->size; i++) {
        if (!strchr(" \t\n\v\f\r", bytes->data[i])) {
            return false;
        }
    }
    return true;
}

bool gather_take(struct gather *gather, uint64_t owner, struct buf *out)
{
    struct text *text = find(gather, owner);
    bool something = false;

    if (text) {
        something = !is_blank(&text->bytes);
        if (something) {
            *out = text->bytes;
            buf_init(&text->bytes, gather->max);
        }
        free_text(text);
    }
    return something;
}

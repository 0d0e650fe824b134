/* Gathered scripts. See gather.h. */
#include "fs/gather.h"

#include "core/json_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct text {
    struct list link;
    uint64_t owner;
    struct buf bytes;
    struct js_scan scan;
};

void gather_init(struct gather *gather, const struct gather_kind *kind)
{
    gather->kind = kind;
    list_init(&gather->texts);
    gather->poison = 0;
    gather->parts = false;
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
        buf_init(&text->bytes, gather->kind->max);
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
        return err_set(err, EFBIG, "a %s of over %zu bytes", gather->kind->name,
                       gather->kind->max);
    case EINVAL:
        return err_set(err, EINVAL, "%s", gather->kind->bad);
    default:
        return err_set(err, gather->poison, "cannot keep the %s",
                       gather->kind->name);
    }
}

void gather_poison(struct gather *gather, int code)
{
    gather->poison = code;
    gather_done(gather);
}

int gather_add(struct gather *gather, uint64_t owner, const void *data,
               size_t size, struct err *err)
{
    if (!gather->poison) {
        int rc = add(gather, owner, data, size);

        if (rc == 0) {
            gather->parts = true;
            return 0;
        }
        gather_poison(gather, -rc);
    }
    return tell(gather, err);
}

/* Returns as gather_json(). */
static int add_json(struct gather *gather, uint64_t owner, const void *data,
                    size_t size, size_t *used, struct buf *out)
{
    struct text *text = find_or_make(gather, owner);
    enum js_scan_result result;
    int rc;

    if (!text) {
        return -ENOMEM;
    }
    result = js_scan_feed(&text->scan, data, size, used);
    if (result == JS_SCAN_BAD) {
        (void)!buf_add(&text->bytes, data, size);
        *out = text->bytes;
        buf_init(&text->bytes, gather->kind->max);
        return -EINVAL;
    }
    rc = buf_add(&text->bytes, data, *used);
    if (rc < 0 || result == JS_SCAN_MORE) {
        return rc;
    }
    *out = text->bytes;
    buf_init(&text->bytes, gather->kind->max);
    free_text(text);
    return 1;
}

int gather_json(struct gather *gather, uint64_t owner, const void *data,
                size_t size, size_t *used, struct buf *out, struct err *err)
{
    if (!gather->poison) {
        int rc = add_json(gather, owner, data, size, used, out);

        if (rc >= 0) {
            gather->parts = gather->parts || rc == 0;
            return rc;
        }
        gather_poison(gather, -rc);
    }
    return tell(gather, err);
}

int gather_take(struct gather *gather, uint64_t owner, struct buf *out,
                struct err *err)
{
    struct text *text = find(gather, owner);
    bool something;

    if (gather->poison && gather->parts) {
        return tell(gather, err);
    }
    if (!text) {
        return 0;
    }
    something = !buf_blank(text->bytes.data, text->bytes.size);
    if (something) {
        *out = text->bytes;
        buf_init(&text->bytes, gather->kind->max);
    }
    free_text(text);
    return something;
}

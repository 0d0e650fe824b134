/* Cutting long strings. See trim.h. */
#include "providers/jsonl/trim.h"

#include "core/provider.h"

#include <string.h>

static bool is_key(const struct trim *trim, const char *name)
{
    return trim->key_size == strlen(name) &&
           memcmp(trim->key, name, trim->key_size) == 0;
}

/* A string begins: which stream's is it? */
static void begin_text(struct trim *trim)
{
    trim->watched = 0;
    if (trim->colon && is_key(trim, "stdout_base64")) {
        trim->watched = COMMAND_STDOUT + 1;
    } else if (trim->colon && is_key(trim, "stderr_base64")) {
        trim->watched = COMMAND_STDERR + 1;
    }
    if (trim->watched) {
        trim->length[trim->watched - 1] = 0;
        trim->pads[trim->watched - 1] = 0;
    }
    trim->in_text = true;
    trim->key_size = 0;
}

static void outside(struct trim *trim, char c)
{
    if (c == '"') {
        begin_text(trim);
        trim->colon = false;
    } else if (c == ':') {
        trim->colon = true;
    } else if (c != ' ' && c != '\t') {
        trim->colon = false;
    }
}

/* Whether the byte is to be kept. */
static bool inside(struct trim *trim, char c, bool cut)
{
    int stream = trim->watched - 1;
    bool over = trim->watched && cut && trim->length[stream] >= TRIM_KEEP;

    if (!trim->escape && c == '"') {
        trim->in_text = false;
        return true;
    }
    if (!trim->escape && c == '\\') {
        trim->escape = true;
        return !over;
    }
    trim->escape = false;
    if (trim->key_size < sizeof(trim->key)) {
        trim->key[trim->key_size++] = c;
    }
    if (trim->watched) {
        trim->length[stream]++;
        trim->pads[stream] += c == '=';
        trim->cut[stream] |= over;
    }
    return !over;
}

int trim_feed(struct trim *trim, const char *data, size_t size, bool cut,
              struct buf *out)
{
    size_t from = 0; /* What is kept and not yet in `out`. */
    int rc = 0;

    for (size_t i = 0; i < size && rc == 0; i++) {
        bool keep = true;

        if (trim->in_text) {
            keep = inside(trim, data[i], cut);
        } else {
            outside(trim, data[i]);
        }
        if (!keep) {
            rc = i > from ? buf_add(out, data + from, i - from) : 0;
            from = i + 1;
        }
    }
    return rc < 0 || from >= size ? rc : buf_add(out, data + from, size - from);
}

uint64_t trim_bytes(const struct trim *trim, int stream)
{
    uint64_t quads = trim->length[stream] / 4 * 3;

    return quads > trim->pads[stream] ? quads - trim->pads[stream] : 0;
}

/* The scanner of streams and the parser: whatever is an object for the parser
 * is one for the scanner, wherever it is cut; and values survive writing. */
#include "tests/fuzz/fuzz.h"

#include "core/json.h"
#include "core/json_scan.h"

/* Where an object ends when it comes in pieces of some bytes. */
static enum js_scan_result scan_pieces(const char *text, size_t size,
                                       size_t piece, size_t *end,
                                       struct js_scan *scan)
{
    enum js_scan_result result = JS_SCAN_MORE;

    *end = 0;
    *scan = (struct js_scan){0};
    while (result == JS_SCAN_MORE && *end < size) {
        size_t n = size - *end < piece ? size - *end : piece;
        size_t used = 0;

        result = js_scan_feed(scan, text + *end, n, &used);
        DEMAND(result == JS_SCAN_BAD || used <= n);
        DEMAND(result != JS_SCAN_MORE || used == n);
        *end += used;
    }
    return result;
}

static bool is_within_limits(const struct js_scan *scan)
{
    return scan->depth < JS_SCAN_DEPTH && scan->values < JS_SCAN_VALUES;
}

static void write_and_parse(const struct js *js)
{
    struct buf text = BUF_INIT(SIZE_MAX);
    struct err err = ERR_INIT;
    struct js *again = NULL;

    DEMAND(js_write(js, &text) == 0);
    DEMAND(js_parse(buf_str(&text), text.size, &again, &err) == 0);
    DEMAND(js_equal(js, again));
    js_free(again);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct err err = ERR_INIT;
    struct js_scan scan;
    struct js_scan other;
    struct js *js = NULL;
    size_t end;
    size_t other_end;
    enum js_scan_result whole = scan_pieces(text, size, SIZE_MAX, &end, &scan);

    DEMAND(scan_pieces(text, size, 1, &other_end, &other) == whole);
    DEMAND(whole == JS_SCAN_BAD || end == other_end);
    DEMAND(scan_pieces(text, size, 3, &other_end, &other) == whole);
    DEMAND(whole == JS_SCAN_BAD || end == other_end);
    if (js_parse(text, size, &js, &err) == 0) {
        write_and_parse(js);
        if (js_is_object(js) && is_within_limits(&scan)) {
            DEMAND(whole == JS_SCAN_DONE);
        }
    }
    js_free(js);
    free(text);
    return 0;
}

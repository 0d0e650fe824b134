/* Base64: what is taken is what would be written, and all bytes come back. */
#include "tests/fuzz/fuzz.h"

#include "core/base64.h"

static void both_ways(const char *text, size_t size)
{
    struct buf bytes = BUF_INIT(SIZE_MAX);
    struct buf again = BUF_INIT(SIZE_MAX);

    if (base64_decode(text, size, &bytes) == 0) {
        DEMAND(base64_encode(buf_str(&bytes), bytes.size, &again) == 0);
        DEMAND(again.size == size && memcmp(buf_str(&again), text, size) == 0);
    }
    buf_done(&bytes);
    buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text = BUF_INIT(SIZE_MAX);
    char *given = fuzz_text(data, size);

    both_ways(given, size);
    DEMAND(base64_encode(given, size, &text) == 0);
    both_ways(buf_str(&text), text.size);
    buf_done(&text);
    free(given);
    return 0;
}

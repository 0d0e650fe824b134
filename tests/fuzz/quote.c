/* Quoted bytes: printable, and distinct for distinct bytes. */
#include "tests/fuzz/fuzz.h"

#include "core/quote.h"
#include "core/utf8.h"

static const char *const letters = "abtnvfr";
static const char meaning[] = "\a\b\t\n\v\f\r";

/* The byte of the escape behind a backslash. */
static char unescape(const char **at)
{
    const char *letter = strchr(letters, **at);
    unsigned value = 0;

    if (letter) {
        (*at)++;
        return meaning[letter - letters];
    }
    if (**at == '"' || **at == '\\') {
        return *(*at)++;
    }
    for (int i = 0; i < 3; i++) {
        DEMAND(**at >= '0' && **at <= '7');
        value = value * 8 + (unsigned)(*(*at)++ - '0');
    }
    return (char)value;
}

/* Reads what quote_c() wrote, and compares. */
static void unquote(const char *quoted, const char *text)
{
    DEMAND(*quoted == '"');
    quoted++;
    while (*quoted && *quoted != '"') {
        char c = *quoted++;

        c = c == '\\' ? unescape(&quoted) : c;
        DEMAND(c == *text);
        text++;
    }
    DEMAND(strcmp(quoted, "\"") == 0 && !*text);
}

static void check_utf8(const char *text)
{
    struct utf8 utf8 = {0};

    for (; *text; text++) {
        DEMAND(utf8_step(&utf8, (unsigned char)*text));
        DEMAND((unsigned char)*text >= ' ' && *text != 127);
    }
    DEMAND(!utf8.left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct buf quoted = BUF_INIT(SIZE_MAX);

    DEMAND(quote_c(&quoted, text) == 0);
    check_utf8(buf_str(&quoted));
    unquote(buf_str(&quoted), text);
    buf_done(&quoted);
    DEMAND(quote_path(&quoted, text) == 0);
    check_utf8(buf_str(&quoted));
    if (quoted.data && quoted.data[0] == '"') {
        unquote(quoted.data, text);
    } else {
        DEMAND(strcmp(buf_str(&quoted), text) == 0);
    }
    buf_done(&quoted);
    DEMAND(quote_words(&quoted, text) == 0);
    check_utf8(buf_str(&quoted));
    buf_done(&quoted);
    free(text);
    return 0;
}

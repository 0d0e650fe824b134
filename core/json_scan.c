/* See json_scan.h. A state is what may come next. */
#include "core/json_scan.h"

#include <string.h>

enum {
    AT_START,     /* The object's brace, after blanks. */
    AT_KEY,       /* The string of a key, */
    AT_FIRST_KEY, /* or the end of an empty object. */
    AT_COLON,
    AT_VALUE,
    AT_FIRST_VALUE, /* Or the end of an empty array. */
    AT_COMMA,       /* Or the end of what is open. */
    IN_STRING,
    IN_ESCAPE,
    IN_UNIT, /* The digits of \u. */
    IN_WORD,
    AFTER_MINUS,
    AFTER_ZERO,
    IN_DIGITS,
    AFTER_POINT,
    IN_FRACTION,
    AFTER_E,
    AFTER_E_SIGN,
    IN_EXPONENT,
    AT_END,
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool go(struct js_scan *scan, unsigned char state)
{
    scan->state = state;
    return true;
}

static bool open_one(struct js_scan *scan, bool object)
{
    if (scan->depth == JS_SCAN_DEPTH) {
        return false;
    }
    scan->objects &= ~(UINT64_C(1) << scan->depth);
    scan->objects |= (uint64_t)object << scan->depth;
    scan->depth++;
    return go(scan, object ? AT_FIRST_KEY : AT_FIRST_VALUE);
}

static bool in_object(const struct js_scan *scan)
{
    return scan->objects >> (scan->depth - 1) & 1;
}

static bool close_one(struct js_scan *scan, char c)
{
    if (in_object(scan) != (c == '}')) {
        return false;
    }
    scan->depth--;
    return go(scan, scan->depth ? AT_COMMA : AT_END);
}

static bool begin_string(struct js_scan *scan, bool is_key)
{
    scan->is_key = is_key;
    scan->low_due = false;
    return go(scan, IN_STRING);
}

static bool begin_word(struct js_scan *scan, const char *word)
{
    scan->word = word;
    scan->count = 1;
    return go(scan, IN_WORD);
}

static bool begin_value(struct js_scan *scan, char c)
{
    if (++scan->values > JS_SCAN_VALUES) {
        return false;
    }
    switch (c) {
    case '{':
    case '[':
        return open_one(scan, c == '{');
    case '"':
        return begin_string(scan, false);
    case 't':
        return begin_word(scan, "true");
    case 'f':
        return begin_word(scan, "false");
    case 'n':
        return begin_word(scan, "null");
    case '-':
        return go(scan, AFTER_MINUS);
    case '0':
        return go(scan, AFTER_ZERO);
    default:
        return is_digit(c) && go(scan, IN_DIGITS);
    }
}

static bool step_comma(struct js_scan *scan, char c)
{
    if (c == ',') {
        return go(scan, in_object(scan) ? AT_KEY : AT_VALUE);
    }
    return (c == '}' || c == ']') && close_one(scan, c);
}

/* Between the tokens. */
static bool step_token(struct js_scan *scan, char c)
{
    if (is_blank(c)) {
        return true;
    }
    switch (scan->state) {
    case AT_START:
        return c == '{' && open_one(scan, true);
    case AT_FIRST_KEY:
        if (c == '}') {
            return close_one(scan, c);
        }
        return c == '"' && begin_string(scan, true);
    case AT_KEY:
        return c == '"' && begin_string(scan, true);
    case AT_COLON:
        return c == ':' && go(scan, AT_VALUE);
    case AT_FIRST_VALUE:
        return c == ']' ? close_one(scan, c) : begin_value(scan, c);
    case AT_VALUE:
        return begin_value(scan, c);
    default:
        return step_comma(scan, c);
    }
}

static bool step_string(struct js_scan *scan, char c)
{
    if (scan->utf8.left == 0) {
        if (scan->low_due && c != '\\') {
            return false;
        }
        if (c == '"') {
            return go(scan, scan->is_key ? AT_COLON : AT_COMMA);
        }
        if (c == '\\') {
            return go(scan, IN_ESCAPE);
        }
    }
    return (unsigned char)c >= 0x20 && utf8_step(&scan->utf8, (unsigned char)c);
}

static bool step_escape(struct js_scan *scan, char c)
{
    if (c == 'u') {
        scan->count = 0;
        scan->unit = 0;
        return go(scan, IN_UNIT);
    }
    return !scan->low_due && c && strchr("\"\\/bfnrt", c) &&
           go(scan, IN_STRING);
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | 0x20) : NULL;

    return at && (is_digit(c) || (c | 0x20) >= 'a') ? (int)(at - digits) : -1;
}

static bool step_unit(struct js_scan *scan, char c)
{
    int value = hex_value(c);
    bool low;

    if (value < 0) {
        return false;
    }
    scan->unit = (unsigned short)(scan->unit << 4 | value);
    if (++scan->count < 4) {
        return true;
    }
    low = scan->unit >= 0xdc00 && scan->unit <= 0xdfff;
    if (low != scan->low_due) {
        return false;
    }
    scan->low_due = scan->unit >= 0xd800 && scan->unit <= 0xdbff;
    return go(scan, IN_STRING);
}

static bool step_word(struct js_scan *scan, char c)
{
    if (c != scan->word[scan->count]) {
        return false;
    }
    scan->count++;
    return scan->word[scan->count] || go(scan, AT_COMMA);
}

/* Where a number may end, anything that may follow it ends it. */
static bool end_number(struct js_scan *scan, char c)
{
    scan->state = AT_COMMA;
    return step_token(scan, c);
}

static bool step_number(struct js_scan *scan, char c)
{
    bool digit = is_digit(c);
    bool whole = scan->state == AFTER_ZERO || scan->state == IN_DIGITS;

    if (scan->state == AFTER_MINUS) {
        return digit && go(scan, c == '0' ? AFTER_ZERO : IN_DIGITS);
    }
    if (scan->state == AFTER_POINT) {
        return digit && go(scan, IN_FRACTION);
    }
    if (scan->state == AFTER_E && (c == '+' || c == '-')) {
        return go(scan, AFTER_E_SIGN);
    }
    if (scan->state == AFTER_E || scan->state == AFTER_E_SIGN) {
        return digit && go(scan, IN_EXPONENT);
    }
    if (digit) {
        return scan->state != AFTER_ZERO;
    }
    if (whole && c == '.') {
        return go(scan, AFTER_POINT);
    }
    if ((whole || scan->state == IN_FRACTION) && (c == 'e' || c == 'E')) {
        return go(scan, AFTER_E);
    }
    return end_number(scan, c);
}

static bool step(struct js_scan *scan, char c)
{
    switch (scan->state) {
    case IN_STRING:
        return step_string(scan, c);
    case IN_ESCAPE:
        return step_escape(scan, c);
    case IN_UNIT:
        return step_unit(scan, c);
    case IN_WORD:
        return step_word(scan, c);
    default:
        return scan->state < IN_STRING ? step_token(scan, c)
                                       : step_number(scan, c);
    }
}

enum js_scan_result js_scan_feed(struct js_scan *scan, const char *data,
                                 size_t size, size_t *used)
{
    size_t i = 0;

    while (i < size && scan->state != AT_END) {
        if (!step(scan, data[i])) {
            return JS_SCAN_BAD;
        }
        i++;
    }
    *used = i;
    return scan->state == AT_END ? JS_SCAN_DONE : JS_SCAN_MORE;
}

/* Counters as text. See metrics.h. */
#include "core/metrics.h"

int metrics_begin(struct buf *out, const char *type, const char *name,
                  const char *help)
{
    return buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                      type);
}

/* As the format has it: only these three are escaped. */
static int add_label(struct buf *out, const char *text)
{
    int rc = 0;

    for (; *text && rc == 0; text++) {
        if (*text == '\n') {
            rc = buf_add(out, "\\n", 2);
        } else {
            rc = *text == '"' || *text == '\\' ? buf_add(out, "\\", 1) : 0;
            rc = rc < 0 ? rc : buf_add(out, text, 1);
        }
    }
    return rc;
}

int metrics_labelled(struct buf *out, const char *name, const char *label,
                     const char *text, uint64_t value)
{
    int rc = buf_printf(out, "%s{%s=\"", name, label);

    if (rc == 0) {
        rc = add_label(out, text);
    }
    return rc < 0 ? rc
                  : buf_printf(out, "\"} %llu\n", (unsigned long long)value);
}

int metrics_one(struct buf *out, const char *type, const char *name,
                const char *help, uint64_t value)
{
    int rc = metrics_begin(out, type, name, help);

    return rc < 0
               ? rc
               : buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}

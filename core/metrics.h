/*
 * Counters in the text format of Prometheus. All functions append, and return
 * 0, -EFBIG or -ENOMEM as those of core/buf.h.
 */
#ifndef SESSIONFS_METRICS_H
#define SESSIONFS_METRICS_H

#include "core/buf.h"

#include <stdint.h>

/**
 * Begins a metric: its values follow, each once for its labels.
 *
 * @param out  appended to
 * @param type "gauge" or "counter"
 * @param name with its prefix
 * @param help one line, without backslashes
 * @return see above
 */
MUST_USE int metrics_begin(struct buf *out, const char *type, const char *name,
                           const char *help);

/**
 * Adds a value with one label.
 *
 * @param out   appended to
 * @param name  of the metric
 * @param label its name
 * @param text  its value, any bytes
 * @param value the number
 * @return see above
 */
MUST_USE int metrics_labelled(struct buf *out, const char *name,
                              const char *label, const char *text,
                              uint64_t value);

/**
 * Adds a metric that has no labels.
 *
 * @param out   appended to
 * @param type  as in metrics_begin()
 * @param name  as there
 * @param help  as there
 * @param value the number
 * @return see above
 */
MUST_USE int metrics_one(struct buf *out, const char *type, const char *name,
                         const char *help, uint64_t value);

#endif

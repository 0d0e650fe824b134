/*
 * Time: a monotonic clock for deadlines, the wall clock for records.
 * A deadline is an absolute clock_ms() value; DEADLINE_NONE never comes.
 */
#ifndef SESSIONFS_CLOCK_H
#define SESSIONFS_CLOCK_H

#include <stdint.h>

#define DEADLINE_NONE INT64_MAX

enum {
    CLOCK_TEXT_SIZE = 32
};

/** @return milliseconds of the monotonic clock */
int64_t clock_ms(void);

/** @return microseconds since 1970, UTC */
int64_t clock_wall_us(void);

/**
 * The deadline that lies `ms` from now.
 *
 * @param ms milliseconds, 0 or more; DEADLINE_NONE stays that
 * @return a clock_ms() value, or DEADLINE_NONE
 */
int64_t clock_deadline(int64_t ms);

/**
 * How long poll(2) and epoll_wait(2) shall wait for a deadline.
 *
 * @param deadline_ms a clock_ms() value or DEADLINE_NONE
 * @return milliseconds, 0 when it has passed, -1 when it never comes
 */
int clock_timeout(int64_t deadline_ms);

/**
 * Writes a wall time as RFC 3339 with microseconds, in UTC.
 *
 * @param wall_us a clock_wall_us() value
 * @param out     CLOCK_TEXT_SIZE bytes
 */
void clock_format(int64_t wall_us, char out[CLOCK_TEXT_SIZE]);

#endif

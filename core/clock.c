/* Time. See clock.h. */
#include "core/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

int64_t clock_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t clock_wall_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_deadline(int64_t ms)
{
    int64_t now = clock_ms();

    return ms >= DEADLINE_NONE - now ? DEADLINE_NONE : now + ms;
}

int clock_timeout(int64_t deadline_ms)
{
    int64_t left;

    if (deadline_ms == DEADLINE_NONE) {
        return -1;
    }
    left = deadline_ms - clock_ms();
    if (left < 0) {
        return 0;
    }
    return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_format(int64_t wall_us, char out[CLOCK_TEXT_SIZE])
{
    time_t s = (time_t)(wall_us / 1000000);
    char date[24];
    struct tm tm;

    (void)gmtime_r(&s, &tm);
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, CLOCK_TEXT_SIZE, "%s.%06uZ", date,
                   (unsigned)(wall_us % 1000000));
}

/* One timer for a list. See alarms.h. */
#include "core/alarms.h"

#include "core/clock.h"

void alarms_init(struct alarms *alarms, struct loop *loop, alarms_look_fn *look)
{
    list_init(&alarms->entries);
    alarms->loop = loop;
    alarms->timer = NULL;
    alarms->at_ms = DEADLINE_NONE;
    alarms->look = look;
}

static void set_timer(struct alarms *alarms, int64_t at_ms)
{
    alarms->at_ms = at_ms;
    loop_timer_set(alarms->timer, at_ms);
}

static void fire(void *arg)
{
    struct alarms *alarms = arg;
    int64_t first = DEADLINE_NONE;

    list_each_safe(entry, &alarms->entries)
    {
        int64_t next = alarms->look(entry);

        first = next < first ? next : first;
    }
    set_timer(alarms, first);
}

bool alarms_add(struct alarms *alarms, struct list *entry, int64_t due_ms)
{
    if (!alarms->timer) {
        alarms->timer = loop_timer_new(alarms->loop, fire, alarms);
    }
    if (!alarms->timer || !list_empty(entry)) {
        return false;
    }
    list_add(&alarms->entries, entry);
    if (due_ms < alarms->at_ms) {
        set_timer(alarms, due_ms);
    }
    return true;
}

void alarms_done(struct alarms *alarms)
{
    loop_timer_free(alarms->timer);
    alarms->timer = NULL;
    alarms->at_ms = DEADLINE_NONE;
}

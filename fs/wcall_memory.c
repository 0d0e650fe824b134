/* Memory for calls, which most requests take and give back in one thread. */
#include "fs/wcall.h"

#include <stdlib.h>
#include <string.h>

static pthread_key_t spare;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_spare;

static void make_key(void)
{
    has_spare = pthread_key_create(&spare, free) == 0;
}

struct wcall *wcall_memory(void)
{
    struct wcall *call = NULL;

    (void)pthread_once(&once, make_key);
    if (has_spare) {
        call = pthread_getspecific(spare);
    }
    if (call) {
        (void)pthread_setspecific(spare, NULL);
    } else {
        call = malloc(sizeof(*call));
    }
    if (call) {
        memset(call, 0, offsetof(struct wcall, name_room));
    }
    return call;
}

void wcall_forget(struct wcall *call)
{
    if (!has_spare || pthread_getspecific(spare) ||
        pthread_setspecific(spare, call) != 0) {
        free(call);
    }
}

/* Polls of control files. See poll.h. */
#include "fs/poll.h"

#include "core/list.h"
#include "core/mutex.h"
#include "fs/file.h"
#include "fs/kernel.h"

#include <stdlib.h>

struct poller {
    struct list link;
    const struct file *file; /* Not used, only compared. */
    const struct session *session;
    struct fuse_pollhandle *handle; /* Owned. */
};

struct pollers {
    struct mutex lock;
    struct list all GUARDED; /* by lock */
};

struct pollers *pollers_new(void)
{
    struct pollers *pollers = calloc(1, sizeof(*pollers));

    if (pollers) {
        mutex_init(&pollers->lock);
        list_init(&pollers->all);
    }
    return pollers;
}

static void free_poller(struct poller *poller)
{
    list_remove(&poller->link);
    fuse_pollhandle_destroy(poller->handle);
    free(poller);
}

static void free_all(struct list *all)
{
    list_each_safe(at, all)
    {
        free_poller(container_of(at, struct poller, link));
    }
}

void pollers_free(struct pollers *pollers)
{
    if (pollers) {
        free_all(&pollers->all);
        mutex_done(&pollers->lock);
        free(pollers);
    }
}

/* Moves the pollers of a file, or those of a session, to `out`. */
static void take(struct pollers *pollers, const struct file *file,
                 const struct session *session, struct list *out)
    REQUIRES(pollers->lock)
{
    list_each_safe(at, &pollers->all)
    {
        const struct poller *poller = container_of(at, struct poller, link);

        if (file ? poller->file == file : poller->session == session) {
            list_remove(at);
            list_add(out, at);
        }
    }
}

void pollers_add(struct pollers *pollers, struct file *file,
                 struct fuse_pollhandle *handle)
{
    struct poller *poller = calloc(1, sizeof(*poller));
    struct list old;

    list_init(&old);
    if (!poller) {
        fuse_pollhandle_destroy(handle);
        return;
    }
    poller->file = file;
    poller->session = file->node.session;
    poller->handle = handle;
    mutex_lock(&pollers->lock);
    take(pollers, file, NULL, &old);
    list_add(&pollers->all, &poller->link);
    mutex_unlock(&pollers->lock);
    free_all(&old);
}

void pollers_forget(struct pollers *pollers, const struct file *file)
{
    struct list old;

    list_init(&old);
    mutex_lock(&pollers->lock);
    take(pollers, file, NULL, &old);
    mutex_unlock(&pollers->lock);
    free_all(&old);
}

void pollers_wake(struct fs *fs, const struct session *session)
{
    struct list woken;

    if (!kernel_tell_begin(fs->kernel)) {
        return;
    }
    list_init(&woken);
    mutex_lock(&fs->pollers->lock);
    take(fs->pollers, NULL, session, &woken);
    mutex_unlock(&fs->pollers->lock);
    list_each(at, &woken)
    {
        const struct poller *poller = container_of(at, struct poller, link);

        (void)fuse_lowlevel_notify_poll(poller->handle);
    }
    free_all(&woken);
    kernel_tell_end(fs->kernel);
}

/* What the keeper holds for the next daemon. See shelf.h. */
#include "providers/local/shelf.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>

enum {
    FIRST_FD = 64 /* All that is held is there and above, all else below. */
};

struct item {
    struct list link;
    struct wire wire; /* As it is told to the next daemon. */
    int fds[WIRE_FD_MAX];
};

void shelf_init(struct shelf *shelf)
{
    list_init(&shelf->items);
}

static void drop(struct item *item)
{
    list_remove(&item->link);
    wire_close(item->fds);
    free(item);
}

void shelf_done(struct shelf *shelf)
{
    list_each_safe(node, &shelf->items)
    {
        drop(container_of(node, struct item, link));
    }
}

static struct item *find(const struct shelf *shelf,
                         const struct wire_held *held)
{
    list_each(node, &shelf->items)
    {
        struct item *item = container_of(node, struct item, link);

        if (item->wire.held.box == held->box &&
            item->wire.held.command == held->command) {
            return item;
        }
    }
    return NULL;
}

void shelf_hold(struct shelf *shelf, const struct wire *wire,
                int fds[WIRE_FD_MAX])
{
    struct item *old = find(shelf, &wire->held);
    struct item *item = calloc(1, sizeof(*item));

    if (old) {
        drop(old);
    }
    if (!item) {
        wire_close(fds);
        return;
    }
    list_init(&item->link);
    item->wire = *wire;
    item->wire.type = WIRE_HELD;
    for (int i = 0; i < WIRE_FD_MAX; i++) {
        /* One that is missing then is found missing by the next daemon. */
        item->fds[i] =
            fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FD);
    }
    wire_close(fds);
    list_add(&shelf->items, &item->link);
}

void shelf_note(struct shelf *shelf, const struct wire_held *held)
{
    struct item *item = find(shelf, held);

    if (item) {
        item->wire.held.frozen = held->frozen;
    }
}

void shelf_drop(struct shelf *shelf, const struct wire_held *held)
{
    list_each_safe(node, &shelf->items)
    {
        struct item *item = container_of(node, struct item, link);

        if (item->wire.held.box == held->box &&
            (!held->command || item->wire.held.command == held->command)) {
            drop(item);
        }
    }
}

bool shelf_lives(const struct shelf *shelf)
{
    list_each(node, &shelf->items)
    {
        const struct item *item = container_of(node, struct item, link);
        struct pollfd fd = {.fd = item->fds[WIRE_BOX_PIDFD], .events = POLLIN};

        if (!item->wire.held.command && fd.fd >= 0 && poll(&fd, 1, 0) == 0) {
            return true;
        }
    }
    return false;
}

void shelf_each_box(const struct shelf *shelf, shelf_box_fn *fn,
                    const void *arg)
{
    list_each(node, &shelf->items)
    {
        const struct item *item = container_of(node, struct item, link);

        if (!item->wire.held.command) {
            fn(arg, &item->wire.quota, item->fds);
        }
    }
}

int shelf_tell(const struct shelf *shelf, int sock, struct err *err)
{
    const struct wire end = {.type = WIRE_HELD};

    list_each(node, &shelf->items)
    {
        const struct item *item = container_of(node, struct item, link);
        int rc = wire_send(sock, &item->wire, item->fds, WIRE_FD_MAX, err);

        if (rc < 0) {
            return rc;
        }
    }
    return wire_send(sock, &end, NULL, 0, err);
}

void shelf_leave(void)
{
    (void)syscall(SYS_close_range, (unsigned)FIRST_FD, ~0U, 0U);
}

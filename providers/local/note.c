/* The kernel's notes about directories of an overlay. See note.h. */
#include "providers/local/note.h"

#include "core/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#define TRUSTED "trusted.overlay."
#define USER    "user.overlay."
/* What the kernel puts behind the prefix where a workload has used it. */
#define ESCAPE "overlay."

enum {
    NAME_SIZE = 64
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool trusted;

/* Whoever may not is told so whatever the filesystem can. */
static void find_out(void)
{
    AUTO_FD int fd = memfd_create("note", MFD_CLOEXEC);

    trusted = fd >= 0 && (fsetxattr(fd, TRUSTED "sessionfs", "y", 1, 0) == 0 ||
                          errno != EPERM);
}

bool note_trusted(void)
{
    (void)pthread_once(&once, find_out);
    return trusted;
}

static const char *prefix(void)
{
    return note_trusted() ? TRUSTED : USER;
}

bool note_is(const char *name)
{
    const char *with = prefix();
    size_t size = strlen(with);

    return strncmp(name, with, size) == 0 &&
           strncmp(name + size, ESCAPE, strlen(ESCAPE)) != 0;
}

ssize_t note_get(int fd, const char *what, char *out, size_t size)
{
    char name[NAME_SIZE];
    ssize_t got;

    (void)snprintf(name, sizeof(name), "%s%s", prefix(), what);
    got = fgetxattr(fd, name, out, size);
    return got < 0 ? -errno : got;
}

int note_set_opaque(int fd)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "%s" NOTE_OPAQUE, prefix());
    return fsetxattr(fd, name, "y", 1, 0) < 0 ? -errno : 0;
}

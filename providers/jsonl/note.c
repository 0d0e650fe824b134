/* The note of a sandbox: two lines of JSON. See jsonl.h. */
#include "core/cleanup.h"
#include "core/json.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME     "jsonl.note"
#define NEW_NAME "jsonl.note.new"

enum {
    NOTE_MAX = 16 * 1024 * 1024
};

static int open_dir(const struct sandbox *sandbox, struct err *err)
{
    int fd = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_errno(err, "cannot open the session's directory") : fd;
}

static int read_all(int fd, struct buf *out, struct err *err)
{
    char data[4096];
    ssize_t n = read(fd, data, sizeof(data));
    int rc = 0;

    while (n > 0 && rc == 0) {
        rc = buf_add(out, data, (size_t)n);
        n = read(fd, data, sizeof(data));
    }
    if (n < 0) {
        return err_errno(err, "cannot read " NAME);
    }
    return rc < 0 ? err_set(err, -rc, "cannot read " NAME) : 0;
}

/* The group's line, then the session's, which may be missing. */
static int split(const struct buf *text, struct note *out, struct err *err)
{
    const char *line = buf_str(text);
    size_t size = strcspn(line, "\n");
    const char *rest = line + size + (line[size] ? 1 : 0);

    if (strlen(line) != text->size || !size) {
        return err_set(err, EIO, NAME " is damaged");
    }
    out->group = strndup(line, size);
    out->session = rest[0] ? strndup(rest, strcspn(rest, "\n")) : NULL;
    if (!out->group || (rest[0] && !out->session)) {
        note_done(out);
        return err_no_memory(err);
    }
    return 0;
}

int note_read(const struct sandbox *sandbox, struct note *out, struct err *err)
{
    struct buf text = BUF_INIT(NOTE_MAX);
    AUTO_FD int dir = open_dir(sandbox, err);
    AUTO_FD int fd = -1;
    int rc;

    *out = (struct note){.group = NULL};
    if (dir < 0) {
        if (dir == -ENOENT) {
            err_clear(err);
        }
        return dir == -ENOENT ? 0 : dir;
    }
    fd = openat(dir, NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "cannot open " NAME);
    }
    rc = read_all(fd, &text, err);
    if (rc == 0) {
        rc = split(&text, out, err);
    }
    buf_done(&text);
    return rc;
}

static int write_all(int fd, const struct buf *text, struct err *err)
{
    size_t done = 0;

    while (done < text->size) {
        ssize_t n = write(fd, text->data + done, text->size - done);

        if (n < 0) {
            return err_errno(err, "cannot write " NAME);
        }
        done += (size_t)n;
    }
    return fsync(fd) < 0 ? err_errno(err, "cannot write " NAME) : 0;
}

static int replace(int dir, const struct buf *text, struct err *err)
{
    AUTO_FD int fd =
        openat(dir, NEW_NAME,
               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    AUTO_FD int real = -1;
    int rc;

    if (fd < 0) {
        return err_errno(err, "cannot make " NAME);
    }
    rc = write_all(fd, text, err);
    if (rc < 0) {
        return rc;
    }
    real = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (renameat(dir, NEW_NAME, dir, NAME) < 0 || real < 0 || fsync(real) < 0) {
        return err_errno(err, "cannot keep " NAME);
    }
    return 0;
}

int note_write(const struct sandbox *sandbox, const struct note *note,
               struct err *err)
{
    struct buf text = BUF_INIT(NOTE_MAX);
    AUTO_FD int dir = open_dir(sandbox, err);
    int rc;

    if (dir < 0) {
        return dir;
    }
    rc = buf_printf(&text, "%s\n", note->group);
    if (rc == 0 && note->session) {
        rc = buf_add(&text, note->session, strlen(note->session));
        rc = rc < 0 ? rc : buf_add(&text, "\n", 1);
    }
    rc = rc < 0 ? err_set(err, -rc, "a note that is too long")
                : replace(dir, &text, err);
    buf_done(&text);
    return rc;
}

void note_remove(const struct sandbox *sandbox)
{
    struct err ignored = ERR_INIT;
    AUTO_FD int dir = open_dir(sandbox, &ignored);

    if (dir >= 0) {
        (void)unlinkat(dir, NAME, 0);
    }
}

void note_done(struct note *note)
{
    free(note->group);
    free(note->session);
    *note = (struct note){.group = NULL};
}

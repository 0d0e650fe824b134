/* A command as init reads it. See request.h and wire.h. */
#include "providers/local/request.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* More than the kernel would take. */
enum {
    REQUEST_MAX = 16 * 1024 * 1024
};

/* Nothing of the daemon's own environment goes into a sandbox. */
static const char *const base_env[] = {
    "PATH=" WIRE_PATH, "HOME=" WIRE_WORKSPACE, "USER=user", "LOGNAME=user",
    "SHELL=/bin/sh",   "LANG=C.UTF-8",         "TERM=dumb",
};

static int add_string(struct buf *buf, const char *text)
{
    return buf_add(buf, text, strlen(text) + 1);
}

static int add_strings(struct buf *buf, const char *const *list,
                       uint32_t *count)
{
    int rc = 0;

    *count = 0;
    while (rc == 0 && list && list[*count]) {
        rc = add_string(buf, list[*count]);
        (*count)++;
    }
    return rc;
}

/* A relative directory is one of the workspace. */
static int add_cwd(struct buf *buf, const char *cwd)
{
    if (!cwd || cwd[0] == '\0') {
        return add_string(buf, WIRE_WORKSPACE);
    }
    if (cwd[0] != '/') {
        int rc = buf_add(buf, WIRE_WORKSPACE "/", sizeof(WIRE_WORKSPACE));

        if (rc < 0) {
            return rc;
        }
    }
    return add_string(buf, cwd);
}

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");

    return strncmp(a, b, len) == 0 && b[len] == '=';
}

static bool overridden(const char *base, const char *const *env)
{
    for (size_t i = 0; env && env[i]; i++) {
        if (same_name(base, env[i])) {
            return true;
        }
    }
    return false;
}

static int add_env(struct buf *buf, const char *const *env, uint32_t *count)
{
    int rc = add_strings(buf, env, count);

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(base_env); i++) {
        if (!overridden(base_env[i], env)) {
            rc = add_string(buf, base_env[i]);
            (*count)++;
        }
    }
    return rc;
}

static int build(const struct command *command, struct buf *buf)
{
    struct wire_request head = {.script_size =
                                    command->shell ? command->shell_size : 0};
    const char *const *argv = command->shell ? NULL : command->argv;
    int rc = buf_add(buf, &head, sizeof(head));

    if (rc == 0) {
        rc = add_cwd(buf, command->cwd);
    }
    if (rc == 0) {
        rc = add_strings(buf, argv, &head.argc);
    }
    if (rc == 0) {
        rc = add_env(buf, command->env, &head.envc);
    }
    if (rc == 0 && head.script_size > 0) {
        rc = buf_add(buf, command->shell, command->shell_size);
    }
    if (rc == 0) {
        memcpy(buf->data, &head, sizeof(head));
    }
    return rc;
}

/* A memfd with these bytes that nobody can change any more. */
static int make_file(const char *name, const void *data, size_t size, int *out,
                     struct err *err)
{
    AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *at = data;
    size_t done = 0;

    if (fd < 0) {
        return err_errno(err, "memfd_create");
    }
    while (done < size) {
        ssize_t n = write(fd, at + done, size - done);

        if (n < 0) {
            return err_errno(err, "cannot write the %s", name);
        }
        done += (size_t)n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS,
              F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        return err_errno(err, "cannot seal the %s", name);
    }
    *out = TAKE_FD(fd);
    return 0;
}

int request_write(const struct command *command, int *out, struct err *err)
{
    struct buf buf = BUF_INIT(REQUEST_MAX);
    int rc;

    if (!command->shell && (!command->argv || !command->argv[0])) {
        return err_set(err, EINVAL, "a command without a program");
    }
    rc = build(command, &buf);
    if (rc < 0) {
        rc = rc == -EFBIG ? err_set(err, E2BIG, "the command is too long")
                          : err_set(err, -rc, "out of memory");
    } else {
        rc = make_file("command", buf.data, buf.size, out, err);
    }
    buf_done(&buf);
    return rc;
}

int request_input(const struct command *command, int *out, struct err *err)
{
    if (!command->input) {
        *out = -1;
        return 0;
    }
    return make_file("input", command->input, command->input_size, out, err);
}

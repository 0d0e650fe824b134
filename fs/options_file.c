/* The file of options. See options_table.h. */
#include "core/cleanup.h"
#include "fs/options_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char blanks[] = " \t\r\n";

/* Who may write the file decides what root, or its owner, runs. */
static int check_writers(int fd, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return err_errno(err, "stat");
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(err, EINVAL, "not a file");
    }
    if (st.st_uid != 0 && st.st_uid != geteuid()) {
        return err_set(err, EPERM, "it belongs to another user");
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        return err_set(err, EPERM, "others may write it");
    }
    return 0;
}

static int set_line(struct options *options, char *line, size_t size,
                    struct err *err)
{
    if (strlen(line) != size) {
        return err_set(err, EINVAL, "a NUL byte");
    }
    while (size && strchr(blanks, line[size - 1])) {
        line[--size] = '\0';
    }
    line += strspn(line, blanks);
    return *line && *line != '#' ? option_set(options, line, err) : 0;
}

static int read_lines(struct options *options, FILE *stream, struct err *err)
{
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    unsigned number = 1;
    ssize_t n = getline(&line, &room, stream);

    while (n >= 0) {
        int rc = set_line(options, line, (size_t)n, err);

        if (rc < 0) {
            return err_wrap(err, rc, "%u", number);
        }
        number++;
        n = getline(&line, &room, stream);
    }
    return ferror(stream) ? err_errno(err, "read") : 0;
}

int option_file(struct options *options, const char *path, bool may_lack,
                struct err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *stream;
    int rc;

    /* A home that we may not enter is not ours: HOME is another user's. */
    if (fd < 0 && may_lack &&
        (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) {
        return 0;
    }
    if (fd < 0) {
        return err_errno(err, "%s", path);
    }
    rc = check_writers(fd, err);
    if (rc < 0) {
        return err_wrap(err, rc, "%s", path);
    }
    stream = fdopen(fd, "re");
    if (!stream) {
        return err_errno(err, "%s", path);
    }
    (void)TAKE_FD(fd);
    rc = read_lines(options, stream, err);
    (void)fclose(stream);
    if (rc < 0) {
        /* FILE:LINE: */
        struct err cause = *err;

        return err_set(err, -rc, "%s:%s", path, cause.msg);
    }
    return 0;
}

int option_config(struct options *options, struct err *err)
{
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    AUTO_FREE char *path = NULL;
    int n;

    if (options->config[0]) {
        return option_file(options, options->config, false, err);
    }
    if (geteuid() == 0) {
        return option_file(options, "/etc/sessionfs.conf", true, err);
    }
    if (xdg && *xdg == '/') {
        n = asprintf(&path, "%s/sessionfs/sessionfs.conf", xdg);
    } else if (home && *home == '/') {
        n = asprintf(&path, "%s/.config/sessionfs/sessionfs.conf", home);
    } else {
        return 0;
    }
    if (n < 0) {
        path = NULL;
        return err_no_memory(err);
    }
    return option_file(options, path, true, err);
}

/* Directories that a sandbox's config names. See hostdir.h. */
#include "providers/local/hostdir.h"

#include "core/cleanup.h"
#include "core/json.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

/* The path is part of *config, which the caller frees; NULL: no such key. */
static int read_path(const struct sandbox *sandbox, const char *key,
                     struct js **config, const char **path, struct err *err)
{
    const char *text = sandbox->config ? sandbox->config : "{}";
    int rc = js_parse(text, strlen(text), config, err);

    if (rc < 0) {
        return err_wrap(err, rc, "the sandbox's config");
    }
    *path = js_text(*config, key);
    if (*path && (*path)[0] != '/') {
        rc =
            err_set(err, EINVAL, "%s '%.128s' is no absolute path", key, *path);
        js_free(*config);
    }
    return rc;
}

static int open_path(const char *key, const char *path, int *out,
                     struct err *err)
{
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_NO_SYMLINKS,
    };
    long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    if (fd < 0 && errno == ELOOP) {
        return err_set(err, ELOOP, "%s '%.128s' leads through a link", key,
                       path);
    }
    if (fd < 0) {
        return err_errno(err, "%s '%.128s'", key, path);
    }
    *out = (int)fd;
    return 0;
}

int hostdir_open(const struct sandbox *sandbox, const char *key, int *out,
                 struct err *err)
{
    struct js *config = NULL;
    const char *path = NULL;
    int rc = read_path(sandbox, key, &config, &path, err);

    if (rc < 0) {
        return rc;
    }
    if (path) {
        rc = open_path(key, path, out, err);
    } else {
        *out = -1;
    }
    js_free(config);
    return rc;
}

int hostdir_named(const struct sandbox *sandbox, const char *key,
                  struct err *err)
{
    struct js *config = NULL;
    const char *path = NULL;
    int rc = read_path(sandbox, key, &config, &path, err);

    if (rc < 0) {
        return rc;
    }
    js_free(config);
    return path ? 1 : 0;
}

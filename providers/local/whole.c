/*
 * Layers with whole files. See whole.h.
 *
 * What lies in parts is known from the records of the layers below: the view
 * tells which of it is shown. It is put into a layer on top of all, in
 * directories that look as they did.
 */
#include "providers/local/whole.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/below.h"
#include "providers/local/copy.h"
#include "providers/local/layers.h"
#include "providers/local/parts.h"
#include "providers/local/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct filling {
    const struct whole_ask *ask;
    struct err *err;
    uint64_t top;
    int view; /* What it shows. */
    int dst;  /* -1: no layer was needed so far. */
    uint64_t layer;
    char **dirs; /* That were made in there, each before those in it. */
    size_t count;
    size_t room;
};

static int fail(struct filling *filling, int rc, const char *path)
{
    return err_set(filling->err, -rc, "cannot make '%.128s' whole: %s", path,
                   strerror(-rc));
}

/* ---- Directories ---- */

static int keep_dir(struct filling *filling, const char *path)
{
    void *wide = array_grow((void *)filling->dirs, filling->count,
                            &filling->room, sizeof(*filling->dirs));

    if (!wide) {
        return -ENOMEM;
    }
    filling->dirs = wide;
    filling->dirs[filling->count] = strdup(path);
    return filling->dirs[filling->count++] ? 0 : -ENOMEM;
}

/* Opens the directory of that path in the layer, and makes it where need be. */
static int step(struct filling *filling, int *dir, const char *path,
                const char *name)
{
    int rc = mkdirat(*dir, name, 0700) < 0 ? -errno : 0;

    if (rc == 0) {
        rc = keep_dir(filling, path);
    } else if (rc == -EEXIST) {
        rc = 0;
    }
    return rc == 0 ? copy_step_in(dir, name) : rc;
}

static int open_parent(struct filling *filling, const char *path)
{
    AUTO_FREE char *copy = strdup(path);
    AUTO_FD int dir =
        openat(filling->dst, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *name = copy;
    char *slash = copy ? strchr(copy, '/') : NULL;
    int rc = dir < 0 ? -errno : (copy ? 0 : -ENOMEM);

    while (rc == 0 && slash) {
        *slash = '\0';
        rc = step(filling, &dir, copy, name);
        *slash = '/';
        name = slash + 1;
        slash = strchr(name, '/');
    }
    return rc < 0 ? rc : TAKE_FD(dir);
}

/* After all that is in them, which changes their times. */
static int dress(struct filling *filling, const char *path)
{
    AUTO_FD int from = below_open(filling->view, path, O_RDONLY | O_DIRECTORY);
    AUTO_FD int to = below_open(filling->dst, path, O_RDONLY | O_DIRECTORY);

    return from < 0 || to < 0 ? fail(filling, from < 0 ? from : to, path)
                              : copy_dir_attr(from, to, filling->err);
}

static int dress_all(struct filling *filling)
{
    int rc = 0;

    for (size_t i = filling->count; rc == 0 && i > 0; i--) {
        rc = dress(filling, filling->dirs[i - 1]);
    }
    return rc == 0 ? dress(filling, "") : rc;
}

/* ---- Files ---- */

static int put_content(void *arg, int from, int to)
{
    const struct filling *filling = arg;
    const struct whole_ask *ask = filling->ask;
    struct parts *parts = NULL;
    int rc = parts_open(layers_dir(ask->layers), from, &parts);

    if (rc == 0) {
        rc = parts_copy(parts, to, ask->limits);
    }
    parts_close(parts);
    return rc;
}

static int put(struct filling *filling, const char *path)
{
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *above = strndup(path, slash ? (size_t)(slash - path) : 0);
    const struct copy_how how = {.content = put_content, .arg = filling};
    AUTO_FD int from = -ENOMEM;
    AUTO_FD int to = -ENOMEM;
    uint64_t bytes = 0;

    if (above) {
        from = below_open(filling->view, above, O_RDONLY | O_DIRECTORY);
        to = open_parent(filling, path);
    }
    if (from < 0 || to < 0) {
        return fail(filling, from < 0 ? from : to, path);
    }
    return copy_file(from, slash ? slash + 1 : path, to, &how, &bytes,
                     filling->err);
}

static int begin(struct filling *filling)
{
    if (filling->dst < 0) {
        filling->dst =
            layers_make(filling->ask->layers, filling->top, LAYERS_FILLED,
                        &filling->layer, filling->err);
    }
    return filling->dst < 0 ? filling->dst : 0;
}

static int fill_path(void *arg, const char *path)
{
    struct filling *filling = arg;
    AUTO_FD int fd = below_open(filling->view, path, O_PATH);
    AUTO_FD int done = -1;
    int rc;

    /* Another one hides it, or it was removed. */
    if (fd < 0 || !parts_is(fd)) {
        return 0;
    }
    rc = begin(filling);
    if (rc == 0) {
        done = below_open(filling->dst, path, O_PATH);
        rc = done < 0 ? put(filling, path) : 0;
    }
    return rc;
}

static int fill_layer(struct filling *filling, uint64_t layer)
{
    int rc =
        parts_each(layers_dir(filling->ask->layers), layer, fill_path, filling);

    return rc < 0 && !filling->err->code
               ? err_set(filling->err, -rc, "cannot read a layer's parts")
               : rc;
}

static int fill_all(struct filling *filling, const uint64_t *chain,
                    size_t count)
{
    const struct whole_ask *ask = filling->ask;
    int rc = 0;

    filling->view = volume_view(ask->volumes, ask->sandbox, filling->top,
                                ask->limits, filling->err);
    if (filling->view < 0) {
        return filling->view;
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fill_layer(filling, chain[i]);
    }
    return rc == 0 && filling->dst >= 0 ? dress_all(filling) : rc;
}

static void done(struct filling *filling)
{
    for (size_t i = 0; i < filling->count; i++) {
        free(filling->dirs[i]);
    }
    free((void *)filling->dirs);
    cleanup_fd(&filling->view);
    cleanup_fd(&filling->dst);
}

static bool has_parts(int store, const uint64_t *chain, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count && !any; i++) {
        any = parts_any(store, chain[i]);
    }
    return any;
}

int whole_layer(const struct whole_ask *ask, uint64_t top, uint64_t *out,
                struct err *err)
{
    struct filling filling = {
        .ask = ask, .err = err, .top = top, .view = -1, .dst = -1};
    AUTO_FREE uint64_t *chain = NULL;
    size_t count = 0;
    int rc = layers_chain(ask->layers, top, &chain, &count, err);

    if (rc < 0) {
        return rc;
    }
    if (has_parts(layers_dir(ask->layers), chain, count)) {
        if (layers_filled(ask->layers, top, out)) {
            return 0;
        }
        rc = fill_all(&filling, chain, count);
    }
    done(&filling);
    if (rc < 0) {
        layers_unref(ask->layers, filling.layer);
        return rc;
    }
    if (filling.layer) {
        layers_done(ask->layers, filling.layer);
        *out = filling.layer;
        return 0;
    }
    if (!layers_ref(ask->layers, top)) {
        return err_set(err, ESTALE, "a layer of the checkpoint is gone");
    }
    *out = top;
    return 0;
}

/* Profiles: configs by name that the operator wrote, read at the start. */
#include "core/cleanup.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT "default"
#define SUFFIX  ".json"

static void profile_done(struct profile *profile)
{
    config_done(&profile->config);
    free(profile->name);
    free(profile->text);
}

void registry_drop_profiles(struct registry *registry)
{
    for (size_t i = 0; i < registry->profile_count; i++) {
        profile_done(&registry->profiles[i]);
    }
    free(registry->profiles);
}

const struct profile *registry_profile(const struct registry *registry,
                                       const char *name)
{
    for (size_t i = 0; i < registry->profile_count; i++) {
        if (strcmp(registry->profiles[i].name, name) == 0) {
            return &registry->profiles[i];
        }
    }
    return NULL;
}

int registry_look_all(const struct registry *registry, struct buf *lacking,
                      struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < registry->profile_count && rc == 0; i++) {
        const struct profile *profile = &registry->profiles[i];
        struct err why = ERR_INIT;

        if (registry_look(registry, &profile->config, &why) < 0) {
            rc = buf_printf(lacking,
                            "profile '%s' would not make a session: %s\n",
                            profile->name, why.msg);
        }
    }
    return rc < 0 ? err_set(err, -rc, "too many profiles lack something") : 0;
}

/* ---- Files ---- */

static int read_all(int fd, struct buf *out, struct err *err)
{
    char piece[4096];
    ssize_t n;

    do {
        n = read(fd, piece, sizeof(piece));
        if (n < 0) {
            return err_errno(err, "read");
        }
        if (buf_add(out, piece, (size_t)n) < 0) {
            return err_set(err, EFBIG, "it is over %zu bytes", out->cap);
        }
    } while (n > 0);
    return 0;
}

static int read_file(int dir, const char *file, struct buf *out,
                     struct err *err)
{
    AUTO_FD int fd = openat(dir, file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_errno(err, "open");
    }
    return S_ISREG(st.st_mode) ? read_all(fd, out, err)
                               : err_set(err, EINVAL, "it is no regular file");
}

/* What a profile says; one that says nothing is the default. */
static int read_profile(const struct registry *registry, const char *text,
                        size_t size, struct config *out, struct err *err)
{
    const struct profile *fallback = registry_profile(registry, DEFAULT);
    struct js *js = NULL;
    int rc = config_json(text, size, &js, err);

    if (rc < 0) {
        return rc;
    }
    if (!config_is_none(js)) {
        rc = config_read(js, out, err);
    } else if (fallback) {
        rc = config_copy(&fallback->config, out, err);
    } else {
        rc = config_default(registry->provider, out, err);
    }
    js_free(js);
    return rc;
}

/* ---- The list ---- */

/* Adds a profile; takes the config, also on failure. */
static int add(struct registry *registry, const char *name,
               struct config *config, struct err *err)
{
    size_t size = (registry->profile_count + 1) * sizeof(struct profile);
    struct profile made = {.name = strdup(name), .config = *config};
    struct profile *list;
    int rc = made.name ? registry_check(registry, &made.config, NULL, err)
                       : err_no_memory(err);

    if (rc == 0) {
        rc = config_text(&made.config, &made.text, err);
    }
    list = rc == 0 ? realloc(registry->profiles, size) : NULL;
    if (rc == 0 && !list) {
        rc = err_no_memory(err);
    }
    if (rc < 0) {
        profile_done(&made);
        return rc;
    }
    registry->profiles = list;
    registry->profiles[registry->profile_count++] = made;
    return 0;
}

static int add_file(struct registry *registry, int dir, const char *name,
                    const char *file, struct err *err)
{
    struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    struct config config;
    int rc = read_file(dir, file, &text, err);

    if (rc == 0) {
        rc = read_profile(registry, buf_str(&text), text.size, &config, err);
    }
    buf_done(&text);
    return rc < 0 ? rc : add(registry, name, &config, err);
}

/* The name in NAME.json; NULL: another file. */
static char *name_of(const char *file)
{
    size_t size = strlen(file);
    size_t suffix = strlen(SUFFIX);

    if (file[0] == '.' || size <= suffix ||
        strcmp(file + size - suffix, SUFFIX) != 0) {
        return NULL;
    }
    return strndup(file, size - suffix);
}

static int add_entry(struct registry *registry, int dir, const char *file,
                     struct err *err)
{
    AUTO_FREE char *name = name_of(file);

    if (!name || strcmp(name, DEFAULT) == 0) {
        return 0;
    }
    return session_id_valid(name)
               ? add_file(registry, dir, name, file, err)
               : err_set(err, EINVAL,
                         "its name is not one that a session could have");
}

static int add_builtin(struct registry *registry, struct err *err)
{
    struct config config;
    int rc = config_default(registry->provider, &config, err);

    return rc < 0 ? rc : add(registry, DEFAULT, &config, err);
}

/* The default comes first: others may say that they are like it. */
static int add_default(struct registry *registry, int dir, struct err *err)
{
    if (dir < 0 || faccessat(dir, DEFAULT SUFFIX, F_OK, 0) < 0) {
        return add_builtin(registry, err);
    }
    return add_file(registry, dir, DEFAULT, DEFAULT SUFFIX, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct profile *)a)->name,
                  ((const struct profile *)b)->name);
}

static int add_entries(struct registry *registry, const char *path, DIR *dir,
                       struct err *err)
{
    const char *file = DEFAULT SUFFIX;
    int rc = add_default(registry, dirfd(dir), err);

    while (rc == 0 && file) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(dir);
        file = entry ? entry->d_name : NULL;
        if (file) {
            rc = add_entry(registry, dirfd(dir), file, err);
        } else if (errno) {
            rc = err_errno(err, "list the directory");
        }
    }
    return rc < 0 ? err_wrap(err, rc, "profile '%s/%s'", path, file ? file : "")
                  : 0;
}

int registry_read_profiles(struct registry *registry, const char *dir,
                           struct err *err)
{
    DIR *opened = dir ? opendir(dir) : NULL;
    int rc;

    if (dir && !opened) {
        return err_errno(err, "profiles '%s'", dir);
    }
    rc = opened ? add_entries(registry, dir, opened, err)
                : add_builtin(registry, err);
    if (opened) {
        (void)closedir(opened);
    }
    if (rc == 0) {
        qsort(registry->profiles, registry->profile_count,
              sizeof(struct profile), by_name);
    }
    return rc;
}

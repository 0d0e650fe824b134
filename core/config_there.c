/* Whether what a provider_config names is there. See config_check.h. */
#include "core/cleanup.h"
#include "core/config_check.h"
#include "core/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int find_directory(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return -errno;
    }
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int find_program(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) &&
                   faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0
               ? 0
               : -EACCES;
}

/* As execvp() looks for one: what may not be run does not end the search. */
static int search_program(const char *name)
{
    const char *list = getenv("PATH");
    AUTO_FREE char *copy = strdup(list ? list : "/usr/bin:/bin");
    char *left = name[0] ? copy : NULL;
    int rc = copy ? -ENOENT : -ENOMEM;

    for (const char *dir = strsep(&left, ":"); dir && rc != 0 && rc != -ENOMEM;
         dir = strsep(&left, ":")) {
        AUTO_FREE char *path = NULL;
        int found = asprintf(&path, "%s/%s", dir[0] ? dir : ".", name) < 0
                        ? -ENOMEM
                        : find_program(path);

        rc = found == -ENOENT || found == -ENOTDIR ? rc : found;
    }
    return rc;
}

static int look_for(const struct config_key *key, const char *text,
                    struct err *err)
{
    bool searched = key->there == CONFIG_PROGRAM && !strchr(text, '/');
    int rc;

    if (key->there == CONFIG_DIRECTORY) {
        rc = find_directory(text);
    } else if (searched) {
        rc = search_program(text);
    } else if (text[0] != '/') {
        return err_set(err, EINVAL,
                       "provider_config key '%s': '%s' is neither an absolute "
                       "path nor a name",
                       key->name, text);
    } else {
        rc = find_program(text);
    }
    return rc < 0 ? err_set(err, -rc, "provider_config key '%s': '%s'%s: %s",
                            key->name, text, searched ? " in PATH" : "",
                            strerror(-rc))
                  : 0;
}

int config_there(const struct config *config, const struct config_key *keys,
                 struct err *err)
{
    const char *text = config->provider_config;
    struct js *js = NULL;
    int rc = text ? js_parse(text, strlen(text), &js, err) : 0;

    for (; js && rc == 0 && keys && keys->name; keys++) {
        struct js *value =
            keys->there == CONFIG_ANYTHING ? NULL : js_get(js, keys->name);
        size_t size;

        if (value) {
            rc = look_for(keys, js_bytes(value, &size), err);
        }
        js_free(value);
    }
    js_free(js);
    return rc;
}

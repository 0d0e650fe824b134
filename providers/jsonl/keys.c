/* The keys of `jsonl`'s provider_config. See jsonl.h. */
#include "core/cleanup.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "smol-sandbox-"

const struct config_key jsonl_keys[] = {
    {
        .name = "program",
        .type = CONFIG_TEXT,
        .trust = CONFIG_OPERATOR,
        .there = CONFIG_PROGRAM,
        .text = "The program that speaks sandbox.v1: a path, or a name that is "
                "looked for in PATH",
    },
    {
        .name = "argv",
        .type = CONFIG_TEXTS,
        .trust = CONFIG_OPERATOR,
        .fallback = "[\"serve\"]",
        .text = "Its arguments",
    },
    {
        .name = "env",
        .type = CONFIG_TEXTS,
        .trust = CONFIG_OPERATOR,
        .fallback = "[\"PATH\",\"HOME\",\"USER\",\"LANG\",\"TMPDIR\"]",
        .text = "Names of the daemon's environment variables that it gets, and "
                "no others",
    },
    {
        .name = "profile",
        .type = CONFIG_TEXT,
        .trust = CONFIG_OPERATOR,
        .fallback = "\"default\"",
        .text = "Which of its profiles a sandbox is made from",
    },
    {
        .name = "workspace",
        .type = CONFIG_PATH,
        .trust = CONFIG_OPERATOR,
        .there = CONFIG_DIRECTORY,
        .text = "Directory of this machine that it may fill the workspace from",
    },
    {
        .name = "cwd",
        .type = CONFIG_TEXT,
        .trust = CONFIG_OPERATOR,
        .text = "Directory in the sandbox that is the workspace; without it "
                "the program chooses",
    },
    {.name = NULL},
};

/* A list of strings that ends with NULL. */
struct texts {
    char **list;
    size_t n;
    bool variables; /* Each is a name, and "K=V" is wanted. */
};

static int add_text(struct texts *texts, const char *text)
{
    char **wide = realloc(texts->list, (texts->n + 2) * sizeof(*wide));

    if (!wide) {
        return -ENOMEM;
    }
    texts->list = wide;
    wide[texts->n] = strdup(text);
    wide[texts->n + 1] = NULL;
    return wide[texts->n++] ? 0 : -ENOMEM;
}

static int add_variable(struct texts *texts, const char *name)
{
    const char *value = getenv(name);
    struct buf pair = BUF_INIT(1024 * 1024);
    int rc = 0;

    if (value && !strchr(name, '=')) {
        rc = buf_printf(&pair, "%s=%s", name, value);
        rc = rc < 0 ? rc : add_text(texts, buf_str(&pair));
    }
    buf_done(&pair);
    return rc;
}

static int add_item(void *arg, const char *key, const struct js *value,
                    struct err *err)
{
    struct texts *texts = arg;
    size_t size;
    const char *text = js_bytes(value, &size);
    int rc =
        texts->variables ? add_variable(texts, text) : add_text(texts, text);

    (void)key;
    return rc < 0 ? err_set(err, -rc, "out of memory") : 0;
}

static void free_texts(char **list)
{
    for (size_t i = 0; list && list[i]; i++) {
        free(list[i]);
    }
    free(list);
}

/* The key's value, or its fallback. NULL: neither. */
static struct js *value_of(const struct js *config, const char *name)
{
    struct js *value = js_get(config, name);
    struct err ignored = ERR_INIT;

    for (const struct config_key *key = jsonl_keys; !value && key->name;
         key++) {
        if (strcmp(key->name, name) == 0 && key->fallback &&
            js_parse(key->fallback, strlen(key->fallback), &value, &ignored) <
                0) {
            return NULL;
        }
    }
    return value;
}

/* Adds a key's strings. */
static int read_texts(const struct js *config, const char *name,
                      struct texts *texts, struct err *err)
{
    struct js *value = value_of(config, name);
    int rc = 0;

    if (value) {
        rc = js_each(value, add_item, texts, err);
    }
    js_free(value);
    if (rc == 0 && !texts->list) {
        texts->list = calloc(1, sizeof(*texts->list));
        rc = texts->list ? 0 : err_no_memory(err);
    }
    return rc;
}

static int read_text(const struct js *config, const char *name, char **out,
                     struct err *err)
{
    struct js *value = value_of(config, name);
    size_t size;

    if (value) {
        *out = strdup(js_bytes(value, &size));
        js_free(value);
        return *out ? 0 : err_no_memory(err);
    }
    *out = NULL;
    return 0;
}

/* What the program's provider is called: by its file, without the prefix that
 * all such programs have. */
static int name_it(struct program *program, struct err *err)
{
    const char *path = program->argv[0];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) {
        name += strlen(PREFIX);
    }
    program->name = strdup(name);
    return program->name ? 0 : err_no_memory(err);
}

static int read_argv(const struct js *config, struct program *out,
                     struct err *err)
{
    AUTO_FREE char *path = NULL;
    struct texts argv = {.list = NULL};
    int rc = read_text(config, "program", &path, err);

    if (rc == 0 && (!path || !path[0])) {
        rc = err_set(err, EINVAL,
                     "provider_config of 'jsonl' needs a 'program', which a "
                     "profile sets");
    }
    if (rc == 0 && add_text(&argv, path) < 0) {
        rc = err_no_memory(err);
    }
    if (rc == 0) {
        rc = read_texts(config, "argv", &argv, err);
    }
    out->argv = argv.list;
    return rc < 0 ? rc : name_it(out, err);
}

static int read_all(const struct js *config, struct program *out,
                    struct err *err)
{
    struct texts env = {.variables = true};
    int rc = read_argv(config, out, err);

    if (rc == 0) {
        rc = read_texts(config, "env", &env, err);
        out->env = env.list;
    }
    if (rc == 0) {
        rc = read_text(config, "profile", &out->profile, err);
    }
    if (rc == 0) {
        rc = read_text(config, "workspace", &out->workspace, err);
    }
    return rc < 0 ? rc : read_text(config, "cwd", &out->cwd, err);
}

int program_read(const char *config, struct program *out, struct err *err)
{
    struct program program = {.name = NULL};
    struct js *js = NULL;
    int rc = js_parse(config, strlen(config), &js, err);

    if (rc == 0) {
        rc = read_all(js, &program, err);
    }
    js_free(js);
    if (rc < 0) {
        program_done(&program);
        return rc;
    }
    *out = program;
    return 0;
}

void program_done(struct program *program)
{
    free(program->name);
    free_texts(program->argv);
    free_texts(program->env);
    free(program->profile);
    free(program->workspace);
    free(program->cwd);
    *program = (struct program){.name = NULL};
}

static int copy_texts(char ***out, char *const *from)
{
    struct texts copy = {.list = calloc(1, sizeof(*copy.list))};
    int rc = copy.list ? 0 : -ENOMEM;

    for (; rc == 0 && *from; from++) {
        rc = add_text(&copy, *from);
    }
    *out = copy.list;
    return rc;
}

int program_copy(struct program *out, const struct program *from)
{
    struct program copy = {.name = NULL};

    if (copy_texts(&copy.argv, from->argv) < 0 ||
        copy_texts(&copy.env, from->env) < 0) {
        program_done(&copy);
        return -ENOMEM;
    }
    *out = copy;
    return 0;
}

static bool same_texts(char *const *a, char *const *b)
{
    while (*a && *b && strcmp(*a, *b) == 0) {
        a++;
        b++;
    }
    return !*a && !*b;
}

bool program_same(const struct program *a, const struct program *b)
{
    return same_texts(a->argv, b->argv) && same_texts(a->env, b->env);
}

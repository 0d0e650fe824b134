/* A directory and a shell as a provider. See shell_provider.h. */
#include "tests/unit/shell_provider.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/files_over_exec.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct shell_provider *shell_of(struct provider *provider)
{
    return container_of(provider, struct shell_provider, base);
}

int memory_file(const void *data, size_t size)
{
    int fd = memfd_create("script", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static int spawn(const struct shell_provider *shell,
                 const struct provider_script *script, int in, int out)
{
    posix_spawn_file_actions_t actions;
    const char *argv[24] = {"sh", "-c", script->text, "sh"};
    char path[300];
    char *env[] = {path, NULL};
    size_t n = 4;
    int status = 0;
    pid_t pid;

    for (size_t i = 0; script->args[i]; i++) {
        argv[n++] = script->args[i];
    }
    (void)snprintf(path, sizeof(path), "PATH=%s", shell->tools);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, in, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, out, 1);
    (void)posix_spawn_file_actions_addchdir_np(&actions, shell->dir);
    assert_int_equal(posix_spawn(&pid, shell->kind->shell, &actions, NULL,
                                 (char *const *)(uintptr_t)argv, env),
                     0);
    (void)posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int shell_run(struct provider *provider, const struct sandbox *sandbox,
                     const struct provider_script *script,
                     const struct limits *limits, struct buf *out, int *code,
                     struct err *err)
{
    struct shell_provider *shell = shell_of(provider);
    size_t input = shell->cut && shell->cut < script->input_size
                       ? shell->cut
                       : script->input_size;
    AUTO_FD int in = memory_file(script->input ? script->input : "", input);
    AUTO_FD int got = memory_file("", 0);
    char piece[4096];
    size_t size = 0;
    ssize_t n;

    (void)sandbox;
    shell->until_ms = limits->deadline_ms;
    shell->runs++;
    *code = spawn(shell, script, in, got);
    assert_int_equal(lseek(got, 0, SEEK_SET), 0);
    while ((n = read(got, piece, sizeof(piece))) > 0) {
        size += (size_t)n;
        if (size > script->most || buf_add(out, piece, (size_t)n) < 0) {
            return err_set(err, EFBIG, "too much output");
        }
    }
    return 0;
}

static int copy(int from, int to)
{
    char piece[65536];
    ssize_t n = read(from, piece, sizeof(piece));

    while (n > 0) {
        assert_int_equal(write(to, piece, (size_t)n), n);
        n = read(from, piece, sizeof(piece));
    }
    return 0;
}

static int whole_file(struct provider *provider, const char *path, int flags,
                      int fd, struct err *err)
{
    struct shell_provider *shell = shell_of(provider);
    char where[4500];
    AUTO_FD int file = -1;

    shell->files++;
    (void)snprintf(where, sizeof(where), "%s/%s", shell->dir, path);
    if (shell->broken) {
        return err_set(err, shell->broken, "broken");
    }
    file = open(where, flags | O_CLOEXEC, 0600);
    if (file < 0) {
        return err_set(err, EIO, "it cannot say why");
    }
    return flags == O_RDONLY ? copy(file, fd) : copy(fd, file);
}

static int shell_read_file(struct provider *provider,
                           const struct sandbox *sandbox, const char *path,
                           int fd, const struct limits *limits, struct err *err)
{
    (void)sandbox;
    (void)limits;
    return whole_file(provider, path, O_RDONLY, fd, err);
}

static int shell_write_file(struct provider *provider,
                            const struct sandbox *sandbox, const char *path,
                            int fd, const struct limits *limits,
                            struct err *err)
{
    (void)sandbox;
    (void)limits;
    return whole_file(provider, path, O_WRONLY | O_CREAT | O_TRUNC, fd, err);
}

static const struct provider_ops shell_ops = {
    .name = "shell",
    .files = &files_over_exec,
    .run = shell_run,
    .read_file = shell_read_file,
    .write_file = shell_write_file,
};

/* A directory of links that makes one program all tools. */
static void make_tools(struct shell_provider *shell)
{
    static const char *const names[] = {
        "cat",  "chmod", "chown", "date", "dd",    "df",       "find",
        "head", "id",    "ln",    "ls",   "mkdir", "mv",       "readlink",
        "rm",   "rmdir", "stat",  "tail", "touch", "truncate", "xargs"};
    char have[8192];
    char command[300];
    FILE *list;
    size_t n;

    scratch_make(shell->tools, sizeof(shell->tools));
    (void)snprintf(command, sizeof(command), "%s | tr '\\n\\t,' '   '",
                   shell->kind->tools);
    list = popen(command, "r");
    assert_non_null(list);
    have[0] = ' ';
    n = fread(have + 1, 1, sizeof(have) - 3, list);
    have[n + 1] = ' ';
    have[n + 2] = '\0';
    (void)pclose(list);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char word[40];
        char where[300];

        (void)snprintf(word, sizeof(word), " %s ", names[i]);
        (void)snprintf(where, sizeof(where), "%s/%s", shell->tools, names[i]);
        if (strstr(have, word)) {
            assert_int_equal(symlink(shell->kind->tools, where), 0);
        }
    }
}

static void init(struct shell_provider *shell, const struct shell_kind *kind)
{
    struct err err = ERR_INIT;

    memset(shell, 0, sizeof(*shell));
    shell->kind = kind;
    shell->base.ops = &shell_ops;
    scratch_make(shell->dir, sizeof(shell->dir));
    if (kind->tools) {
        make_tools(shell);
    } else {
        (void)snprintf(shell->tools, sizeof(shell->tools), "/usr/bin:/bin");
    }
    assert_int_equal(cancel_init(&shell->never, &err), 0);
    shell->limits.cancel = &shell->never;
    shell->limits.deadline_ms = INT64_MAX;
    shell->sandbox.number = 1;
    shell->sandbox.instance = &shell->instance;
}

static const struct shell_kind kinds[] = {
    {"dash", "/bin/dash", NULL},
    {"bash", "/bin/bash", NULL},
    {"busybox", "/bin/busybox", "/bin/busybox"},
    {"toybox", "/bin/dash", "/usr/bin/toybox"},
};

/* The present one; behind the last: none. */
static const struct shell_kind *kind;

bool shell_next_kind(void)
{
    kind = kind ? kind + 1 : kinds;
    return kind < kinds + ARRAY_SIZE(kinds);
}

int shell_setup(void **state)
{
    struct shell_provider *shell = malloc(sizeof(*shell));

    assert_non_null(shell);
    init(shell, kind);
    *state = shell;
    return 0;
}

int shell_teardown(void **state)
{
    struct shell_provider *shell = *state;

    scratch_remove(shell->dir);
    if (shell->kind->tools) {
        scratch_remove(shell->tools);
    }
    cancel_done(&shell->never);
    free(shell);
    return 0;
}

char *host(struct shell_provider *sh, const char *path)
{
    static char out[4500];

    (void)snprintf(out, sizeof(out), "%s/%s", sh->dir, path);
    return out;
}

void put_text(struct shell_provider *sh, const char *path, const char *text)
{
    FILE *file = fopen(host(sh, path), "w");

    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

void expect_text(struct shell_provider *sh, const char *path, const char *text)
{
    char found[256] = "";
    AUTO_FD int fd = open(host(sh, path), O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof(found) - 1) >= 0);
    assert_string_equal(found, text);
}

void same_attributes(const struct stat *a, const struct stat *b)
{
    assert_int_equal(a->st_mode, b->st_mode);
    assert_int_equal(a->st_size, b->st_size);
    assert_int_equal(a->st_ino, b->st_ino);
    assert_int_equal(a->st_nlink, b->st_nlink);
    assert_int_equal(a->st_uid, b->st_uid);
    assert_int_equal(a->st_gid, b->st_gid);
    assert_int_equal(a->st_blocks, b->st_blocks);
    assert_int_equal(a->st_mtim.tv_sec, b->st_mtim.tv_sec);
    assert_int_equal(a->st_mtim.tv_nsec, b->st_mtim.tv_nsec);
    assert_int_equal(a->st_ctim.tv_nsec, b->st_ctim.tv_nsec);
}

int put(struct shell_provider *sh, const char *path, const char *data,
        size_t size, struct provider_put *put)
{
    AUTO_FD int fd = memory_file(data, size);
    struct err err = ERR_INIT;
    struct stat now, real;
    int rc;

    put->fd = fd;
    put->half = ".half";
    rc = files_over_exec.put(&sh->base, &sh->sandbox, path, put, &sh->limits,
                             &now, &err);
    if (rc == 0) {
        assert_int_equal(lstat(host(sh, path), &real), 0);
        same_attributes(&now, &real);
    }
    return rc;
}

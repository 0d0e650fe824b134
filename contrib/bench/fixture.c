/*
 * What the rows start from. All of it is made here, the same in each run, so
 * that nothing has to be fetched. See bench.h.
 */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NAME = 64,
    DIR_FILES = 20,
    WORDS_LEAST = 40,
    WORDS_MORE = 1400,
    LINE_WORDS = 12,
    FUNCTIONS = 60, /* In a C file. */
};

unsigned random_next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

/* ---- Programs ---- */

static int log_fd = STDERR_FILENO;

int fixture_log(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (fd < 0) {
        return -errno;
    }
    log_fd = fd;
    return 0;
}

int spawn(char *const argv[])
{
    posix_spawn_file_actions_t actions;
    int status = 0;
    pid_t pid;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
                                              "/dev/null", O_WRONLY, 0);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&actions, log_fd, STDERR_FILENO);
    }
    if (rc == 0) {
        rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        return -rc;
    }
    if (waitpid(pid, &status, 0) < 0) {
        return -errno;
    }
    return status == 0 ? 0 : -ECHILD;
}

const char *why(int rc)
{
    return rc == -ECHILD ? "a program failed" : strerror(-rc);
}

int shell(const char *command)
{
    AUTO_FREE char *script = strdup(command);
    char name[] = "sh";
    char option[] = "-c";
    char *const argv[] = {name, option, script, NULL};

    return script ? spawn(argv) : -ENOMEM;
}

/* ---- Files ---- */

static int make_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int rc;

    if (fd < 0) {
        return -errno;
    }
    rc = write(fd, data, size) == (ssize_t)size ? 0 : -EIO;
    return close(fd) < 0 ? -errno : rc;
}

int make_files(const char *dir, char prefix, unsigned count)
{
    static char text[TEXT];
    int rc = 0;

    memset(text, 'x', sizeof(text));
    for (unsigned i = 0; i < count && rc == 0; i++) {
        char name[NAME];

        (void)snprintf(name, sizeof(name), "%s/%c%u", dir, prefix, i);
        rc = make_file(name, text, sizeof(text));
    }
    return rc;
}

int fixture_settle(const struct scale *scale)
{
    if (scale->settles) {
        sync();
    }
    return 0;
}

/* ---- The sources ---- */

static void write_words(FILE *file, unsigned *seed)
{
    unsigned count = WORDS_LEAST + random_next(seed) % WORDS_MORE;

    for (unsigned i = 1; i <= count; i++) {
        (void)fprintf(file, "%x%c", random_next(seed) & 0xfffff,
                      i % LINE_WORDS ? ' ' : '\n');
    }
}

/* Something that a compiler has to think about. */
static void write_unit(FILE *file, unsigned unit)
{
    (void)fprintf(file, "#include <stdio.h>\n#include <stdlib.h>\n"
                        "#include <string.h>\n");
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        (void)fprintf(file,
                      "int f%u_%u(int n)\n{\n    int s = %u;\n\n"
                      "    for (int i = 0; i < n; i++) {\n"
                      "        s = s * 31 + (i ^ (s >> %u));\n    }\n"
                      "    return s;\n}\n",
                      unit, i, i, i % 7 + 1);
    }
}

static void write_makefile(FILE *file)
{
    (void)fprintf(file, "units := $(wildcard u*.c)\n"
                        "all: $(units:.c=.o)\n"
                        "%%.o: %%.c\n\t$(CC) -O1 -c -o $@ $<\n"
                        "clean:\n\trm -f *.o\n");
}

static int close_file(FILE *file)
{
    bool bad = ferror(file) != 0;

    return fclose(file) != 0 || bad ? -EIO : 0;
}

static int make_texts(const struct scale *scale)
{
    unsigned seed = 3;

    for (unsigned i = 0; i < scale->dirs * DIR_FILES; i++) {
        char name[NAME];
        FILE *file;

        (void)snprintf(name, sizeof(name), "tree/d%u", i / DIR_FILES);
        if (mkdir(name, 0755) < 0 && errno != EEXIST) {
            return -errno;
        }
        (void)snprintf(name, sizeof(name), "tree/d%u/f%u.txt", i / DIR_FILES,
                       i % DIR_FILES);
        file = fopen(name, "we");
        if (!file) {
            return -errno;
        }
        write_words(file, &seed);
        if (close_file(file) < 0) {
            return -EIO;
        }
    }
    return 0;
}

static int make_project(const struct scale *scale)
{
    FILE *file = fopen("project/Makefile", "we");
    int rc = file ? 0 : -errno;

    if (file) {
        write_makefile(file);
        rc = close_file(file);
    }
    for (unsigned i = 0; i < scale->units && rc == 0; i++) {
        char name[NAME];

        (void)snprintf(name, sizeof(name), "project/u%u.c", i);
        file = fopen(name, "we");
        if (!file) {
            return -errno;
        }
        write_unit(file, i);
        rc = close_file(file);
    }
    return rc;
}

int fixture_sources(const char *dir, const struct scale *scale)
{
    int rc;

    if (chdir(dir) < 0 || mkdir("tree", 0755) < 0 ||
        mkdir("project", 0755) < 0) {
        return -errno;
    }
    rc = make_texts(scale);
    if (rc == 0) {
        rc = make_project(scale);
    }
    if (rc == 0) {
        rc = shell("tar -cf tree.tar tree && tar -cf project.tar project &&"
                   " git init -q tree && git -C tree add . &&"
                   " git -C tree commit -q -m first &&"
                   " git clone -q --bare tree repo.git");
    }
    return rc;
}

/* ---- In a target ---- */

static int make_data(const struct scale *scale)
{
    static char piece[PIECE];
    int fd = open("data", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int rc = fd < 0 ? -errno : 0;

    memset(piece, 'd', sizeof(piece));
    for (unsigned i = 0; i < scale->pieces && rc == 0; i++) {
        rc = write(fd, piece, sizeof(piece)) == PIECE ? 0 : -EIO;
    }
    return fd >= 0 && close(fd) < 0 ? -errno : rc;
}

int fixture_make(const struct scale *scale)
{
    int rc = make_data(scale);

    if (rc == 0) {
        rc = mkdir("flat", 0755) < 0 ? -errno
                                     : make_files("flat", 'f', scale->files);
    }
    /* A clone dates its files to now, and git looks again at what is as young
     * as its index: hence the second that goes by before it is written. */
    return rc < 0 ? rc
                  : shell("tar -xf \"$SOURCES/tree.tar\" &&"
                          " tar -xf \"$SOURCES/project.tar\" &&"
                          " git clone -q \"$SOURCES/repo.git\" repo &&"
                          " git -C repo tag first && sleep 1.1 &&"
                          " git -C repo update-index --refresh");
}

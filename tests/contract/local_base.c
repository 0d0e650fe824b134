/* Workspaces of `local` over a directory of this machine. Some need root. */
#include "tests/contract/local_base.h"

#include "core/clock.h"
#include "tests/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CALL_MS = 60000,
};

/* attr FILE NAME VALUE: sets an attribute; not every machine has a command for
 * that. */
#define ATTR                                                                   \
    "attr() { python3 -c 'import os, sys; "                                    \
    "os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())' "            \
    "\"$@\" 2>/dev/null; }; "

void base_make(struct bench *bench, struct base *base, const char *script)
{
    (void)snprintf(base->dir, sizeof(base->dir), "%.200s/base", bench->dir);
    assert_int_equal(mkdir(base->dir, 0755), 0);
    (void)snprintf(base->config, sizeof(base->config), "{\"base\": \"%s\"}",
                   base->dir);
    base_sh(base, script);
}

void base_sh(const struct base *base, const char *script)
{
    char command[4096];

    (void)snprintf(command, sizeof(command), "umask 022; cd '%s' || exit; %s",
                   base->dir, script);
    assert_int_equal(system(command), 0);
}

/* All that can be seen of a tree from outside. */
static const char look[] =
    "find . -printf '%p %y %m %U %G %n %i %s %T@ %C@ %l\\n' | sort; "
    "find . -type f -print0 | sort -z | xargs -0r sha256sum; "
    "python3 -c \"import os\n"
    "for n in sorted(os.listdir('.')):\n"
    " print(n, os.listxattr(n, follow_symlinks=False))\"";

static char *read_tree(const struct base *base)
{
    struct buf buf = BUF_INIT(8 << 20);
    char command[1024];
    char data[4096];
    FILE *pipe;
    size_t n;

    (void)snprintf(command, sizeof(command), "cd '%s' && { %s; }", base->dir,
                   look);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    n = fread(data, 1, sizeof(data), pipe);
    while (n > 0) {
        assert_int_equal(buf_add(&buf, data, n), 0);
        n = fread(data, 1, sizeof(data), pipe);
    }
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(buf.data);
    return buf.data;
}

void base_create(struct bench *bench, struct bench_box *box,
                 const struct base *base)
{
    struct err err = ERR_INIT;

    bench_name(bench, box);
    box->sandbox.config = base->config;
    bench->limits.deadline_ms = clock_deadline(CALL_MS);
    if (provider_create(bench->provider, &box->sandbox, &bench->limits, &err) <
        0) {
        print_error("%s\n", err.msg);
        fail();
    }
}

void base_remove(const struct base *base)
{
    char command[BENCH_PATH + 16];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", base->dir);
    assert_int_equal(system(command), 0);
}

static int add_change(void *arg, char kind, const char *path)
{
    return buf_printf(arg, "%c %s\n", kind, path);
}

void base_changes(struct bench *bench, struct bench_box *box,
                  const char *expect)
{
    static const struct provider_span span = {.from = 0, .to = 0};
    struct buf text = BUF_INIT(8 << 20);
    struct err err = ERR_INIT;
    int rc = provider_changes(bench->provider, &box->sandbox, &span,
                              &bench->limits, add_change, &text, &err);

    if (rc < 0) {
        print_error("%s\n", err.msg);
    }
    assert_int_equal(rc, 0);
    assert_string_equal(buf_str(&text), expect);
    buf_done(&text);
}

static const char files[] = ATTR
    "echo secret >own && chmod 600 own && mkdir -p d/e && echo deep >d/e/f && "
    "echo theirs >theirs && chown 33:33 theirs && chmod 644 theirs && "
    "echo far >far && chown 200000:200000 far && chmod 644 far && "
    "ln -s d/e/f link && ln own hard && mkfifo pipe && "
    "attr own user.note x && "
    "printf '#!/bin/sh\\necho run\\n' >run && chmod 4755 run";

static void its_files_are_there_as_the_sandboxs_own(void **state)
{
    struct bench *bench = *state;
    struct base base;
    struct bench_box box;

    base_make(bench, &base, files);
    base_create(bench, &box, &base);
    assert_int_equal(bench_sh(bench, &box,
                              "cat own link; ./run; stat -c '%u "
                              "%g' . own theirs far",
                              "secret\ndeep\nrun\n1000 1000\n1000 1000\n"
                              "33 33\n65534 65534\n"),
                     0);
    assert_int_equal(bench_sh(bench, &box,
                              "echo more >>own && echo x >d/e/f && chmod 640 "
                              "own && cat theirs far && stat -c '%u %a' own",
                              "theirs\nfar\n1000 640\n"),
                     0);
    /* Those of others are as on any machine. */
    assert_int_not_equal(
        bench_sh(bench, &box, "echo x >>theirs 2>/dev/null", NULL), 0);
    assert_int_equal(bench_sh(bench, &box, "rm -f theirs && ls",
                              "d\nfar\nhard\nlink\nown\npipe\nrun\n"),
                     0);
    bench_destroy(bench, &box);
    base_remove(&base);
}

static void whoever_owns_it_it_is_the_sandboxs_own(void **state)
{
    static const char *const owners[] = {"0:0", "1000:1000", "33:4711",
                                         "65535:1", "200000:300000"};
    struct bench *bench = *state;

    for (size_t i = 0; i < sizeof(owners) / sizeof(*owners); i++) {
        struct base base;
        struct bench_box box;
        char script[256];

        (void)snprintf(script, sizeof(script),
                       "mkdir d && echo a >d/f && chmod -R go= . && "
                       "chown -R %s .",
                       owners[i]);
        base_make(bench, &base, script);
        base_create(bench, &box, &base);
        assert_int_equal(bench_sh(bench, &box,
                                  "echo b >>d/f && cat d/f && mv d e && stat "
                                  "-c '%u %g' e e/f",
                                  "a\nb\n1000 1000\n1000 1000\n"),
                         0);
        bench_destroy(bench, &box);
        base_remove(&base);
    }
}

/* What could reach a lower layer, from inside. */
static const char hostile[] = ATTR
    "rm -rf d; echo x >own; truncate -s 5 hard; chmod 777 own run; "
    "ln own more; mv link elsewhere; mkdir d; ln -s /etc d/e; "
    "attr own user.note y; touch -d 2001-01-01 own pipe .; "
    "rm -f pipe; mknod pipe c 0 0; mknod pipe c 1 3; "
    "attr d trusted.overlay.opaque y; attr d user.overlay.redirect /../..; "
    "mv run d/run; rm -f theirs; exec 9<>own; echo y >&9; chmod 0 .; "
    "python3 -c \"import mmap\nf=open('own','r+b')\n"
    "m=mmap.mmap(f.fileno(),0)\nm[0]=66\" 2>/dev/null; "
    "chmod 755 .; mount -t tmpfs none d 2>/dev/null; true";

static void a_hostile_session_changes_nothing_of_it(void **state)
{
    struct bench *bench = *state;
    AUTO_FREE char *before = NULL;
    AUTO_FREE char *after = NULL;
    struct provider_root root;
    struct base base;
    struct bench_box box;
    struct err err = ERR_INIT;

    base_make(bench, &base, files);
    before = read_tree(&base);
    base_create(bench, &box, &base);
    assert_int_equal(bench_sh(bench, &box, hostile, NULL), 0);
    /* The other way in. */
    assert_int_equal(provider_root(bench->provider, &box.sandbox, &root, &err),
                     0);
    assert_int_equal(fchmodat(root.fd, "hard", 0777, 0), 0);
    assert_int_equal(fchownat(root.fd, "own", 0, 0, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(renameat(root.fd, "hard", root.fd, "harder"), 0);
    assert_int_equal(unlinkat(root.fd, "elsewhere", 0), 0);
    (void)close(root.fd);
    after = read_tree(&base);
    assert_string_equal(after, before);
    bench_destroy(bench, &box);
    free(after);
    after = read_tree(&base);
    assert_string_equal(after, before);
    base_remove(&base);
}

static void no_file_of_a_layer_can_be_forged(void **state)
{
    struct bench *bench = *state;
    struct base base;
    struct bench_box box;

    base_make(bench, &base, "echo 1 >f && mkdir d && echo 2 >d/g");
    base_create(bench, &box, &base);
    assert_int_not_equal(
        bench_sh(bench, &box, "mknod w c 0 0 2>/dev/null", NULL), 0);
    assert_int_not_equal(
        bench_sh(bench, &box, ATTR "attr d trusted.overlay.opaque y", NULL), 0);
    assert_int_equal(
        bench_sh(bench, &box,
                 "python3 -c \"import os; print(os.listxattr('d'))\"; cat d/g; "
                 "grep -c ' /workspace "
                 "overlay .*nosuid,nodev' /proc/self/mounts",
                 "[]\n2\n1\n"),
        0);
    /* Paths of this machine are not told. */
    assert_int_not_equal(bench_sh(bench, &box,
                                  "grep ' /workspace ' /proc/self/mounts "
                                  "/proc/self/mountinfo | grep base",
                                  NULL),
                         0);
    bench_destroy(bench, &box);
    base_remove(&base);
}

/* Of a path below the root; also whether listing agrees with stat. */
static ino_t ino_of(int root, const char *name, dev_t *dev)
{
    struct stat st;

    assert_int_equal(fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    *dev = st.st_dev;
    return st.st_ino;
}

static void a_copy_up_changes_no_inode_number(void **state)
{
    static const char *const names[] = {"own",   "d",    "d/e",
                                        "d/e/f", "link", "theirs"};
    struct bench *bench = *state;
    struct provider_root root;
    struct base base;
    struct bench_box box;
    struct err err = ERR_INIT;
    ino_t inos[6];
    dev_t devs[6];
    char text[64];
    int fd;

    base_make(bench, &base, files);
    base_create(bench, &box, &base);
    assert_int_equal(provider_root(bench->provider, &box.sandbox, &root, &err),
                     0);
    for (size_t i = 0; i < 6; i++) {
        inos[i] = ino_of(root.fd, names[i], &devs[i]);
    }
    fd = openat(root.fd, "run", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(bench_sh(bench, &box,
                              "echo new >run; chmod 700 d d/e; echo >d/e/f; "
                              "touch -h link; stat -c %i run >ino",
                              ""),
                     0);
    for (size_t i = 0; i < 6; i++) {
        dev_t dev;

        assert_int_equal(ino_of(root.fd, names[i], &dev), inos[i]);
        assert_int_equal(dev, devs[i]);
    }
    /* Who has it open for reading does not keep the old content. */
    memset(text, 0, sizeof(text));
    assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 4);
    assert_string_equal(text, "new\n");
    (void)close(fd);
    (void)close(root.fd);
    bench_destroy(bench, &box);
    base_remove(&base);
}

static void it_is_there_again_after_a_restart(void **state)
{
    struct bench *bench = *state;
    struct provider_root root;
    struct base base;
    struct bench_box box;
    struct err err = ERR_INIT;
    dev_t dev;

    base_make(bench, &base, "mkdir -p d/e && echo deep >d/e/f && echo x >own");
    base_create(bench, &box, &base);
    assert_int_equal(bench_sh(bench, &box,
                              "mv d moved; rm own; echo new >new; "
                              "rm -rf x; mkdir x",
                              ""),
                     0);
    bench_reopen(bench);
    assert_int_equal(bench_status(bench, &box), PROVIDER_PAUSED);
    assert_int_equal(provider_root(bench->provider, &box.sandbox, &root, &err),
                     0);
    (void)ino_of(root.fd, "moved/e/f", &dev);
    assert_int_equal(faccessat(root.fd, "own", F_OK, 0), -1);
    (void)close(root.fd);
    assert_int_equal(
        provider_resume(bench->provider, &box.sandbox, &bench->limits, &err),
        0);
    assert_int_equal(bench_sh(bench, &box, "cat moved/e/f new", "deep\nnew\n"),
                     0);
    bench_destroy(bench, &box);
    base_remove(&base);
}

static void a_bad_base_is_refused_with_its_name(void **state)
{
    static const struct {
        const char *name;
        int code;
    } cases[] = {
        {"file", ENOTDIR}, {"missing", ENOENT},     {"link", ELOOP},
        {"fifo", ENOTDIR}, {"link/../link", ELOOP}, {"file/x", ENOTDIR},
        {"", 0},
    };
    struct bench *bench = *state;
    struct base base;

    base_make(bench, &base,
              "mkdir d && ln -s d link && echo >file && "
              "mkfifo fifo");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct base bad;
        struct bench_box box;
        struct err err = ERR_INIT;

        (void)snprintf(bad.config, sizeof(bad.config), "{\"base\": \"%s/%s\"}",
                       base.dir, cases[i].name);
        bench_name(bench, &box);
        box.sandbox.config = bad.config;
        assert_int_equal(provider_create(bench->provider, &box.sandbox,
                                         &bench->limits, &err),
                         -cases[i].code);
        if (cases[i].code) {
            assert_non_null(strstr(err.msg, "base '"));
            assert_non_null(strstr(err.msg, cases[i].name));
        }
        bench_destroy(bench, &box);
    }
    base_remove(&base);
}

/* Not root: nothing else can be mapped. */
static void what_is_the_users_is_the_sandboxs_own(void **state)
{
    struct bench *bench = *state;
    AUTO_FREE char *before = NULL;
    AUTO_FREE char *after = NULL;
    struct base base;
    struct bench_box box;

    base_make(bench, &base,
              "echo secret >own && chmod 600 own && mkdir d && "
              "echo f >d/f && ln own more && ln -s /etc/passwd p");
    before = read_tree(&base);
    base_create(bench, &box, &base);
    assert_int_equal(bench_sh(bench, &box,
                              "cat own; stat -c '%u %g' . own d/f; "
                              "echo x >>own; rm -r d; mkdir d; mv own d/own; "
                              "chmod 777 d; cat d/own",
                              "secret\n1000 1000\n1000 1000\n1000 1000\n"
                              "secret\nx\n"),
                     0);
    base_changes(bench, &box, "M d\nD d/f\nA d/own\nD own\n");
    after = read_tree(&base);
    assert_string_equal(after, before);
    bench_destroy(bench, &box);
    base_remove(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_files_are_there_as_the_sandboxs_own),
        cmocka_unit_test(whoever_owns_it_it_is_the_sandboxs_own),
        cmocka_unit_test(a_hostile_session_changes_nothing_of_it),
        cmocka_unit_test(no_file_of_a_layer_can_be_forged),
        cmocka_unit_test(a_copy_up_changes_no_inode_number),
        cmocka_unit_test(it_is_there_again_after_a_restart),
        cmocka_unit_test(a_bad_base_is_refused_with_its_name),
    };
    const struct CMUnitTest users[] = {
        cmocka_unit_test(what_is_the_users_is_the_sandboxs_own),
        cmocka_unit_test(it_is_there_again_after_a_restart),
        cmocka_unit_test(a_bad_base_is_refused_with_its_name),
    };
    int failed;

    bench_use("local");
    if (geteuid() != 0) {
        failed = cmocka_run_group_tests_name("base", users, bench_group_setup,
                                             bench_group_teardown);
        return failed + suite_base_changes() + suite_base_rootfs() ? 1 : 0;
    }
    failed = cmocka_run_group_tests_name("base", tests, bench_group_setup,
                                         bench_group_teardown);
    failed += suite_base_changes();
    failed += suite_base_places();
    return failed + suite_base_rootfs() ? 1 : 0;
}

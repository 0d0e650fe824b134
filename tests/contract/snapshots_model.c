/*
 * A session with checkpoints. See snapshots_model.h.
 *
 * Names of one file stay in one directory: where a directory of a layer is
 * moved, what was linked out of it is no link any more.
 */
#include "tests/contract/snapshots_model.h"

#include "tests/cmocka.h"
#include "tests/contract/same_tree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char model_changes[] =
    "import os, random, sys, mmap, shutil\n"
    "r = random.Random(int(sys.argv[1]))\n"
    "def dirs():\n"
    "    return [d for d, _, _ in os.walk('.')]\n"
    "def files():\n"
    "    return [os.path.join(d, f) for d, _, fs in os.walk('.') for f in fs]\n"
    "def regular():\n"
    "    return [f for f in files()\n"
    "            if os.path.isfile(f) and not os.path.islink(f)]\n"
    "def near(d):\n"
    "    p = os.path.join(d, 'n%d' % r.randrange(30))\n"
    "    if os.path.exists(p) and not os.path.isfile(p): raise ValueError\n"
    "    return p\n"
    "def new(): return near(r.choice(dirs()))\n"
    "def data():\n"
    "    return r.getrandbits(80).to_bytes(10, 'big') * r.choice(\n"
    "        [0, 1, 500, 7000])\n"
    "def create():\n"
    "    with open(new(), 'wb') as f: f.write(data())\n"
    "def append():\n"
    "    with open(r.choice(regular()), 'ab') as f: f.write(data())\n"
    "def truncate():\n"
    "    os.truncate(r.choice(regular()), r.choice([0, 1, 4096, 100000]))\n"
    "def store():\n"
    "    p = r.choice(regular())\n"
    "    with open(p, 'r+b') as f:\n"
    "        n = os.fstat(f.fileno()).st_size\n"
    "        with mmap.mmap(f.fileno(), n) as m: m[r.randrange(n)] = 65\n"
    "def sparse():\n"
    "    with open(new(), 'wb') as f:\n"
    "        f.seek(r.randrange(1 << 22)); f.write(data())\n"
    "def rename():\n"
    "    p = r.choice(files() + dirs()[1:])\n"
    "    here = not os.path.isdir(p) and os.lstat(p).st_nlink > 1\n"
    "    os.rename(p, near(os.path.dirname(p)) if here else new())\n"
    "def over():\n"
    "    p = r.choice(files())\n"
    "    if os.lstat(p).st_nlink == 1: os.rename(p, r.choice(files()))\n"
    "def link():\n"
    "    p = r.choice(regular()); os.link(p, near(os.path.dirname(p)))\n"
    "def symlink(): os.symlink('t' * r.choice([3, 100]), new())\n"
    "def fifo(): os.mkfifo(new())\n"
    "def mkdir(): os.mkdir(new())\n"
    "def again():\n"
    "    d = r.choice(dirs()[1:]); shutil.rmtree(d); os.mkdir(d)\n"
    "    with open(d + '/n1', 'w') as f: f.write('again')\n"
    "def swap():\n"
    "    d = r.choice(dirs()[1:]); shutil.rmtree(d)\n"
    "    with open(d, 'w') as f: f.write('swapped')\n"
    "def into():\n"
    "    f = r.choice(files()); os.unlink(f); os.mkdir(f)\n"
    "def chmod(): os.chmod(r.choice(files()), r.choice([0o600, 0o755, "
    "0o444]))\n"
    "def chmod_dir(): os.chmod(r.choice(dirs()), r.choice([0o700, 0o2755]))\n"
    "def xattr():\n"
    "    os.setxattr(r.choice(regular() + dirs()), 'user.k', data()[:20])\n"
    "def unxattr(): os.removexattr(r.choice(regular() + dirs()), 'user.k')\n"
    "def utime(): os.utime(r.choice(files()), (1, r.randrange(1 << 30)))\n"
    "def unlink(): os.unlink(r.choice(files()))\n"
    "def rmtree(): shutil.rmtree(r.choice(dirs()[1:]))\n"
    "ops = [create] * 6 + [append, truncate, store, sparse] * 2 + [\n"
    "    rename, rename, rename, over, link, link, symlink, fifo, mkdir,\n"
    "    mkdir, mkdir, again, swap, into, chmod, chmod_dir, xattr, xattr,\n"
    "    unxattr, utime, unlink, unlink, rmtree]\n"
    "if sys.argv[3] == '1': ops = [o for o in ops if o is not link]\n"
    "for _ in range(int(sys.argv[2])):\n"
    "    try: r.choice(ops)()\n"
    "    except (OSError, IndexError, ValueError, shutil.Error): pass\n";

static void check(int rc, const struct err *err)
{
    if (rc < 0) {
        print_error("%s\n", err->msg);
    }
    assert_true(rc >= 0);
}

bool model_still;

void model_make(struct bench *bench, struct model *model)
{
    memset(model, 0, sizeof(*model));
    model->bench = bench;
    bench_create(bench, &model->box);
    (void)snprintf(model->copies, sizeof(model->copies),
                   "%.200s/copies.%" PRIu64, bench->dir,
                   model->box.sandbox.number);
    assert_int_equal(mkdir(model->copies, 0700), 0);
}

void model_end(struct model *model)
{
    bench_destroy(model->bench, &model->box);
}

void model_change(struct model *model, unsigned seed, unsigned count)
{
    char script[sizeof(model_changes) + 128];

    (void)snprintf(script, sizeof(script),
                   "python3 - %u %u %d <<'END'\n%sEND\n", seed, count,
                   model_still, model_changes);
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
}

int model_root(struct model *model, char *out)
{
    struct provider_root root;
    struct err err = ERR_INIT;

    check(
        provider_root(model->bench->provider, &model->box.sandbox, &root, &err),
        &err);
    (void)snprintf(out, BENCH_PATH, "/proc/self/fd/%d", root.fd);
    return root.fd;
}

struct snapshot_made model_take_only(struct model *model, uint64_t key,
                                     const char *const *writing)
{
    const struct snapshot_ask ask = {
        .key = key, .writing = writing, .still = model_still};
    struct snapshot_made made;
    struct err err = ERR_INIT;

    check(provider_snapshot_take(model->bench->provider, &model->box.sandbox,
                                 &ask, bench_limits(model->bench), &made, &err),
          &err);
    return made;
}

void model_take(struct model *model, uint64_t key)
{
    (void)model_take_only(model, key, NULL);
    model_copy(model, key);
}

void model_copy(struct model *model, uint64_t key)
{
    char command[2 * BENCH_PATH + 64];
    char root[BENCH_PATH];
    int fd = model_root(model, root);

    (void)snprintf(command, sizeof(command),
                   "mkdir %s/%" PRIu64 " && cp -a /proc/%d/fd/%d/. %s/%" PRIu64,
                   model->copies, key, (int)getpid(), fd, model->copies, key);
    assert_int_equal(system(command), 0);
    (void)close(fd);
}

static bool compare(struct model *model, const struct provider_root *root,
                    uint64_t key, const char *what)
{
    char ours[BENCH_PATH];
    char copy[BENCH_PATH + 32];
    bool same;

    (void)snprintf(ours, sizeof(ours), "/proc/self/fd/%d", root->fd);
    (void)snprintf(copy, sizeof(copy), "%s/%" PRIu64, model->copies, key);
    same = same_tree(ours, copy, what, root);
    (void)close(root->fd);
    return same;
}

void model_check(struct model *model, uint64_t key)
{
    struct provider_root root;
    struct err err = ERR_INIT;
    char what[64];

    check(provider_snapshot_open(model->bench->provider, &model->box.sandbox,
                                 key, bench_limits(model->bench), &root, &err),
          &err);
    (void)snprintf(what, sizeof(what), "checkpoint %" PRIu64, key);
    assert_true(compare(model, &root, key, what));
}

void model_check_now(struct model *model, uint64_t key)
{
    char path[BENCH_PATH];
    const struct provider_root root = {.fd = model_root(model, path)};

    assert_true(compare(model, &root, key, "workspace"));
}

bool model_is_now(struct model *model, uint64_t key)
{
    char path[BENCH_PATH];
    const struct provider_root root = {.fd = model_root(model, path)};

    return compare(model, &root, key, NULL);
}

static int write_change(void *arg, char kind, const char *path)
{
    (void)fprintf(arg, "%c %s", kind, path);
    (void)fputc('\0', arg);
    return 0;
}

void model_check_changes(struct model *model, uint64_t from, uint64_t to,
                         uint64_t same)
{
    const struct provider_span span = {.from = from, .to = to};
    char name[BENCH_PATH + 32];
    char command[4 * BENCH_PATH];
    struct err err = ERR_INIT;
    FILE *file;

    (void)snprintf(name, sizeof(name), "%s/told", model->copies);
    file = fopen(name, "we");
    assert_non_null(file);
    check(provider_changes(model->bench->provider, &model->box.sandbox, &span,
                           bench_limits(model->bench), write_change, file,
                           &err),
          &err);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(command, sizeof(command),
                   "python3 \"$(dirname \"$(readlink /proc/%d/exe)\")/"
                   "snapshots_changes.py\" %s/%" PRIu64 " %s/%" PRIu64 " %s",
                   (int)getpid(), model->copies, from, model->copies, same,
                   name);
    assert_int_equal(system(command), 0);
}

static void resume(struct model *model)
{
    struct err err = ERR_INIT;

    check(provider_resume(model->bench->provider, &model->box.sandbox,
                          bench_limits(model->bench), &err),
          &err);
}

void model_restore(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;

    check(provider_snapshot_restore(model->bench->provider, &model->box.sandbox,
                                    key, bench_limits(model->bench), &err),
          &err);
    resume(model);
}

void model_fork(struct model *model, uint64_t key, struct model *fork)
{
    struct err err = ERR_INIT;

    memset(fork, 0, sizeof(*fork));
    fork->bench = model->bench;
    bench_name(model->bench, &fork->box);
    (void)snprintf(fork->copies, sizeof(fork->copies), "%s", model->copies);
    check(provider_snapshot_fork(model->bench->provider, &model->box.sandbox,
                                 key, &fork->box.sandbox,
                                 bench_limits(model->bench), &err),
          &err);
    resume(fork);
}

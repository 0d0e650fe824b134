/* Directories are made apart where that helps, and only there. */
#include "core/spread.h"
#include "core/cleanup.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

static bool is_spread(const char *path)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int flags = 0;

    assert_true(fd >= 0);
    spread_below(fd);
    return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_TOPDIR_FL);
}

static int make_dir(void **state)
{
    static char dir[256];

    scratch_make(dir, sizeof(dir));
    *state = dir;
    return unshare(CLONE_NEWNS) == 0 &&
                   mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
               ? 0
               : -(geteuid() == 0);
}

static int remove_dir(void **state)
{
    scratch_remove(*state);
    return 0;
}

/* On a disk of its own. */
static bool spreads_on(const char *dir, const char *options)
{
    char command[1024];
    bool spread;

    (void)snprintf(command, sizeof(command),
                   "cd %s && truncate -s 8M disk && mkdir on &&"
                   " mkfs.ext4 -q -F %s disk && mount -o loop disk on",
                   dir, options);
    if (geteuid() != 0 || system(command) != 0) {
        skip();
    }
    (void)snprintf(command, sizeof(command), "%s/on", dir);
    spread = is_spread(command);
    assert_int_equal(umount2(command, 0), 0);
    (void)snprintf(command, sizeof(command), "rm -r %s/disk %s/on", dir, dir);
    assert_int_equal(system(command), 0);
    return spread;
}

static void without_a_journal_they_are(void **state)
{
    assert_true(spreads_on(*state, "-O ^has_journal"));
}

static void with_one_they_are_not(void **state)
{
    assert_false(spreads_on(*state, "-O has_journal"));
}

static void nor_where_there_is_no_disk(void **state)
{
    (void)state;
    assert_false(is_spread("/proc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_journal_they_are),
        cmocka_unit_test(with_one_they_are_not),
        cmocka_unit_test(nor_where_there_is_no_disk),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

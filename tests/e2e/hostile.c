/* A workload and a user who mean harm. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Each reads $T/secret, a file of the host, unless links are made safe. */
#define SECRET "echo host > $T/secret; up=../../../../../../../../../../../..\n"

static const struct script links[] = {
    {"an absolute link to the host",
     SECRET "echo \"ln -s $T/secret l\" > exec\n"
            "cat workspace/l 2>&1 | grep -o 'Permission denied'; "
            "readlink workspace/l; ls workspace; "
            "echo x 2>/dev/null > workspace/l; cat $T/secret",
     "Permission denied\nl\nhost\n"},
    {"a relative link that climbs out",
     SECRET "echo \"ln -s $up$T/secret l; mkdir d; ln -s ../$up$T d/l\" > exec"
            "\ncat workspace/l workspace/d/l/secret 2>&1 | "
            "grep -o 'Permission denied'",
     "Permission denied\nPermission denied\n"},
    {"links to what is beside the workspace",
     "echo 'ln -s .. a; ln -s ../status b; mkdir d; ln -s ../.. d/c; "
     "ln -s d/../../status e' > exec\n"
     "for l in a b d/c e; do cat workspace/$l 2>&1 | "
     "grep -o 'Permission denied'; done; ls workspace/a/ 2>/dev/null; true",
     "Permission denied\nPermission denied\nPermission denied\n"
     "Permission denied\n"},
    {"a link that stays inside by its letters and not by its way",
     SECRET "d=d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d\n"
            "u=$(echo $d | sed s/d/../g)\n"
            "echo \"mkdir -p $d; ln -s $u $d/top; "
            "ln -s $d/top/$u$T/secret l\" > exec\n"
            "cat workspace/l 2>/dev/null || echo no",
     "no\n"},
    {"an absolute link into the workspace is given relative",
     "echo 'echo x > f; mkdir -p d/e; ln -s /workspace/f a; "
     "ln -s /workspace/f d/e/b; ln -s /workspace d/c; ln -s f r' > exec\n"
     "for l in a d/e/b r; do readlink workspace/$l; cat workspace/$l; done\n"
     "cat workspace/d/c/f",
     "./f\nx\n../../f\nx\nf\nx\nx\n"},
    {"an absolute link that only begins like the workspace",
     SECRET "echo \"ln -s /workspace/../$T/secret a; ln -s /workspacex b; "
            "ln -s //workspace/../etc/passwd c\" > exec\n"
            "for l in a b c; do cat workspace/$l 2>&1 | "
            "grep -oE 'Permission denied|host|root:'; done",
     "Permission denied\nPermission denied\nPermission denied\n"},
    {"removing a link removes the link alone",
     SECRET "mkdir $T/dir; touch $T/dir/f\n"
            "echo \"ln -s $T/dir l; ln -s $T/secret m\" > exec\n"
            "rm -r workspace/l workspace/m; ls -A workspace; ls $T/dir; "
            "cat $T/secret",
     "f\nhost\n"},
    {"a pipe is shown and not opened by the daemon",
     "echo 'mkfifo p' > exec; stat -c %F workspace/p; "
     "timeout 0.3 cat workspace/p; echo $?; grep -rs x workspace; "
     "find workspace -type p; echo 'echo well' > exec; cat exec",
     "fifo\n124\nworkspace/p\nwell\n"},
};

static void links_of_the_workload_lead_nobody_to_the_host(void **state)
{
    (void)state;
    expect_scripts(links, ARRAY_SIZE(links));
}

static void a_directory_swapped_for_a_link_leads_nobody_out(void **state)
{
    (void)state;
    expect_shell(
        "mkdir $T/host; echo host > $T/host/f; cp -a $T/host $T/copy\n"
        "echo 'mkdir a; echo in > a/f' > exec\n"
        "cat > exec <<END &\n"
        "while [ ! -e stop ]; do mv a b; ln -s $T/host a; rm a; mv b a; done\n"
        "END\n"
        "python3 - <<'END'\n"
        "import os, time\n"
        "def read():\n"
        "    if open('workspace/a/f').read() == 'host\\n': print('escaped')\n"
        "def write(): open('workspace/a/f', 'w').write('in\\n')\n"
        "def make(): os.close(os.open('workspace/a/g', os.O_CREAT))\n"
        "def remove(): os.unlink('workspace/a/g')\n"
        "seen = {True: 0, False: 0}\n"
        "end = time.monotonic() + 40\n"
        "while sum(seen.values()) < 2000 or min(seen.values()) < 50:\n"
        "    for act in read, write, make, remove:\n"
        "        try: act(); seen[True] += 1\n"
        "        except OSError: seen[False] += 1\n"
        "    if time.monotonic() > end: print(seen); break\n"
        "END\n"
        "touch workspace/stop; wait; diff -r $T/host $T/copy",
        "");
}

static void offsets_and_sizes_are_bounded(void **state)
{
    int fd;
    char byte;

    (void)state;
    put_ok(in("workspace/f"), "x");
    fd = open(in("workspace/f"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, LONG_MAX - 1), 0);
    assert_int_equal(pread(fd, &byte, 1, 1L << 50), 0);
    expect_errno(pwrite(fd, "x", 1, LONG_MAX - 1), EFBIG);
    assert_true(ftruncate(fd, LONG_MAX) < 0);
    expect_errno(ftruncate(fd, -1), EINVAL);
    expect_ok(close(fd));
    fd = open(in("status"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 1L << 50), 0);
    expect_ok(close(fd));
    expect_text(in("workspace/f"), "x");
}

static void big_writes_to_control_files_are_refused(void **state)
{
    (void)state;
    expect_shell("head -c 3000000 /dev/zero | tr '\\0' ' ' | "
                 "dd of=status bs=3000000 iflag=fullblock 2>&1 | "
                 "grep -o 'Invalid argument'; cat status; cat exec",
                 "Invalid argument\nabsent\n");
}

static void control_files_hold_no_attributes(void **state)
{
    char value[16];

    (void)state;
    assert_true(getxattr(in("status"), "user.x", value, 16) < 0);
    assert_true(errno == ENODATA || errno == EOPNOTSUPP);
    assert_true(setxattr(in("status"), "user.x", "v", 1, 0) < 0);
    assert_true(errno == EPERM || errno == EOPNOTSUPP);
    assert_true(listxattr(in("status"), value, 16) <= 0);
}

static void the_mount_honours_no_setuid_and_no_devices(void **state)
{
    char script[2 * MNT_PATH_SIZE];

    (void)state;
    (void)snprintf(script, sizeof(script),
                   "grep ' %s ' /proc/self/mountinfo | "
                   "grep -oE 'nosuid|nodev|default_permissions' | sort",
                   mnt.path);
    expect_shell(script, "default_permissions\nnodev\nnosuid\n");
}

static const struct script harmful[] = {
    {"deep directories",
     "cd workspace; for i in $(seq 10); do mkdir -p d/d/d/d/d/d/d/d/d/d; "
     "cd d/d/d/d/d/d/d/d/d/d; done; echo x > f; cat f; cd $S/workspace; "
     "find . | wc -l; rm -r d; ls -A",
     "x\n102\n"},
    {"names that options and shells would take",
     "cd workspace; touch -- -rf '$(touch x)' '`touch y`' ';ls' '|cat'; "
     "ls -A | wc -l; rm -- * ; ls -A",
     "5\n"},
    {"names that look like control files",
     "cd workspace; mkdir execs; echo 1 > status; echo 2 > exec; "
     "cat status exec; cat ../status; ls ../execs",
     "1\n2\nrunning\n"},
    {"a new line in a name forges no line of `error`",
     "mkdir \"$M/sessions/a$(printf '\\nforged')\" 2>/dev/null; "
     "grep -c ^forged $M/error; true",
     "0\n"},
    {"a failed command forges no line of `events`",
     "printf 'echo \"\\n{\"seq\":1}\\n' > exec; "
     "python3 -c 'import json\n"
     "for l in open(\"events\"): json.loads(l)'",
     ""},
};

static void names_and_contents_do_no_harm(void **state)
{
    (void)state;
    expect_scripts(harmful, ARRAY_SIZE(harmful));
}

static void the_host_is_out_of_a_commands_sight(void **state)
{
    (void)state;
    expect_shell(
        "echo host > $T/secret\n"
        "for c in \"cat $T/secret\" 'echo x > /etc/passwd' 'touch /usr/x' "
        "'mknod n c 1 3' 'mount -t tmpfs x /tmp' 'cat /proc/1/environ' "
        "'cat /dev/vda' 'cat /dev/fuse' 'unshare -Ur true' "
        "'echo x > /proc/sys/kernel/core_pattern'\n"
        "do echo \"$c\" > exec; read -r code < execs/last/exit_code; "
        "[ $code != 0 ] || echo \"done: $c\"; done; "
        "echo 'env; id -u; cat /proc/self/status | grep -E \"NoNewPrivs|"
        "^Seccomp:\"' > exec; grep -cE 'MEM_CONTROL|SECRET' exec; "
        "grep -E 'NoNew|Seccomp' exec | awk '{print $2}'",
        "0\n1\n2\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test_of("local", links_of_the_workload_lead_nobody_to_the_host),
    e2e_test_of("local", a_directory_swapped_for_a_link_leads_nobody_out),
    e2e_test(offsets_and_sizes_are_bounded),
    e2e_test(big_writes_to_control_files_are_refused),
    e2e_test(control_files_hold_no_attributes),
    e2e_test(the_mount_honours_no_setuid_and_no_devices),
    e2e_test(names_and_contents_do_no_harm),
    e2e_test_of("local", the_host_is_out_of_a_commands_sight),
};

E2E_MAIN(tests)

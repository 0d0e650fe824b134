/* Two readers that share a handle of `exec.json`. */
#include "tests/unit/core_fixture.h"

#include "core/exec_priv.h"
#include "fs/exec_handle.h"
#include "fs/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const struct file_call call = {.caller = {.uid = 1000, .pid = 4242}};
static struct file *shared;
static bool interfere;

int __real_exec_answer(struct exec *exec, enum shape_mode mode, bool begun,
                       struct buf *out, struct err *err);
int __wrap_exec_answer(struct exec *exec, enum shape_mode mode, bool begun,
                       struct buf *out, struct err *err);

/* Reads on a few bytes, at once. */
static ssize_t read_some(char *out, size_t size)
{
    struct err err = ERR_INIT;

    return file_read(shared, &call, 1, out, size, &err);
}

/* The first command's answer cannot be made. While a reader tries, the other
 * one is told the same, and goes on to a newer command. */
int __wrap_exec_answer(struct exec *exec, enum shape_mode mode, bool begun,
                       struct buf *out, struct err *err)
{
    struct session *session = exec->job.session;
    struct exec_info info;
    char byte;

    if (interfere) {
        interfere = false;
        assert_true(read_some(&byte, 1) < 0);
        fixture_exec(session, "o:second", &info);
        assert_int_equal(read_some(&byte, 1), 1);
        assert_int_equal(byte, '{');
        fixture_exec(session, "o:third", &info);
    }
    return exec_number(exec) == 1
               ? err_set(err, EDQUOT, "there is no answer")
               : __real_exec_answer(exec, mode, begun, out, err);
}

static const struct node_row *find_row(const char *name)
{
    const struct node_row *row = files_session_rows;

    while (row->name && strcmp(row->name, name) != 0) {
        row++;
    }
    assert_non_null(row->name);
    return row;
}

static void a_failure_does_not_end_another_commands_answer(void **state)
{
    struct session *session = fixture_create(*state, "a");
    const struct node node = {.row = find_row("exec.json"), .session = session};
    const struct node_mount mount = {.started_us = 1};
    char text[4096] = "";
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_exec(session, "o:first", &info);
    assert_int_equal(file_open(&mount, &node, O_RDONLY, &shared, &err), 0);
    interfere = true;
    assert_int_equal(read_some(text, sizeof(text) - 1), -EDQUOT);
    assert_false(interfere);
    /* The second one's answer, of which a byte was read. */
    assert_true(read_some(text, sizeof(text) - 1) > 0);
    assert_memory_equal(text, "\"id\":2,", 7);
    assert_non_null(strstr(text, "second"));
    assert_int_equal(read_some(text, sizeof(text) - 1), 0);
    file_close(shared);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_failure_does_not_end_another_commands_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

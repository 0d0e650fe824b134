/*
 * Whatever writes to `exec` in whatever way: what has run afterwards, with
 * which text, and what the writer was told. The rows are in matrix_writers.c.
 */
#include "tests/e2e/matrix.h"

#include "tests/e2e/tools.h"

#include <stdio.h>
#include <stdlib.h>

#define DONE "1 exited\none\ntwo\n"

/* A column: its text as a format, what goes before, and what is then there. */
struct column {
    const char *format; /* $F */
    const char *before;
    const char *words; /* Of the error, in the C locale and in node's. */
    const char *want;  /* After the exit status and the words. */
};

static const char good[] = "echo one\\necho two";

/* What the scripts of all cells have in common. */
static const char functions[] =
    "export F SIG PAD LC_ALL=C ID=${S##*/}; C=$M/../control\n"
    "echo echo one > $T/one; echo echo two > $T/two\n"
    /* Kills a program when it has written all that it was given. */
    "feed() {\n"
    "  mkfifo $T/in; \"$@\" < $T/in & exec 9> $T/in; echo \"$(<$T/text)\" >&9\n"
    "  until [[ $(</proc/$!/io) =~ wchar:.([0-9]+) &&\n"
    "      ${BASH_REMATCH[1]} -ge 18 ]]; do sleep 0.01; done\n"
    "  sleep 0.05; kill -$SIG $!; wait $!; }\n"
    /* Says the words of the error, what ran, whether that is not what was
     * written, and what `exec` then reads as. */
    "tell() {\n"
    "  status=$?; [ -z \"$FAULT\" ] || rm $C/$FAULT@$ID\n"
    "  echo status $status; said=$(<$T/err); said=${said,,}\n"
    "  [[ $W && $said == *$W* ]] && echo $W\n"
    "  [ -e execs/1 ] && : > $T/ran\n"
    "  for n in $(ls execs); do\n"
    "    [ $n != last ] || continue\n"
    "    read -r code < execs/$n/wait; echo $n $(<execs/$n/status)\n"
    "    echo \"$(<execs/$n/command)\" >> $T/ran\n"
    "    [ -z \"$TWO\" ] || echo \"$(<execs/$n/output)\"\n"
    "  done\n"
    "  [ ! -e $T/ran ] || cmp $T/ran $T/text\n"
    "  [ -n \"$TWO\" ] || cat exec 2>&1 | sed 's/^cat: exec: //'\n}\n"
    "[ -z \"$FAULT\" ] || echo errno $ERRNO > $C/$FAULT@$ID\n"
    "printf \"$F\\n\" > $T/text\n";

static void functions_put(void)
{
    char path[2 * MNT_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/functions", mnt.dir);
    put_ok(path, functions);
}

/* A cell as a script; its strings are to be freed. */
static struct script cell(const struct writer *writer,
                          const struct column *column, const char *write,
                          int status, bool mute)
{
    struct script out;
    char *text = NULL;
    char *want = NULL;

    assert_true(asprintf(&text,
                         "F='%s'; W='%s'; %s; . $T/../functions\n"
                         "{ %s\n} 2> $T/err; tell",
                         column->format, mute ? "" : column->words,
                         column->before, write) > 0);
    assert_true(
        asprintf(&want, "status %d\n%s%s%s", status, mute ? "" : column->words,
                 mute || !column->words[0] ? "" : "\n", column->want) > 0);
    out.name = writer->name;
    out.text = text;
    out.want = want;
    return out;
}

/* What a column takes of a row: the script, NULL for no cell, the exit status
 * and whether it says why. */
typedef const char *pick_fn(const struct writer *writer, int *status,
                            bool *mute);

static bool has_program(const struct writer *writer)
{
    return !strstr(writer->name, "node") || tools_have_node();
}

static void expect_column(const struct column *column, pick_fn *pick)
{
    struct script cells[64];
    size_t count = 0;

    assert_true(matrix_writers_count <= ARRAY_SIZE(cells));
    functions_put();
    for (size_t i = 0; i < matrix_writers_count; i++) {
        const struct writer *writer = &matrix_writers[i];
        int status = 0;
        bool mute = false;
        const char *write = pick(writer, &status, &mute);

        if (write && has_program(writer)) {
            cells[count++] = cell(writer, column, write, status, mute);
        }
    }
    expect_scripts(cells, count);
    while (count > 0) {
        count--;
        free((void *)(uintptr_t)cells[count].text);
        free((void *)(uintptr_t)cells[count].want);
    }
}

static const struct column fine = {good, ":", "", DONE};

static const char *pick_plain(const struct writer *writer, int *status,
                              bool *mute)
{
    (void)status;
    (void)mute;
    return writer->write[WAY_PLAIN];
}

static void a_plain_write_runs_once(void **state)
{
    (void)state;
    expect_column(&fine, pick_plain);
}

static const char *pick_append(const struct writer *writer, int *status,
                               bool *mute)
{
    (void)status;
    (void)mute;
    return writer->write[WAY_APPEND];
}

static void an_append_runs_once(void **state)
{
    (void)state;
    expect_column(&fine, pick_append);
}

static const char *pick_both(const struct writer *writer, int *status,
                             bool *mute)
{
    (void)status;
    (void)mute;
    return writer->write[WAY_BOTH];
}

static void a_write_to_a_handle_that_also_reads_runs_once(void **state)
{
    (void)state;
    expect_column(&fine, pick_both);
}

static const char *pick_open(const struct writer *writer, int *status,
                             bool *mute)
{
    (void)mute;
    *status = writer->at_open;
    return writer->write[WAY_PLAIN];
}

static void an_engine_that_does_not_start_is_an_error_of_open(void **state)
{
    static const struct column column = {good, "FAULT=create ERRNO=EACCES",
                                         "permission denied", ""};

    (void)state;
    expect_column(&column, pick_open);
}

/* The number of the session is that of its id: nobody else makes any. */
#define STATE_DIR "D=$STATE/sessions/${S##*/t}; "

static void a_sandbox_that_cannot_be_made_is_an_error_of_open(void **state)
{
    /* Shells have words of their own for it. */
    static const struct column column = {
        good, STATE_DIR "mkdir -p ${D%/*}; : > $D", "directory", ""};

    (void)state;
    expect_column(&column, pick_open);
}

static const char *pick_nul(const struct writer *writer, int *status,
                            bool *mute)
{
    *status = writer->at_write;
    *mute = writer->write_mute;
    return writer->no_nul ? NULL : writer->write[WAY_PLAIN];
}

static void a_nul_byte_is_an_error_of_write_and_nothing_runs(void **state)
{
    static const struct column column = {"echo one\\0\\necho two", ":",
                                         "invalid argument", ""};

    (void)state;
    expect_column(&column, pick_nul);
}

static const char *pick_long(const struct writer *writer, int *status,
                             bool *mute)
{
    *status = writer->blind ? writer->at_close : writer->at_write;
    *mute = writer->blind ? writer->close_mute : writer->write_mute;
    return writer->slow ? NULL : writer->write[WAY_PLAIN];
}

static void a_text_too_long_is_an_error_of_write_and_nothing_runs(void **state)
{
    static const struct column column = {"echo one\\necho two%1048577d",
                                         "PAD=$(printf %0100000d 0)",
                                         "file too large", ""};

    (void)state;
    expect_column(&column, pick_long);
}

static const char *pick_close(const struct writer *writer, int *status,
                              bool *mute)
{
    *status = writer->at_close;
    *mute = writer->close_mute;
    return writer->write[WAY_PLAIN];
}

static void a_command_that_cannot_run_is_an_error_of_close(void **state)
{
    static const struct column column = {good, "FAULT=exec ERRNO=ENOSPC",
                                         "no space left on device",
                                         "1 failed\nNo space left on device\n"};

    (void)state;
    expect_column(&column, pick_close);
}

static void a_command_that_cannot_be_kept_is_an_error_of_close(void **state)
{
    static const struct column column = {
        good, STATE_DIR "echo running > status; rm -rf $D/execs; : > $D/execs",
        "not a directory", "1 failed\nNot a directory\n"};

    (void)state;
    expect_column(&column, pick_close);
}

static const char *pick_kill(const struct writer *writer, int *status,
                             bool *mute)
{
    (void)mute;
    *status = 137;
    return writer->killed;
}

static void a_killed_writer_leaves_nothing_to_run(void **state)
{
    static const struct column column = {good, "SIG=9", "", ""};

    (void)state;
    expect_column(&column, pick_kill);
}

static const char *pick_term(const struct writer *writer, int *status,
                             bool *mute)
{
    (void)mute;
    *status = 143;
    return writer->killed;
}

static void a_terminated_writer_leaves_nothing_to_run(void **state)
{
    static const struct column column = {good, "SIG=15", "", ""};

    (void)state;
    expect_column(&column, pick_term);
}

static const char *pick_one(const struct writer *writer, int *status,
                            bool *mute)
{
    (void)status;
    (void)mute;
    return writer->two ? NULL : writer->inherited;
}

static void who_only_inherited_the_handle_runs_nothing(void **state)
{
    (void)state;
    expect_column(&fine, pick_one);
}

static const char *pick_two(const struct writer *writer, int *status,
                            bool *mute)
{
    (void)status;
    (void)mute;
    return writer->two ? writer->inherited : NULL;
}

static void each_program_on_an_inherited_handle_runs_its_own(void **state)
{
    static const struct column column = {good, "TWO=1", "",
                                         "1 exited\none\n2 exited\ntwo\n"};

    (void)state;
    expect_column(&column, pick_two);
}

static const char *pick_left(const struct writer *writer, int *status,
                             bool *mute)
{
    (void)status;
    (void)mute;
    return writer->left;
}

static void a_handle_that_is_open_at_the_exit_runs_once(void **state)
{
    (void)state;
    expect_column(&fine, pick_left);
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_plain_write_runs_once),
    e2e_test(an_append_runs_once),
    e2e_test(a_write_to_a_handle_that_also_reads_runs_once),
    e2e_test_of("mem", an_engine_that_does_not_start_is_an_error_of_open),
    e2e_test_of("local", a_sandbox_that_cannot_be_made_is_an_error_of_open),
    e2e_test(a_nul_byte_is_an_error_of_write_and_nothing_runs),
    e2e_test(a_text_too_long_is_an_error_of_write_and_nothing_runs),
    e2e_test_of("mem", a_command_that_cannot_run_is_an_error_of_close),
    e2e_test_of("local", a_command_that_cannot_be_kept_is_an_error_of_close),
    e2e_test(a_killed_writer_leaves_nothing_to_run),
    e2e_test(a_terminated_writer_leaves_nothing_to_run),
    e2e_test(who_only_inherited_the_handle_runs_nothing),
    e2e_test(each_program_on_an_inherited_handle_runs_its_own),
    e2e_test(a_handle_that_is_open_at_the_exit_runs_once),
};

E2E_MAIN(tests)

/* Looking at a mount starts nothing. */
#include "tests/e2e/tools.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LOOK_MS = 250000
};

/* A look into each costs `jsonl` a command. */
static unsigned count(void)
{
    return mnt_scripts() ? 22 : 100;
}

static const char *const lookers[] = {
    "find $M > $T/out",
    "find $M -newer /etc/passwd -size -1k > $T/out",
    "ls -lR $M > $T/out",
    "du -a $M > $T/out",
    "cat $M/sessions/*/status $M/sessions/*/status.json > $T/out",
    "cat $M/sessions/*/events $M/sessions/*/error > $T/out",
    "cat $M/sessions/*/exec $M/sessions/*/execs/*/* > $T/out",
    "touch $M/sessions/*/exec",
    "df $M $M/sessions/* $M/sessions/*/workspace > $T/out",
    "ls -l $M/sessions/*/workspace $M/sessions/*/execs > $T/out",
    "test ! -e $M/sessions/p1/workspace/none",
    "grep -rs x $M/sessions/*/execs $M/README $M/stats > $T/out; true",
};

/* One third is absent, one running, one paused, where there is a pause. */
static void hundred_sessions_make(void)
{
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    char number[16];
    int status;

    (void)snprintf(number, sizeof(number), "%u", count());
    (void)setenv("N", number, 1);
    (void)setenv("PAUSED", mnt_scripts() ? "running" : "paused", 1);
    status =
        shell("cd $M/sessions; mkdir $(seq -f 'p%g' $N) || exit 1\n"
              "for i in $(seq 2 3 $N); do echo running > p$i/status || exit 2;"
              "done\n"
              "for i in $(seq 3 3 $N); do echo 'echo hi' > p$i/exec || exit 3;"
              "echo x > p$i/workspace/f; echo $PAUSED > p$i/status || exit 4; "
              "done",
              LOOK_MS, &out);
    if (status != 0 || out.size != 0) {
        fail_msg("%d: %.2000s", status, buf_str(&out));
    }
    buf_done(&out);
}

static const char *const ops[] = {
    "create", "resume", "pause", "destroy", "exec",
};

static void looking_at_a_hundred_sessions_starts_nothing(void **state)
{
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    uint64_t before[ARRAY_SIZE(ops)];
    char part[128];
    size_t i;
    size_t j;

    (void)state;
    hundred_sessions_make();
    for (j = 0; j < ARRAY_SIZE(ops); j++) {
        (void)snprintf(part, sizeof(part),
                       "calls_total{provider=\"%s\",operation=\"%s\"}",
                       mnt.provider, ops[j]);
        before[j] = mnt_counter(part);
    }
    /* The counters count: what was made above is in them. */
    assert_true(before[0] >= count() / 3 * 2 && before[4] >= count() / 3);
    assert_true(before[2] >= count() / 3 || mnt_scripts());
    for (i = 0; i < ARRAY_SIZE(lookers); i++) {
        int status = shell(lookers[i], LOOK_MS, &out);

        if (status != 0) {
            fail_msg("%s: %d: %.500s", lookers[i], status, buf_str(&out));
        }
        for (j = 0; j < ARRAY_SIZE(ops); j++) {
            (void)snprintf(part, sizeof(part),
                           "calls_total{provider=\"%s\",operation=\"%s\"}",
                           mnt.provider, ops[j]);
            if (mnt_counter(part) != before[j]) {
                fail_msg("%s: a %s", lookers[i], ops[j]);
            }
        }
    }
    buf_done(&out);
    expect_shell("cat $M/sessions/p*/status | sort | uniq -c | "
                 "awk '{print $1, $2}'",
                 mnt_scripts() ? "8 absent\n14 running\n"
                               : "34 absent\n33 paused\n33 running\n");
}

static void listing_is_complete_and_ends(void **state)
{
    (void)state;
    expect_shell("ls $M/sessions | grep '^p[0-9]*$' | wc -l | grep -x $N "
                 "> /dev/null && echo all; "
                 "find $M/sessions -maxdepth 1 | sort | uniq -d; "
                 "ls -i $M/sessions | awk '{print $1}' | sort | uniq -d",
                 "all\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(looking_at_a_hundred_sessions_starts_nothing),
    e2e_test(listing_is_complete_and_ends),
};

E2E_MAIN(tests)

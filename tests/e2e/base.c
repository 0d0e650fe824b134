/* A workspace over a directory of this machine, through the mount. */
#include "tests/e2e/tools.h"

/* Makes $B, a base, with these files, whose look is kept; and a session over
 * it, in which the script is run. */
static void expect_over(const char *files, const char *script, const char *want)
{
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);

    assert_int_equal(
        buf_printf(
            &text,
            "B=$T/base; mkdir $B; (cd $B && umask 022 && %s) || exit\n"
            "look() { find $B -printf '%%P %%y %%m %%U:%%G %%n %%i %%s %%T@ "
            "%%C@ %%l\\n' | sort\n"
            "find $B -type f -print0 | sort -z | xargs -0 sha256sum; }\n"
            "look >$T/before; same() { look | diff $T/before - && echo same; "
            "}\n"
            "config() { printf '{\"provider\": \"local\", \"auto_start\": "
            "false, \"provider_config\": {\"base\": \"%%s\"}}' "
            "$B >config.json; }; config\n"
            "sx() { cat >exec; cat exec; }\n%s",
            files, script),
        0);
    expect_shell(buf_str(&text), want);
    buf_done(&text);
}

static void reading_starts_nothing_and_writing_shows_the_base(void **state)
{
    (void)state;
    expect_over("echo a >a && mkdir d && echo f >d/f",
                "ls workspace; cat status; echo running >status; "
                "cat workspace/a workspace/d/f; "
                "stat -c '%U %a' workspace/a; cat changes/base; "
                "echo b >>workspace/a; cat changes/base; same",
                "absent\na\nf\nroot 644\nM\ta\nsame\n");
}

static void every_change_goes_to_the_layer_above(void **state)
{
    (void)state;
    expect_over("for f in append trunc mode own time link gone moved over; "
                "do echo $f >$f; done; "
                "mkdir -p d/e gonedir emptied/x keep; echo f >d/e/f; "
                "ln -s append sym; touch -d 2001-01-01 *",
                "echo running >status; cd workspace; echo x >>append; "
                "truncate -s 2 trunc; chmod 4711 mode; chown 7:8 own; "
                "touch -d 2002-02-02 time; ln link link2; rm gone; "
                "mv moved moved2; mv over keep/over; mv d d2; "
                "rmdir gonedir; rm -r emptied; mkdir emptied gone; "
                "ln -sf mode sym; cat append trunc link2 moved2 keep/over "
                "d2/e/f; stat -c '%n %a %u:%g %h' mode own link link2; "
                "stat -c %y time; ls emptied; readlink sym; cd ..; "
                "cat changes/base; same",
                "append\nx\ntrlink\nmoved\nover\nf\nmode 4711 0:0 1\n"
                "own 644 7:8 1\nlink 644 0:0 2\nlink2 644 0:0 2\n"
                "2002-02-02 00:00:00.000000000 +0000\nmode\nM\tappend\nD\td\n"
                "A\td2\nA\td2/e\nA\td2/e/f\nD\temptied/x\nD\tgone\nA\tgone\n"
                "D\tgonedir\nA\tkeep/over\nA\tlink2\nM\tmode\nD\tmoved\n"
                "A\tmoved2\nD\tover\nM\tsym\nM\ttrunc\nsame\n");
}

static void a_copy_up_is_not_seen(void **state)
{
    (void)state;
    expect_over("echo old >f && mkdir d && echo g >d/g && echo h >h",
                "echo running >status; cd workspace; "
                "i() { stat -c %i . f d d/g h; ls -i; ls -i d; }; i >$T/1; "
                "exec 3<f 4<h; cd ..; echo 'echo new >f; chmod 700 d; "
                "echo >d/g' >exec; cd workspace; echo H >h; i >$T/2; "
                "cmp $T/1 $T/2; cat <&3; cat <&4; echo more >>f; cat <&3; "
                "echo 'stat -c %s f; cat f' >../exec; cat ../exec; cd ..; "
                "same",
                "new\nH\nmore\n9\nnew\nmore\nsame\n");
}

static void what_both_sides_do_is_one(void **state)
{
    (void)state;
    expect_over("mkdir -p a/b && echo 1 >a/b/f && echo 2 >a/g",
                "echo running >status; cat workspace/a/b/f; "
                "echo 'mv a/b c; rm a/g' | sx; ls workspace workspace/a; "
                "cat workspace/c/f; mv workspace/c workspace/a/again; "
                "echo 'cat a/again/f; mkdir c; echo 3 >c/n' | sx; "
                "cat workspace/c/n; rm -r workspace/a; echo 'ls; mkdir a; "
                "ls a' | sx; cat changes/base; same",
                "1\nworkspace:\na\nc\n\nworkspace/a:\n1\n1\n3\nc\nD\ta/b\n"
                "D\ta/g\nA\tc\nA\tc/n\nsame\n");
}

static void ten_thousand_entries_are_listed_once(void **state)
{
    (void)state;
    expect_over("mkdir many && seq -f many/%05g 10000 | xargs touch",
                "echo running >status; cd workspace/many; ls | wc -l; "
                "rm *7 && touch x{1..500} && ls | sort | uniq -d; "
                "ls | wc -l; find . -name '*5' -delete; ls | wc -l; "
                "echo 'ls many | wc -l' >../../exec; cat ../../exec; "
                "cd ../..; same",
                "10000\n9500\n8450\n8450\nsame\n");
}

static void it_survives_pauses_and_the_daemons_death(void **state)
{
    (void)state;
    expect_over("mkdir d && echo f >d/f && echo g >g && echo h >h",
                "echo running >status; rm workspace/g; "
                "mv workspace/d workspace/e; echo x >>workspace/h; "
                "echo paused >status; cat workspace/e/f workspace/h; "
                "echo y >>workspace/h; cat status; same",
                "f\nh\nx\npaused\nsame\n");
    mnt_kill();
    mnt_start();
    expect_shell("ls workspace; cat workspace/e/f workspace/h; "
                 "echo 'echo z >>h; mv e d; cat h d/f' >exec; cat exec; "
                 "cat changes/base; "
                 "size() { df --output=size $1 | tail -1; }; "
                 "[ $(size workspace) = $(size $STATE) ] && echo disk; "
                 "grep \" $STATE\" /proc/mounts; grep -o '\"workspace\": "
                 "*\"[a-z]*\"' status.json | tr -d ' '",
                 "e\nh\nf\nh\nx\ny\nh\nx\ny\nz\nf\nD\tg\nM\th\ndisk\n"
                 "\"workspace\":\"overlay\"\n");
}

static void after_its_deletion_it_starts_anew(void **state)
{
    (void)state;
    expect_over("echo f >f && mkdir d && echo g >d/g",
                "echo running >status; rm -r workspace/d; "
                "echo x >workspace/f; exec 3<workspace/f; "
                "echo absent >status; ls workspace; cat changes/base; "
                "echo running >status; "
                "cat workspace/f workspace/d/g changes/base; same; "
                "N=$(ls $STATE/sessions | tail -1); "
                "ls $STATE/sessions/$N | grep -c removed || true",
                "f\ng\nsame\n0\n");
}

/* Makes a session that starts at once, with an init command, and goes there. */
#define FRESH                                                                  \
    "here=$PWD; fresh() { exec 3<>$M/new; printf '{\"provider\": \"local\", "  \
    "\"provider_config\": {\"base\": \"%s\"}, \"init\": {\"commands\": "       \
    "[\"%s\"]}}' $B \"$1\" >&3; read -r id <&3; exec 3>&-; "                   \
    "cd $M/sessions/$id; }; "

static void whoever_looks_at_what_begins_waits_for_it(void **state)
{
    (void)state;
    expect_over("echo f >f",
                FRESH "I='sleep 0.3; echo made >made'; "
                      "fresh \"$I\"; cat workspace/f workspace/made; "
                      "fresh \"$I\"; [ -e workspace/made ] && echo there; "
                      "fresh \"$I\"; ls workspace; "
                      "fresh \"$I\"; stat -c %s workspace/made; "
                      "fresh true; diff -r $B workspace && echo alike; "
                      "fresh 'cp f g'; echo more >>workspace/g; "
                      "cat workspace/g; same",
                "f\nmade\nthere\nf\nmade\n5\nalike\nf\nmore\nsame\n");
}

static void it_waits_no_longer_than_it_must(void **state)
{
    (void)state;
    expect_over("echo f >f",
                FRESH "fresh 'sleep 30.7'; ls -ld workspace | wc -l; "
                      "ls | grep workspace; cat status; "
                      "timeout -s INT 0.3 cat workspace/f; echo $?; "
                      "until echo KILL >execs/1/signal; do sleep 0.05; done "
                      "2>/dev/null; "
                      "fresh 'sleep 1.5; exit 3'; cat workspace/f 2>&1; "
                      "cat workspace/f; "
                      "cd $here; ls workspace; cat status",
                "1\nworkspace\nstarting\n124\n"
                "cat: workspace/f: Input/output error\nf\nabsent\n");
}

static void a_bad_base_is_refused_in_words(void **state)
{
    (void)state;
    expect_over("echo f >f && ln -s / l",
                "for b in $B/f $B/none $M $M/sessions $STATE /; do B=$b; "
                "{ config && echo running >status; "
                "} 2>$T/err || tail -n 1 error | grep -c \"base\"; done",
                "1\n1\n1\n1\n1\n1\n");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        e2e_test(reading_starts_nothing_and_writing_shows_the_base),
        e2e_test(every_change_goes_to_the_layer_above),
        e2e_test(a_copy_up_is_not_seen),
        e2e_test(what_both_sides_do_is_one),
        e2e_test(ten_thousand_entries_are_listed_once),
        e2e_test(it_survives_pauses_and_the_daemons_death),
        e2e_test(after_its_deletion_it_starts_anew),
        e2e_test(whoever_looks_at_what_begins_waits_for_it),
        e2e_test(it_waits_no_longer_than_it_must),
        e2e_test(a_bad_base_is_refused_in_words),
    };

    mnt.options = ",trust=config";
    return e2e_run(argc, argv, tests, ARRAY_SIZE(tests));
}

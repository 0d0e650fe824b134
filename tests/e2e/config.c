/* Profiles, `new` and `config.json`, by shells and hostile writers. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* put(): the errno of a write, or of the close; P: this mount's provider, N:
 * what else its configs need. */
#define PYTHON                                                                 \
    "python3 -c '\n"                                                           \
    "import errno, json, os\n"                                                 \
    "P = os.environ[\"PROVIDER\"]\n"                                           \
    "N = json.loads(\"{\" + os.environ[\"NEEDS\"].rstrip(\", \") + \"}\")\n"   \
    "M = os.environ[\"M\"]\n"                                                  \
    "def put(path, text):\n"                                                   \
    "    f = os.open(path, os.O_WRONLY)\n"                                     \
    "    try:\n"                                                               \
    "        text = text if type(text) is bytes else text.encode()\n"          \
    "        done = os.write(f, text)\n"                                       \
    "        assert done == len(text)\n"                                       \
    "        os.close(f)\n"                                                    \
    "        return \"taken\"\n"                                               \
    "    except OSError as e:\n"                                               \
    "        return errno.errorcode[e.errno]\n"                                \
    "def config():\n"                                                          \
    "    return json.load(open(\"config.json\"))\n"
#define END "'\n"

/* ---- new ---- */

static const struct script news[] = {
    {"a profile, and the id on the same handle",
     "exec 3<>$M/new; echo default >&3; read -r id <&3; exec 3>&-\n"
     "[[ $id =~ ^s[a-z2-7]{8}$ ]] && cat $M/sessions/$id/status\n"
     "cmp $M/sessions/$id/config.json $M/profiles/default.json\n"
     "rmdir $M/sessions/$id",
     "absent\n"},
    {"a profile and an id", "echo \"default n1\" > $M/new; rmdir ../n1", ""},
    {"a fresh handle has no id to tell", "cat $M/new; stat -c %s $M/new",
     "0\n"},
    {"several on one handle, each with its id",
     "exec 3<>$M/new; for i in a b; do echo default n2$i >&3; head -n 1 <&3\n"
     "done; rmdir ../n2a ../n2b",
     "n2a\nn2b\n"},
    {"a config with an id starts by itself",
     PYTHON "print(put(M + \"/new\", json.dumps({\"id\": \"n3\", \"provider\": "
            "P, **N})))\n" END "for i in {1..100}; do\n"
            "[ $(cat ../n3/status) = running ] && break; sleep 0.1; done\n"
            "cat ../n3/status; echo absent > ../n3/status; rmdir ../n3",
     "taken\nrunning\n"},
    {"the reason is at the top",
     "echo none 2>/dev/null > $M/new; tail -n 1 $M/error | cut -d ' ' -f 2-3,5-"
     "\necho default 'a/b' 2>/dev/null > $M/new; tail -n 1 $M/error | "
     "cut -d ' ' -f 5-\n"
     "(touch $M/sessions/f; mkdir $M/d) 2>/dev/null; tail -n 2 $M/error | "
     "cut -d ' ' -f 2-3,5-",
     "write \"new\" ENOENT there is no profile 'none'\n"
     "EINVAL id 'a/b': a session's name is up to 64 of A-Z a-z 0-9 . _ - and "
     "begins with a letter or digit\n"
     "create \"f\" EPERM only mkdir makes something here\n"
     "mkdir \"d\" EPERM names here are fixed\n"},
    {"an id that is taken",
     "echo default n4 > $M/new; (echo default n4 > $M/new) 2>&1 | "
     "grep -o 'File exists'; rmdir ../n4",
     "File exists\n"},
    {"what there is to choose from is shown and cannot be changed",
     "ls $M/profiles; ls $M/providers; stat -c %a $M/new\n"
     "for f in profiles/default.json providers/mem; do\n"
     "(echo x > $M/$f) 2>&1 | grep -oE 'denied|Permission'; "
     "rm -f $M/$f 2>&1 | grep -o 'not permitted'\n"
     "[ $(stat -c %s $M/$f) = $(wc -c < $M/$f) ] || echo size\n"
     "[ $(stat -c %i $M/$f) = $(ls -i $M/${f%/*} | sed -n "
     "\"s/^ *\\([0-9]*\\) ${f#*/}$/\\1/p\") ] || echo inode\n"
     "done; mkdir $M/profiles/x 2>&1 | grep -o 'not permitted'\n"
     "cat $M/profiles/none.json 2>&1 | grep -o 'No such'",
     "default.json\njsonl\nlocal\nmem\n600\n"
     "Permission\ndenied\nnot permitted\nPermission\ndenied\nnot permitted\n"
     "not permitted\nNo such\n"},
};

static void sessions_are_made_by_profiles_and_configs(void **state)
{
    (void)state;
    expect_scripts(news, ARRAY_SIZE(news));
}

/* ---- config.json ---- */

static const struct script configs[] = {
    {"what is written is read",
     PYTHON "c = config()\n"
            "c[\"exec_timeout_ms\"] = 77\n"
            "print(put(\"config.json\", json.dumps(c)), config() == c)\n" END
            "tail -n 1 events | grep -o '\"session.configured\".*' | "
            "sed 's/\"pid\":[0-9]*/\"pid\":X/'\n"
            "[ $(stat -c %s config.json) = $(wc -c < config.json) ] || echo "
            "size",
     NULL},
    {"byte by byte, by the last one",
     PYTHON "f = os.open(\"config.json\", os.O_WRONLY)\n"
            "t = json.dumps({\"provider\": P, **N, \"exec_timeout_ms\": 5})\n"
            "for c in t[:-1]: os.write(f, c.encode())\n"
            "print(config()[\"exec_timeout_ms\"])\n"
            "os.write(f, t[-1].encode())\n"
            "print(config()[\"exec_timeout_ms\"])\n"
            "os.close(f)\n" END,
     "0\n5\n"},
    {"one that is never whole",
     PYTHON "print(put(\"config.json\", \"{\"))\n"
            "print(put(\"config.json\", \" \"), config()[\"auto_start\"])\n" END
            "tail -n 1 error | cut -d ' ' -f 2-3,5-",
     "EINVAL\ntaken False\nflush \"config.json\" EINVAL the JSON is "
     "incomplete\n"},
    {"a shell sees what is wrong",
     "(echo '{\"provider\": \"\"}' > config.json) 2>&1 | "
     "grep -o 'Invalid argument'\n"
     "(echo '{\"provider\": \"none\"}' > config.json) 2>&1 | "
     "grep -o 'No such device'\n"
     "tail -n 2 error | cut -d ' ' -f 5-",
     "Invalid argument\nNo such device\n"
     "EINVAL session_sandbox config requires non-empty 'provider'\n"
     "ENODEV Session sandbox provider 'none' is not registered\n"},
    {"null and an empty object are the default profile",
     PYTHON "print(put(\"config.json\", json.dumps({\"provider\": P, **N})))\n"
            "print(config()[\"auto_start\"])\n"
            "print(put(\"config.json\", \"null\\n\"))\n"
            "print(config()[\"auto_start\"])\n"
            "print(put(\"config.json\", \"{}\\n\"))\n" END,
     "taken\nTrue\ntaken\nFalse\ntaken\n"},
    {"not while there is a sandbox",
     "cp config.json $T/c; echo true > exec; echo running > status\n"
     "(sed 's/access/exec/' $T/c > config.json) 2>&1 | grep -o 'busy'\n"
     "cat $T/c > config.json; tail -n 1 error | grep -o 'has a "
     "sandbox'\n"
     "echo absent > status; sed 's/access/exec/' $T/c > config.json\n"
     "grep -o '\"wake.*' config.json",
     "busy\nhas a sandbox\n\"wake\": \"exec\",\n"},
    {"commands that name no timeout have the config's",
     PYTHON "print(put(\"config.json\", json.dumps({\"provider\": P, **N, "
            "\"exec_timeout_ms\": 300})))\n" END
            "printf \"$NAP$NAP$NAP$NAP\" > exec; "
            "cat execs/last/status execs/last/exit_code",
     "taken\ntimeout\n124\n"},
    {"an init that failed can be mended",
     "printf '{\"provider\": \"%s\", %s\"init\": {\"commands\": "
     "[\"no-such-x\"]}}"
     "' $PROVIDER \"$NEEDS\" > config.json\n"
     "(echo 'echo hi' > exec) 2>/dev/null || echo failed; cat status\n"
     "printf '{\"provider\": \"%s\", %s\"init\": {\"commands\": "
     "[\"true\"]}}' "
     "$PROVIDER \"$NEEDS\" > config.json\n"
     "echo 'echo hi' > exec; cat exec\n"
     "(printf '{\"provider\": \"%s\", %s\"init\": {\"commands\": "
     "[\"x\"]}}' "
     "$PROVIDER \"$NEEDS\" > config.json) 2>&1 | grep -o busy",
     "failed\nrunning\nhi\nbusy\n"},
};

static void a_session_has_a_config_of_its_own(void **state)
{
    struct script first = configs[0];
    char want[256];

    (void)state;
    (void)snprintf(want, sizeof(want),
                   "taken True\n\"session.configured\",\"uid\":0,\"pid\":X,"
                   "\"detail\":{\"provider\":\"%s\",\"changed\":["
                   "\"exec_timeout_ms\"]}}\n",
                   mnt.provider);
    first.want = want;
    expect_scripts(&first, 1);
    expect_scripts(configs + 1, ARRAY_SIZE(configs) - 1);
}

/* ---- Hostile writers ---- */

/* Each is written to `new` and to `config.json`; nothing changes. */
static const struct script hostile[] = {
    {"what is no config",
     PYTHON "before = config()\n"
            "n = len(os.listdir(M + \"/sessions\"))\n"
            "bad = [b\"{\\\"provider\\\": \\\"a\\0\\\"}\", b\"\\0\", "
            "b\"{\\0}\",\n"
            "    b\"{\" + b\" \" * 2097152, b\"x\" * 2097152,\n"
            "    b\"{\\\"a\\\":\" * 100000, b\"[\" * 200000,\n"
            "    b\"{\\\"a\\\":\" + b\"[\" * 70 + b\"]\" * 70 + b\"}\",\n"
            "    b\"{\\\"provider\\\": \\\"mem\\\", \\\"provider\\\": "
            "\\\"mem\\\"}\",\n"
            "    b\"{\\\"provider\\\": \\\"\\\\ud800\\\"}\",\n"
            "    b\"{\\\"provider\\\": \\\"\\xff\\\"}\",\n"
            "    b\"{\\\"provider\\\": \\\"mem\\\"} {\\\"provider\\\": "
            "\\\"mem\\\"}\",\n"
            "    b\"{\\\"provider\\\": \\\"mem\\\", \\\"wake\\\": 1e999}\",\n"
            "    b\"{\\\"provider\\\": \\\"\" + b\"p\" * 100000 + b\"\\\"}\",\n"
            "    b\"../../etc/passwd\", b\"-o trust=config\", "
            "b\"\\xff\\xfe\"]\n"
            "for text in bad:\n"
            "    for path in (\"config.json\", M + \"/new\"):\n"
            "        e = put(path, text)\n"
            "        if e not in (\"EINVAL\", \"EFBIG\", \"ENOENT\", "
            "\"ENODEV\"):\n"
            "            print(path, text[:40], len(text), e)\n"
            "print(config() == before,\n"
            "    len(os.listdir(M + \"/sessions\")) == n)\n" END,
     "True True\n"},
    {"lines of error stay lines",
     PYTHON "put(\"config.json\", \"{\\\"provider\\\": \\\"a\\\\nb\\\"}\")\n"
            "put(M + \"/new\", \"{\\\"provider\\\": \\\"a\\\\nb\\\"}\")\n" END
            "grep -c . error; tail -n 1 error $M/error | grep -c registered",
     "1\n2\n"},
};

static void no_text_breaks_or_changes_anything(void **state)
{
    (void)state;
    expect_scripts(hostile, ARRAY_SIZE(hostile));
}

/* ---- Together with other work ---- */

static void a_config_is_written_while_a_command_starts_the_sandbox(void **state)
{
    (void)state;
    expect_shell(
        "for i in {1..30}; do\n"
        "echo 'echo hi' > exec & job=$!\n"
        "(printf '{\"provider\": \"%s\", %s\"exec_timeout_ms\": %d}' $PROVIDER "
        "\"$NEEDS\" $((9000 + i)) > config.json) 2>> $T/words\n"
        "wait $job || echo failed; [ \"$(cat exec)\" = hi ] || echo output\n"
        "grep -qE '\"exec_timeout_ms\": (0|90[0-9][0-9]),' config.json || "
        "cat config.json\n"
        "echo absent > status; done\n"
        "grep -v 'Device or resource busy' $T/words; true",
        "");
}

static void what_was_taken_survives_a_kill(void **state)
{
    (void)state;
    expect_shell("printf '{\"provider\": \"%s\", %s\"exec_timeout_ms\": 4321}' "
                 "$PROVIDER \"$NEEDS\" > config.json; echo default k1 > $M/new",
                 "");
    mnt_kill();
    mnt_start();
    expect_shell("grep -o '\"exec_timeout_ms.*' config.json; cat ../k1/status; "
                 "grep -c '\"session.configured\"' events; rmdir ../k1",
                 "\"exec_timeout_ms\": 4321,\nabsent\n1\n");
    expect_sound_database();
}

/* ---- The operator ---- */

static void write_text(const char *name, const char *text)
{
    char path[MNT_PATH_SIZE + 64];
    FILE *stream;

    (void)snprintf(path, sizeof(path), "%s/%s", mnt.dir, name);
    stream = fopen(path, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static void make_dir(const char *name)
{
    char path[MNT_PATH_SIZE + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", mnt.dir, name);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* A profile with a program, whose path may be below the test's directory. */
static void write_program(const char *name, const char *path)
{
    char file[64];
    char whole[MNT_PATH_SIZE + 64];
    char text[2 * MNT_PATH_SIZE];

    (void)snprintf(file, sizeof(file), "profiles/%s.json", name);
    (void)snprintf(whole, sizeof(whole), "%s%s", path[0] == '/' ? "" : mnt.dir,
                   path[0] == '/' ? path : path + 2);
    (void)snprintf(text, sizeof(text),
                   "{\"provider\": \"jsonl\", \"auto_start\": false, "
                   "\"provider_config\": {\"program\": \"%s\"}}",
                   whole);
    write_text(file, text);
}

/* Starts the daemon anew with these options as well; they are kept. */
static void start_with(const char *options)
{
    mnt_stop();
    mnt.options = options;
    mnt_start();
}

static const struct script trust[] = {
    {"a user may not, a profile may",
     PYTHON "def pc(**keys):\n"
            "    return json.dumps({\"provider\": \"mem\", \"auto_start\": "
            "False, \"provider_config\": keys})\n"
            "for keys in ({\"user\": \"root\"}, {\"program\": [\"sh\"]},\n"
            "    {\"socket\": \"/run/x\"}, {\"delay\": 101},\n"
            "    {\"network\": \"host\"}, {\"base\": \"/usr\"},\n"
            "    {\"base\": \"../state\"}, {\"base\": M[1:]}):\n"
            "    a, b = put(\"config.json\", pc(**keys)), put(M + \"/new\", "
            "pc(**keys))\n"
            "    k = list(keys)[0]\n"
            "    words = open(M + \"/error\").read().splitlines()[-1]\n"
            "    print(k, a, b, (\"key '\\''%s'\\''\" % k) in words)\n" END
            "echo host x1 > $M/new\n" PYTHON "os.chdir(\"../x1\")\n"
            "c = config()\n"
            "print(c[\"provider_config\"])\n"
            "c[\"wake\"] = \"exec\"\n"
            "print(put(\"config.json\", json.dumps(c)), config() == c)\n"
            "c[\"provider_config\"][\"user\"] = \"toor\"\n"
            "print(put(\"config.json\", json.dumps(c)))\n" END "rmdir ../t1",
     "user EPERM EPERM True\nprogram EPERM EPERM True\n"
     "socket EPERM EPERM True\ndelay EPERM EPERM True\n"
     "network EPERM EPERM True\nbase EPERM EPERM True\n"
     "base EPERM EPERM True\nbase ENOENT ENOENT True\n"
     "{'label': '', 'quiet': False, 'delay': 60000, 'network': "
     "'host', "
     "'user': 'root'}\ntaken True\nEPERM\n"},
    {"a base below the operator's",
     PYTHON "c = config()\n"
            "c[\"provider_config\"][\"base\"] = \"deb\"\n"
            "print(put(\"config.json\", json.dumps(c)))\n"
            "b = config()[\"provider_config\"][\"base\"]\n"
            "print(b[0], b.endswith(\"/bases/deb\"))\n" END,
     "taken\n/ True\n"},
    {"a program that is not there, or is none",
     "(echo none n1 > $M/new) 2>&1 | grep -o 'No such file'\n"
     "(echo plain n1 > $M/new) 2>&1 | grep -o 'Permission denied'\n"
     "ls ../n1 2>&1 | grep -o 'No such'\n"
     "tail -n 2 $M/error | cut -d ' ' -f 2-3,5- | sed \"s|${T%/*}|D|\"",
     "No such file\nPermission denied\nNo such\n"
     "write \"new\" ENOENT provider_config key 'program': '/none': No such "
     "file "
     "or directory\n"
     "write \"new\" EACCES provider_config key 'program': "
     "'D/profiles/plain.json': Permission denied\n"},
    {"one that is gone by the first use leaves nothing to clean up",
     "cp /bin/true ${T%/*}/program; echo gone n1 > $M/new\n"
     "rm ${T%/*}/program\n"
     "(echo true > ../n1/exec) 2>&1 | grep -o 'not connected'\n"
     "cat ../n1/status; tail -n 1 ../n1/error | cut -d ' ' -f 2-3,5- | "
     "sed \"s|${T%/*}|D|\"\n"
     "rmdir ../n1",
     "not connected\nabsent\nopen \"exec\" ENOTCONN cannot start 'D/program': "
     "No such file or directory\n"},
};

static void what_reaches_the_host_is_the_operators(void **state)
{
    static char options[2 * MNT_PATH_SIZE];

    (void)state;
    make_dir("bases");
    make_dir("bases/deb");
    make_dir("profiles");
    write_text("profiles/host.json",
               "{\"provider\": \"mem\", \"auto_start\": false, "
               "\"provider_config\": {\"user\": \"root\", \"delay\": 60000, "
               "\"network\": \"host\"}}");
    write_program("none", "/none");
    write_program("plain", "%s/profiles/plain.json");
    write_program("gone", "%s/program");
    (void)snprintf(options, sizeof(options),
                   ",base=%.200s/bases,profiles=%.200s/profiles", mnt.dir,
                   mnt.dir);
    start_with(options);
    expect_scripts(trust, ARRAY_SIZE(trust));
    start_with(",trust=config");
    expect_shell("printf '{\"provider\": \"mem\", \"provider_config\": "
                 "{\"user\": \"root\"}}' > config.json; "
                 "grep -o '\"user.*' config.json",
                 "\"user\": \"root\"\n");
    start_with(NULL);
}

static void a_start_that_cannot_be_tells_why(void **state)
{
    (void)state;
    expect_shell(
        "P=$T/p; M=$T/m; STATE=$T/s; mkdir $P $M $T/deep\n"
        "ln -s $M $T/deep/link; ln -s $STATE $P/state\n"
        "try() { timeout 20 $SESSIONFS -o \"state=$STATE,provider=mem,$1\" $M "
        "2>&1 | sed \"s|$T|T|g\"; echo "
        "${PIPESTATUS[0]}; }\n"
        "bad() { echo \"$1\" > $P/x.json; try \"profiles=$P\"; }\n"
        "bad '{\"provider\": \"\"}'\n"
        "bad '{\"provider\": \"mem\", \"provider_config\": {\"base\": "
        "\"'$M'/sessions\"}}'\n"
        "bad '{\"provider\": \"mem\", \"provider_config\": {\"socket\": "
        "\"'$T'/deep/link/x\"}}'\n"
        "bad '{\"provider\": \"mem\", \"provider_config\": {\"base\": \"'$P'/"
        "state/y\"}}'\n"
        "bad '{\"provider\": \"mem\", \"provider_config\": {\"base\": \"/\"}}'"
        "\n"
        "try \"profiles=$T/none\"; try \"base=$T/none\"; try base=/\n"
        "try trust=me",
        "sessionfs: error: profile 'T/p/x.json': session_sandbox config "
        "requires "
        "non-empty 'provider'\n1\n"
        "sessionfs: error: profile 'T/p/x.json': provider_config key 'base': "
        "'T/m/sessions' lies in the mount\n1\n"
        "sessionfs: error: profile 'T/p/x.json': provider_config key 'socket': "
        "'T/deep/link/x' lies in the mount\n1\n"
        "sessionfs: error: profile 'T/p/x.json': provider_config key 'base': "
        "'T/s/y' overlaps the state directory\n1\n"
        "sessionfs: error: profile 'T/p/x.json': provider_config key 'base': "
        "'/' overlaps the state directory\n1\n"
        "sessionfs: option 'profiles': 'T/none': No such file or directory\n"
        "2\n"
        "sessionfs: option 'base': 'T/none': No such file or directory\n2\n"
        "sessionfs: option 'base': the mount point lies in it\n2\n"
        "sessionfs: option 'trust' cannot be 'me', but operator|config\n2\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        e2e_test(sessions_are_made_by_profiles_and_configs),
        e2e_test(a_session_has_a_config_of_its_own),
        e2e_test(no_text_breaks_or_changes_anything),
        e2e_test(a_config_is_written_while_a_command_starts_the_sandbox),
        e2e_test(what_was_taken_survives_a_kill),
        e2e_test_of("mem", what_reaches_the_host_is_the_operators),
        e2e_test_of("mem", a_start_that_cannot_be_tells_why),
    };

    (void)setenv("SESSIONFS", SESSIONFS_PROGRAM, 1);
    (void)setenv("PROVIDER", argc > 1 ? argv[1] : "", 1);
    return e2e_run(argc, argv, tests, ARRAY_SIZE(tests));
}

/*
 * What the daemon, the keeper and the sandboxes' inits say to each other.
 *
 * daemon <-> keeper, a SEQPACKET socket:
 *   keeper: WIRE_READY {enum wire_ready_fd}, host, words: why not all limits
 *           can be enforced; or WIRE_FAILED; once
 *   daemon: WIRE_START {enum wire_start_fd}, id_base, quota, n
 *   keeper: WIRE_STARTED {enum wire_started_fd}, n, words: the name of its
 *           groups of version 1; or WIRE_FAILED, n
 *   daemon: WIRE_MOUNT {enum wire_mount_fd}, id_base, map_lower, synced, n,
 *           code: how many layers
 *   keeper: WIRE_MOUNTED {the overlay} or WIRE_FAILED, n
 *   daemon: WIRE_MOVE {enum wire_move_fd}, n: a sandbox's workspace becomes
 *           another mount
 *   keeper: WIRE_MOVED or WIRE_FAILED, n
 *   daemon: WIRE_WAIT code: for so many seconds the keeper waits for the next
 *           daemon; once, behind WIRE_READY
 *   daemon: WIRE_HOLD {enum wire_box_fd or wire_command_fd}, held: to be kept
 *           for the next daemon, in place of what was kept of it; WIRE_NOTE,
 *           held: it has changed; WIRE_DROP, held: not to be kept any more
 *   daemon: WIRE_QUIT: everything the keeper made ends, and it does
 *   end of file at the keeper: the same where it holds no sandbox that lives;
 *           else it waits at its listening socket for the next daemon, which
 *           gets WIRE_READY, then WIRE_HELD for each that is held, as it was
 *           given, and at last one whose `held` has no box
 *   end of file at the daemon: all that the keeper made has ended
 * daemon -> init, a SEQPACKET socket of the sandbox, whose daemon's end the
 * keeper holds as well:
 *   init:   WIRE_READY or WIRE_FAILED, once
 *   daemon: WIRE_EXEC {enum wire_exec_fd}, n; WIRE_SIGNAL n, code
 *   daemon: WIRE_END n, code SIGTERM: also continues what is stopped
 *   end of file: the sandbox ends
 * init -> daemon, a pipe of the command, given with WIRE_EXEC:
 *   WIRE_STARTED pid, then WIRE_EXITED code (a wait status), at_us, which stays
 *   in the pipe for the next daemon; or WIRE_FAILED
 *
 * Where there are no cgroups (no such fds come along then):
 *   daemon: WIRE_END n, code SIGKILL; again until the command's pipe ends,
 *           which it does with the last of its processes; n 0: all commands
 *   daemon: WIRE_FREEZE n, code 1 or 0
 *   init:   WIRE_FROZEN n, code: how many processes still run; asked again
 *
 * In braces: the fds that come along, by SCM_RIGHTS; any of them may be
 * missing.
 */
#ifndef SESSIONFS_LOCAL_WIRE_H
#define SESSIONFS_LOCAL_WIRE_H

#include "core/err.h"

#include <stddef.h>
#include <stdint.h>

/* Of this file. A keeper of another one cannot be taken over. */
enum {
    WIRE_VERSION = 3
};

/* The keeper's end of its socket, as it is started; where it has an argument,
 * the user and mount namespaces of one before it; a bound socket to listen at,
 * and the state's directory: it ends when that is removed. Those two may be
 * missing, and no other daemon can come then. */
enum {
    WIRE_KEEPER_FD = 3,
    WIRE_USER_FD,
    WIRE_MOUNTS_FD,
    WIRE_LISTEN_FD,
    WIRE_STATE_FD,
    WIRE_KEEPER_FDS
};

/* The fds of the keeper's WIRE_READY. */
enum wire_ready_fd {
    WIRE_READY_CGROUP,
    WIRE_READY_USER, /* Namespaces of its own, where it needs such. */
    WIRE_READY_MOUNTS,
    WIRE_READY_FDS,
};

/* Ids of a sandbox: this many are mapped; commands run as one of them. */
enum {
    WIRE_ID_COUNT = 65536,
    WIRE_USER = 1000,
    WIRE_GROUP = 1000,
};

#define WIRE_WORKSPACE "/workspace"
/* Where commands find their scripts. */
#define WIRE_SCRIPTS "/run/exec"

/* Where commands look for programs. */
#define WIRE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum wire_type {
    WIRE_READY = 1,
    WIRE_FAILED, /* code is an errno, words say why. */
    WIRE_START,
    WIRE_STARTED,
    WIRE_EXEC,
    WIRE_SIGNAL,
    WIRE_EXITED,
    WIRE_MOUNT,
    WIRE_MOUNTED,
    WIRE_MOVE,
    WIRE_MOVED,
    WIRE_END,
    WIRE_FREEZE,
    WIRE_FROZEN,
    WIRE_HOLD,
    WIRE_NOTE,
    WIRE_DROP,
    WIRE_HELD,
    WIRE_WAIT,
    WIRE_QUIT,
};

/* What a sandbox may use. */
struct wire_quota {
    int64_t memory_bytes;
    int64_t pids;
    int64_t cpu_percent; /* Of one processor. */
    int64_t file_size_bytes;
    int64_t disk_bytes;
    int64_t open_files;
    int64_t tmp_bytes; /* Of each tmpfs. */
};

/* What enforces a limit. */
enum wire_means {
    WIRE_MEANS_NONE,
    WIRE_MEANS_V1, /* A controller of cgroup version 1, */
    WIRE_MEANS_V2, /* or of version 2. */
};

enum wire_control {
    WIRE_CONTROL_MEMORY,
    WIRE_CONTROL_PIDS,
    WIRE_CONTROL_CPU,
    WIRE_CONTROLS
};

/* What the keeper has found this machine to give its user. */
struct wire_host {
    /* Not root: a sandbox has one id, the user's own. */
    uint32_t one_id;
    uint32_t means[WIRE_CONTROLS]; /* enum wire_means */
};

/* A box, or a command of one, that is held for the next daemon. */
struct wire_held {
    uint64_t box;     /* Names the box as long as there is the keeper; not 0. */
    uint64_t number;  /* Of the session. */
    uint64_t command; /* Its number; 0: it is the box. */
    uint32_t frozen;  /* Of a box: it is, or may be. */
    char name[48];    /* Of its cgroup. */
    char groups_name[32];
};

struct wire {
    uint32_t type;
    int32_t code;
    uint64_t n; /* Of the command, or of the request. */
    int64_t pid;
    int64_t at_us;      /* By the wall clock. */
    uint32_t id_base;   /* Host id of the sandbox's id 0. */
    uint32_t map_lower; /* Not 0: see struct overlay_plan; */
    uint32_t synced;    /* and this. */
    uint32_t fds;       /* Which of the fds come along, a bit each. */
    uint32_t version;   /* Of the keeper, in WIRE_READY. */
    struct wire_host host;
    struct wire_quota quota;
    struct wire_held held;
    char words[ERR_MSG_SIZE];
};

/* The fds of WIRE_START. */
enum wire_start_fd {
    WIRE_START_WORKSPACE,
    WIRE_START_CGROUP,
    WIRE_START_ROOTFS, /* Missing: the system directories are this machine's. */
    WIRE_START_MOUNTS, /* The keeper's: those directories' namespace. */
    WIRE_START_FDS,
};

/* The fds of WIRE_STARTED. */
enum wire_started_fd {
    WIRE_STARTED_SOCK,   /* To init, */
    WIRE_STARTED_PIDFD,  /* and of it. */
    WIRE_STARTED_SPACE,  /* Its mount namespace. */
    WIRE_STARTED_GROUPS, /* WIRE_CONTROLS of them: groups of version 1. */
    WIRE_STARTED_FDS = WIRE_STARTED_GROUPS + WIRE_CONTROLS,
};

/* The fds of WIRE_MOUNT. */
enum wire_mount_fd {
    WIRE_MOUNT_LOWER,
    WIRE_MOUNT_UPPER, /* Missing, with the next: nothing is written. */
    WIRE_MOUNT_WORK,
    WIRE_MOUNT_LAYERS, /* The directory of all layers, and */
    WIRE_MOUNT_CHAIN,  /* a memfd: which of them, as uint64_t, downwards. */
    WIRE_MOUNT_FDS,
};

/* The fds of WIRE_MOVE. */
enum wire_move_fd {
    WIRE_MOVE_SPACE, /* The sandbox's mount namespace, and */
    WIRE_MOVE_MOUNT, /* what its workspace becomes. */
    WIRE_MOVE_FDS,
};

/* The fds of WIRE_EXEC; stdin is missing where there is no input. */
enum wire_exec_fd {
    WIRE_EXEC_REQUEST, /* A memfd: struct wire_request. */
    WIRE_EXEC_CGROUP,
    WIRE_EXEC_REPLY,
    WIRE_EXEC_STDOUT,
    WIRE_EXEC_STDERR,
    WIRE_EXEC_STDIN,
    WIRE_EXEC_FDS,
};

/* The fds of a box that is held. */
enum wire_box_fd {
    WIRE_BOX_SOCK,
    WIRE_BOX_PIDFD,
    WIRE_BOX_CGROUP,
    WIRE_BOX_MOUNT,  /* Of its overlay, where it has one. */
    WIRE_BOX_SPACE,  /* Its mount namespace. */
    WIRE_BOX_GROUPS, /* WIRE_CONTROLS of them. */
    WIRE_BOX_FDS = WIRE_BOX_GROUPS + WIRE_CONTROLS,
};

/* The fds of a command that is held. */
enum wire_command_fd {
    WIRE_COMMAND_REPLY,
    WIRE_COMMAND_STDOUT,
    WIRE_COMMAND_STDERR,
    WIRE_COMMAND_FDS,
};

/* The most fds of a message. */
enum {
    WIRE_FD_MAX = WIRE_BOX_FDS
};

/*
 * A command: this head, then the working directory, `argc` words and `envc`
 * assignments, each with its NUL, then the script.
 */
struct wire_request {
    uint32_t argc; /* 0: run the script. */
    uint32_t envc;
    uint64_t script_size;
};

/**
 * Sends a message with fds.
 *
 * @param sock  a SEQPACKET socket
 * @param wire  borrowed
 * @param fds   stay the caller's; -1 is a missing one
 * @param count how many fds, at most WIRE_FD_MAX
 * @param err   filled on failure
 * @return 0, -EAGAIN where a non-blocking socket is full, -EPIPE when the
 *         peer is gone, or another negative errno
 */
MUST_USE int wire_send(int sock, const struct wire *wire, const int *fds,
                       size_t count, struct err *err);

/**
 * Receives a message with fds.
 *
 * @param sock  a SEQPACKET socket
 * @param out   written on success
 * @param fds   WIRE_FD_MAX of them, the caller's to close; written on success,
 *              -1 where none came
 * @param err   filled on failure
 * @return 0, -EPIPE at the end of file, -EPROTO for a message that is none,
 *         or another negative errno
 */
MUST_USE int wire_recv(int sock, struct wire *out, int fds[WIRE_FD_MAX],
                       struct err *err);

/** @param fds that wire_recv() wrote, or -1; closed: all are -1 then */
void wire_close(int fds[WIRE_FD_MAX]);

#endif

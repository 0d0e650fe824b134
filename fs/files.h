/* The tables of control files that refer to each other. */
#ifndef SESSIONFS_FILES_H
#define SESSIONFS_FILES_H

#include "fs/file.h"

/* Numbers of rows in inode numbers. One is never used for another file. */
enum {
    FILES_ID_ROOT = 1,
    FILES_ID_README,
    FILES_ID_STATS,
    FILES_ID_ERRORS,
    FILES_ID_SESSIONS,
    FILES_ID_NEW,
    FILES_ID_PROFILES,
    FILES_ID_PROFILE,
    FILES_ID_PROVIDERS,
    FILES_ID_PROVIDER,

    FILES_ID_SESSION = 16,
    FILES_ID_STATUS,
    FILES_ID_STATUS_JSON,
    FILES_ID_WORKSPACE,
    FILES_ID_EXEC,
    FILES_ID_EXECS,
    FILES_ID_EVENTS,
    FILES_ID_ERROR,
    FILES_ID_LAST,
    FILES_ID_EXEC_JSON,
    FILES_ID_CONFIG,
    FILES_ID_CHANGES,
    FILES_ID_CHANGES_BASE,
    FILES_ID_CHANGES_SPAN,
    FILES_ID_CHECKPOINTS,
    FILES_ID_CHECKPOINT,
    FILES_ID_CHECKPOINTS_LOG,
    FILES_ID_RESTORE,
    FILES_ID_FORK,

    FILES_ID_COMMAND_DIR = 48,
    FILES_ID_COMMAND,
    FILES_ID_COMMAND_STATUS,
    FILES_ID_COMMAND_STDOUT,
    FILES_ID_COMMAND_STDERR,
    FILES_ID_COMMAND_OUTPUT,
    FILES_ID_COMMAND_EXIT_CODE,
    FILES_ID_COMMAND_ERROR,
    FILES_ID_COMMAND_WAIT,
    FILES_ID_COMMAND_RESULT,
    FILES_ID_COMMAND_SIGNAL,
    FILES_ID_COMMAND_CHANGES,
};

extern const struct node_row files_session;             /* sessions/ID */
extern const struct node_row files_session_rows[];      /* In it. */
extern const struct node_row files_execs_rows[];        /* In execs/. */
extern const struct node_row files_changes_rows[];      /* In changes/, */
extern const struct node_children files_spans;          /* with these. */
extern const struct file_ops files_command_changes_ops; /* execs/N/changes */
extern const struct node_children files_checkpoints;    /* In checkpoints/. */
node_show_fn files_checkpoints_show;                    /* checkpoints.log, */
node_store_fn files_checkpoints_store;
node_store_fn files_restore_store;                /* restore, */
node_store_fn files_fork_store;                   /* and fork; */
node_show_fn files_nothing_show;                  /* which have no text. */
extern const struct node_children files_commands; /* execs/N */
extern const struct file_ops files_exec_ops;      /* exec */
extern const struct file_ops files_exec_json_ops; /* exec.json */
extern const struct file_ops files_config_ops;    /* config.json */
node_show_fn files_config_show;
extern const struct file_ops files_new_ops;        /* new */
extern const struct node_children files_profiles;  /* In profiles/, */
extern const struct node_children files_providers; /* and in providers/. */

/* The places of directories in files_session_rows. */
enum {
    FILES_WORKSPACE_ROW = 3,
    FILES_EXECS_ROW = 6,
    FILES_CHANGES_ROW,
    FILES_CHECKPOINTS_ROW,
};

/* The README's text; made from readme.txt by the build. */
extern const unsigned char files_readme[];
extern const size_t files_readme_size;

#endif

/* What workers do in killed.c while daemons end, and what they were told. */
#ifndef SESSIONFS_TESTS_E2E_KILLED_H
#define SESSIONFS_TESTS_E2E_KILLED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    ENTRIES = 4096 /* Of a worker, in a round. */
};

enum kind {
    KIND_EXEC,
    KIND_FILE,
    KIND_MKDIR,
    KIND_RMDIR,
    KIND_RENAME,
    KIND_CONFIG,
    KIND_PAUSE,
    KIND_RESUME,
    KIND_DELETE,
    KINDS,
};

/* One thing that a worker did. Its tag is its place in all the rounds. */
struct entry {
    enum kind kind;
    unsigned tag;
    bool done; /* It was told that it succeeded, */
    bool cut;  /* or, by a command's output, that it was cut short. */
};

/* Shared with the worker's process. */
struct worker {
    struct entry entries[ENTRIES];
    unsigned count;   /* The last one may be underway. */
    unsigned tags;    /* Over all rounds, */
    unsigned records; /* and commands that were looked at. */
    int failed;       /* An error that no dead daemon explains. */
    bool made;        /* The session that comes and goes is there, */
    bool moved;       /* under its other name, */
    unsigned limit;   /* with this in its config; 0: as it was made. */
    unsigned number;
    uint64_t random;
};

/* Shared: the round's daemon shall end, or has ended. */
extern atomic_bool *ending;

/* xorshift64: the same seed, the same choices below `most`. */
unsigned choose(uint64_t *random, unsigned most);

/* A path in the worker's session, as at(). */
const char *mine(const struct worker *worker, const char *file);
/* Its session that comes and goes, under one of its names. */
const char *coming(const struct worker *worker, bool moved);
/* What a config is told apart by. */
unsigned limit_of(const struct entry *entry);

/* In a child: works until the daemon is dead. */
int work(void *arg);

#endif

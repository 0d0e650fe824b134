/*
 * A provider whose engine is a few variables of the test: what each slot
 * answers, which calls hang, what state a sandbox is in. Its commands are
 * words, each acted on in order by a thread of its own:
 *
 *   o:TEXT e:TEXT   output on stdout, stderr
 *   fill:N          N bytes on stdout, in pieces
 *   exit:N kill:N   ends so; without either it exits with 0
 *   limit:WORDS     its end tells of a limit
 *   lost            ends with an end that is not known
 *   hang            until its token fires, or it takes too long
 *   gate            until engine_open_gate()
 *   late:TEXT       output after its end
 *   now             as first word: all of it before the call returns
 */
#ifndef SESSIONFS_TESTS_ENGINE_H
#define SESSIONFS_TESTS_ENGINE_H

#include "core/provider_files.h"

enum engine_slot {
    ENGINE_OPEN,
    ENGINE_CREATE,
    ENGINE_RESUME,
    ENGINE_PAUSE,
    ENGINE_DESTROY,
    ENGINE_STATUS,
    ENGINE_EXEC,
    ENGINE_CHECKPOINT,
    ENGINE_ROOT,
    ENGINE_ROOM,
    ENGINE_SLOTS,
};

/* Its files can be read while it is paused; its processes end with it. */
extern const struct provider_ops engine_local;
/* With checkpoints, and files only while it runs, none of which may be used;
 * its state is asked once a second at most. */
extern const struct provider_ops engine_remote;

/* Everything answers at once and nothing fails. */
void engine_reset(void);
/* The slot's calls fail with -code from now on; 0: no more. */
void engine_fail(enum engine_slot slot, int code);
/* The slot's calls wait until they are released, cancelled or too late. */
void engine_hold(enum engine_slot slot, bool hold);
/* How often the slot was called since the reset. */
unsigned engine_calls(enum engine_slot slot);
/* What the engine says of every sandbox from now on. */
void engine_set_state(enum provider_state state);
/* This call gives another external id: resume, pause or checkpoint. */
void engine_replace_at(enum engine_slot slot);
/* create tells metadata of that many bytes. */
void engine_set_metadata(size_t size);
/* Commands that wait at a gate go on, also those that come there later. */
void engine_open_gate(void);

#endif

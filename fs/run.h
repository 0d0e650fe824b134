/*
 * `sessionfs run`: runs a command in a session as if it ran here. Made of the
 * mount's files alone, so that any program could do the same.
 */
#ifndef SESSIONFS_RUN_H
#define SESSIONFS_RUN_H

/**
 * The whole program.
 *
 * @param argc that of main() without the program's name
 * @param argv likewise: argv[0] is "run"
 * @return the exit status
 */
int run_main(int argc, char **argv);

#endif

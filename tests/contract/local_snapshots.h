/* What the tests of checkpoints of `local` share. */
#ifndef SESSIONFS_TESTS_LOCAL_SNAPSHOTS_H
#define SESSIONFS_TESTS_LOCAL_SNAPSHOTS_H

/** @return how many failed */
int suite_snapshots_cost(void);
/** @return how many failed */
int suite_snapshots_killed(void);
/** @return how many failed */
int suite_snapshots_seal(void);
/** @return how many failed */
int suite_snapshots_shut(void);

#endif

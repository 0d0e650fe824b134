/* Where the directories that are made in one come to lie on a disk. */
#ifndef SESSIONFS_SPREAD_H
#define SESSIONFS_SPREAD_H

/**
 * Has them made far from each other, each with what is made in it, on an ext4
 * without a journal. There a new inode is looked for near the directory above,
 * and all that were freed there within minutes are passed over one by one: who
 * makes and removes many in one place soon waits ten times as long for each.
 *
 * @param dir open for reading; elsewhere it is left as it is
 */
void spread_below(int dir);

#endif

/* Which start of the machine this is. */
#ifndef SESSIONFS_LOCAL_BOOT_H
#define SESSIONFS_LOCAL_BOOT_H

enum {
    BOOT_SIZE = 40
};

/** @param out the kernel's name of it, all of it; "" where it has none */
void boot_read(char out[BOOT_SIZE]);

#endif

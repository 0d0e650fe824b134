/* The keys of `local`'s provider_config. */
#include "providers/local/quota.h"

#define MIB (INT64_C(1) << 20)
#define TIB (INT64_C(1) << 40)

#define LIMIT(name_, fallback_, min_, max_, unit_, text_)                      \
    {                                                                          \
        .name = (name_), .type = CONFIG_INT, .trust = CONFIG_UP_TO,            \
        .fallback = (fallback_), .min = (min_), .max = (max_),                 \
        .unit = (unit_), .text = (text_)                                       \
    }

const struct config_key local_keys[] = {
    LIMIT("memory_bytes", "4294967296", 16 * MIB, 64 * TIB, "bytes",
          "Memory of all processes together, with what lies in /tmp"),
    LIMIT("pids", "1024", 16, 4194304, "processes",
          "Processes and threads at one time"),
    LIMIT("cpu_percent", "200", 1, 102400, "percent of one processor",
          "Processor time of all processes together"),
    LIMIT("file_size_bytes", "17179869184", MIB, 64 * TIB, "bytes",
          "Length of a file that a command writes"),
    LIMIT("disk_bytes", "17179869184", MIB, 64 * TIB, "bytes",
          "Files that the session wrote, all together"),
    LIMIT("open_files", "16384", 64, 1048576, "files",
          "Files that one process has open"),
    LIMIT("tmp_bytes", "2147483648", MIB, 64 * TIB, "bytes",
          "Files in each of /tmp, /var/tmp and /dev/shm, which lie in memory"),
    {
        .name = "base",
        .type = CONFIG_PATH,
        .trust = CONFIG_OPERATOR,
        .there = CONFIG_DIRECTORY,
        .text = "Directory of this machine that the workspace starts from; it "
                "is never written to",
    },
    {
        .name = "rootfs",
        .type = CONFIG_PATH,
        .trust = CONFIG_OPERATOR,
        .there = CONFIG_DIRECTORY,
        .text =
            "Directory of this machine whose system directories (usr, bin, "
            "lib, etc, opt ...) the sandbox has, read-only, in place of the "
            "machine's own",
    },
    {.name = NULL},
};

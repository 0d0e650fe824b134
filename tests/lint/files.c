/* Prints the path of each control file, for the check of the manual page. */
#include "fs/node.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PATH_SIZE = 256
};

static void print_below(const struct node_row *dir, const char *path);

static void print_row(const struct node_row *row, const char *dir)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof(path), "%s%s%s", dir, row->name,
                     S_ISDIR(row->mode) ? "/" : "");

    if (n >= PATH_SIZE) {
        abort();
    }
    (void)puts(path);
    print_below(row, path);
}

static void print_below(const struct node_row *dir, const char *path)
{
    for (const struct node_row *row = dir->rows; row && row->name; row++) {
        print_row(row, path);
    }
    if (dir->children) {
        print_row(dir->children->row, path);
    }
}

int main(void)
{
    print_below(&node_root, "");
    return EXIT_SUCCESS;
}

/*
 * Feeds a target the files of a directory: what a build without libFuzzer runs.
 * usage: fuzz_NAME CORPUS
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>

static void replay(const char *dir, const char *name)
{
    char path[4096];
    uint8_t *data = NULL;
    size_t room = 0;
    size_t size = 0;
    FILE *file;
    int c;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "re");
    DEMAND(file);
    while ((c = getc(file)) != EOF) {
        if (size == room) {
            room = room ? 2 * room : 4096;
            data = realloc(data, room);
            DEMAND(data);
        }
        data[size++] = (uint8_t)c;
    }
    DEMAND(!ferror(file));
    (void)fclose(file);
    (void)printf("%s\n", name);
    (void)fflush(stdout);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;

    DEMAND(dir);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            replay(argv[1], entry->d_name);
            count++;
        }
    }
    (void)closedir(dir);
    DEMAND(count);
    return EXIT_SUCCESS;
}

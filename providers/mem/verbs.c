/* The words of commands that work on files; see exec.c. */
#include "providers/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A path as the sandbox sees it, as one of its tree. */
static const char *in_tree(const char *path)
{
    if (strncmp(path, "/workspace", 10) == 0) {
        path += 10;
    }
    return path + strspn(path, "/");
}

static int put(struct mem_box *box, const char *path, const char *text,
               bool append, struct err *err)
{
    struct mem_inode *inode = NULL;
    uint64_t at;
    int rc = mem_tree_find(box, path, &inode, err);

    if (rc == -ENOENT) {
        err_clear(err);
        rc = mem_tree_make(box, path, S_IFREG | 0644, &inode, err);
    }
    if (rc == 0 && !S_ISREG(inode->attr.st_mode)) {
        rc = err_set(err, EISDIR, "not a file");
    }
    if (rc == 0 && !append) {
        rc = mem_tree_resize(box, inode, 0, err);
    }
    if (rc < 0) {
        return rc;
    }
    at = (uint64_t)inode->attr.st_size;
    rc = mem_tree_write(box, inode, text, strlen(text), at, err);
    return rc < 0 ? rc
                  : mem_tree_write(box, inode, "\n", 1, at + strlen(text), err);
}

/* Copies a file's bytes. */
static int get(struct mem_box *box, const char *path, char **out, size_t *size,
               struct err *err)
{
    struct mem_inode *inode = NULL;
    int rc = mem_tree_find(box, path, &inode, err);

    if (rc == 0 && !S_ISREG(inode->attr.st_mode)) {
        rc = err_set(err, EISDIR, "not a file");
    }
    if (rc < 0) {
        return rc;
    }
    *size = (size_t)inode->attr.st_size;
    *out = malloc(*size + 1);
    if (!*out) {
        return err_no_memory(err);
    }
    if (*size) {
        memcpy(*out, inode->data, *size);
    }
    return 0;
}

enum verb {
    VERB_CAT,
    VERB_WRITE,
    VERB_APPEND,
    VERB_MKDIR,
    VERB_RM,
    VERB_NONE,
};

static enum verb find_verb(const char *word)
{
    static const char *const words[] = {
        [VERB_CAT] = "cat",       [VERB_WRITE] = "write",
        [VERB_APPEND] = "append", [VERB_MKDIR] = "mkdir",
        [VERB_RM] = "rm",
    };
    size_t verb = 0;

    while (verb < ARRAY_SIZE(words) && strcmp(word, words[verb]) != 0) {
        verb++;
    }
    return (enum verb)verb;
}

bool mem_is_verb(const char *word)
{
    return find_verb(word) != VERB_NONE;
}

int mem_run_verb(struct mem_box *box, const char *word, const char *path,
                 const char *text, char **data, size_t *size, struct err *err)
{
    struct mem_inode *made;
    enum verb verb = find_verb(word);

    if (!box) {
        return err_set(err, ESTALE, "the sandbox is gone");
    }
    path = in_tree(path);
    switch (verb) {
    case VERB_CAT:
        return get(box, path, data, size, err);
    case VERB_WRITE:
    case VERB_APPEND:
        return put(box, path, text, verb == VERB_APPEND, err);
    case VERB_MKDIR:
        return mem_tree_make(box, path, S_IFDIR | 0755, &made, err);
    case VERB_RM:
        return mem_tree_remove(box, path, false, err);
    case VERB_NONE:
        break;
    }
    return err_set(err, EINVAL, "no such word");
}

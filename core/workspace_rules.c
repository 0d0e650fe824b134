/* Rules of mount.md that all trees share: links, ids, inode numbers. */
#include "core/workspace_impl.h"

#include <errno.h>
#include <string.h>

/* The length of the component at s, and where the next one begins. */
static size_t component(const char *s, const char **next)
{
    size_t len = strcspn(s, "/");

    *next = s + len + strspn(s + len, "/");
    return len;
}

static bool is_up(const char *s, size_t len)
{
    return len == 2 && s[0] == '.' && s[1] == '.';
}

/*
 * Counts the ".." that a path begins with. One behind a name makes it -EACCES:
 * the name may be a link to anywhere, so what such a path means is known only
 * to whoever resolves it.
 */
static int leading_ups(const char *path)
{
    bool named = false;
    int ups = 0;

    while (*path) {
        const char *next;
        size_t len = component(path, &next);
        bool up = is_up(path, len);

        if (up && named) {
            return -EACCES;
        }
        if (up) {
            ups++;
        } else if (!(len == 1 && path[0] == '.')) {
            named = true;
        }
        path = next;
    }
    return ups;
}

/* The part of an absolute target below `path`, or NULL. */
static const char *below(const char *target, const char *path)
{
    size_t len = path ? strlen(path) : 0;

    if (!len || strncmp(target, path, len) != 0 ||
        (target[len] != '/' && target[len] != '\0')) {
        return NULL;
    }
    target += len;
    return target + strspn(target, "/");
}

static int make_relative(char *target, size_t size, unsigned depth,
                         const char *rest)
{
    size_t len = strlen(rest);
    size_t head = depth ? (size_t)depth * 3 : 2; /* "../" each, or "./" */

    if (head + len + 1 > size) {
        return -ENAMETOOLONG;
    }
    memmove(target + head, rest, len + 1);
    if (!depth) {
        memcpy(target, "./", 2);
    }
    for (unsigned i = 0; i < depth; i++) {
        memcpy(target + (size_t)i * 3, "../", 3);
    }
    if (!len) {
        target[head - 1] = '\0';
    }
    return 0;
}

int ws_link_check(char *target, size_t size, unsigned depth, unsigned ups,
                  const char *path)
{
    const char *rest = target;
    int found;

    if (target[0] == '/') {
        rest = below(target, path);
        if (!rest || leading_ups(rest) != 0 || depth > ups) {
            return -EACCES;
        }
        return make_relative(target, size, depth, rest);
    }
    found = leading_ups(rest);
    return found < 0 || (unsigned)found > ups ? -EACCES : 0;
}

static uint32_t shown(const struct ws_ids *ids, uint32_t id, uint32_t own,
                      uint32_t as)
{
    if (id == own) {
        return as;
    }
    return id < ids->count ? id : WS_ID_NOBODY;
}

uid_t ws_uid_shown(const struct ws_ids *ids, uint32_t id)
{
    return shown(ids, id, ids->user, ids->uid);
}

gid_t ws_gid_shown(const struct ws_ids *ids, uint32_t id)
{
    return shown(ids, id, ids->group, ids->gid);
}

int ws_uid_inside(const struct ws_ids *ids, uid_t uid, uint32_t *out,
                  struct err *err)
{
    if (uid != ids->uid && uid >= ids->count) {
        return err_set(err, EPERM, "the sandbox has no user %u", uid);
    }
    *out = uid == ids->uid ? ids->user : uid;
    return 0;
}

int ws_gid_inside(const struct ws_ids *ids, gid_t gid, uint32_t *out,
                  struct err *err)
{
    if (gid != ids->gid && gid >= ids->count) {
        return err_set(err, EPERM, "the sandbox has no group %u", gid);
    }
    *out = gid == ids->gid ? ids->group : gid;
    return 0;
}

uint64_t ws_ino_shown(uint64_t number, uint64_t ino)
{
    const uint64_t top = (uint64_t)1 << 63;
    uint64_t mix;

    if (ino < (uint64_t)1 << 40 && number >> 32 == 0) {
        return top | (number & 0x7fffff) << 40 | ino;
    }
    /* The finaliser of splitmix64: one to one, so inodes stay distinct. */
    mix = ino ^ number * 0x9e3779b97f4a7c15;
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111eb;
    return mix | top | top >> 1;
}

/* For programs without trees over file calls. */
#include "core/workspace.h"

#include <errno.h>

__attribute__((weak)) int ws_new_remote(struct provider *provider,
                                        const struct sandbox *sandbox,
                                        uid_t uid, gid_t gid,
                                        struct workspace **out, struct err *err)
{
    (void)provider;
    (void)sandbox;
    (void)uid;
    (void)gid;
    (void)out;
    return err_set(err, EOPNOTSUPP, "no file calls here");
}

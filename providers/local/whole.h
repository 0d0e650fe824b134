/* Layers for workspaces: what is mounted to be written has whole files only. */
#ifndef SESSIONFS_LOCAL_WHOLE_H
#define SESSIONFS_LOCAL_WHOLE_H

#include "core/cancel.h"

#include <stdint.h>

struct layers;
struct sandbox;
struct volumes;

/* Borrowed. */
struct whole_ask {
    struct layers *layers;
    struct volumes *volumes;
    const struct sandbox *sandbox; /* Whose checkpoint the layer is of. */
    const struct limits *limits;
};

/**
 * Finds or makes a layer that shows what another one shows, with no file in
 * parts: that one itself where it shows none. All workspaces over it share it.
 *
 * @param ask borrowed
 * @param top the other one, which the caller has a reference to
 * @param out the layer, on success; the caller has a reference
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int whole_layer(const struct whole_ask *ask, uint64_t top,
                         uint64_t *out, struct err *err);

#endif

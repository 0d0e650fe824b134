/*
 * What a command is asked to be: the JSON object that is written to
 * `exec.json`, with every value checked.
 *
 *     command | argv   a script for /bin/sh, or a program and its words
 *     cwd              absolute in the sandbox, or below the workspace
 *     env              {NAME: VALUE}, added to the provider's
 *     stdin | stdin_base64
 *     timeout_ms       1 … EXEC_TIMEOUT_MAX, from the command's start
 *     output_mode      a mode of exec_shape
 *     background       true: the queue and the writer do not wait for its end
 *     discard_output   true: what it writes is not kept
 *
 * Texts are bytes, as core/json_bytes.h has them.
 */
#ifndef SESSIONFS_EXEC_REQUEST_H
#define SESSIONFS_EXEC_REQUEST_H

#include "core/exec_shape.h"

enum {
    EXEC_REQUEST_MAX = 8 * 1024 * 1024, /* Bytes of its JSON. */
};
#define EXEC_TIMEOUT_MAX (INT64_C(365) * 24 * 3600 * 1000)

struct exec_request {
    struct buf text;   /* The script; else argv as a shell would read it. */
    const char **argv; /* NULL-terminated; NULL: run the script. */
    char *cwd;         /* NULL: the workspace. */
    const char **env;  /* NULL-terminated "K=V"; NULL: none. */
    bool has_input;
    struct buf input;
    int64_t timeout_ms; /* 0: none. */
    enum shape_mode mode;
    bool background;
    bool discard; /* Its output. */
};

/**
 * Reads a request.
 *
 * @param json borrowed
 * @param size bytes
 * @param out  filled on success; exec_request_done() frees it
 * @param err  filled on failure: which member, and what is wrong
 * @return 0, -EINVAL, -EFBIG for a script over 1 MiB, -ENOMEM
 */
MUST_USE int exec_request_parse(const char *json, size_t size,
                                struct exec_request *out, struct err *err);

/** @param request freed */
void exec_request_done(struct exec_request *request);

#endif

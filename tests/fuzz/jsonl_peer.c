/* What a program of the provider jsonl says. The first byte chooses in what
 * pieces it comes and whether long texts are cut. */
#include "tests/fuzz/fuzz.h"

#include "providers/jsonl/jsonl.h"

#include <fcntl.h>
#include <unistd.h>

enum {
    AHEAD = 64 * 1024, /* As in peer.c. */
    PIPE_ROOM = 64 * 1024,
};

/* Looks at all that a message may hold, as commands do. */
static void take_body(const struct message *message)
{
    static const char *const streams[] = {"data_base64", "stdout_base64",
                                          "stderr_base64"};
    struct answer answer;
    int64_t number = 0;

    for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
        struct buf bytes = BUF_INIT(PEER_LINE_MAX);
        struct err err = ERR_INIT;
        int rc = wire_bytes(message->body, streams[i], &bytes, &err);

        DEMAND_ERR(rc, &err);
        buf_done(&bytes);
    }
    (void)js_text(message->body, "type");
    (void)js_text(message->body, "path");
    (void)wire_int(message->body, "exit_code", &number);
    if (message->kind == MESSAGE_ERROR) {
        struct err err = ERR_INIT;

        answer_init(&answer, 0);
        wire_failure(message->body, &answer);
        DEMAND(wire_is_text(answer.code) || strlen(answer.code) > 40);
        DEMAND(wire_fail(&answer, &err) < 0 && err.code > 0);
        answer_done(&answer);
    }
}

/* Takes what there is, until nothing is or it makes no sense. */
static int take_all(struct peer *peer)
{
    struct err err = ERR_INIT;
    int rc = peer_move(peer, &err);

    while (rc == 0) {
        struct message message = {.body = NULL};

        rc = peer_take(peer, &message, &err);
        DEMAND_ERR(rc, &err);
        if (rc == 0) {
            return 0;
        }
        if (rc > 0) {
            DEMAND(message.body);
            take_body(&message);
            message_done(&message);
            rc = peer_move(peer, &err);
        }
    }
    DEMAND(peer->broken);
    return rc;
}

static struct peer *make_peer(int ends[2])
{
    struct peer *peer = calloc(1, sizeof(*peer));

    DEMAND(peer && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    list_init(&peer->link);
    peer->in = peer->err = -1;
    peer->err_ended = true;
    peer->out = ends[0];
    peer->requests = 3;
    peer->name = strdup("program");
    peer->ahead = malloc(AHEAD);
    DEMAND(peer->name && peer->ahead);
    buf_init(&peer->sent, PEER_LINE_MAX);
    buf_init(&peer->line, PEER_LINE_MAX);
    return peer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    struct peer *peer;
    size_t piece;
    int rc = 0;

    if (!size || size > PIPE_ROOM) {
        return 0;
    }
    peer = make_peer(ends);
    peer->cut = data[0] & 1;
    piece = data[0] & 2 ? 1U + data[0] / 4U : size;
    for (size_t at = 1; at < size && rc == 0; at += piece) {
        size_t n = size - at < piece ? size - at : piece;

        DEMAND(write(ends[1], data + at, n) == (ssize_t)n);
        rc = take_all(peer);
    }
    (void)close(ends[1]);
    peer_kill(peer);
    return 0;
}

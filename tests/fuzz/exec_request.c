/* What is written to exec.json: the end of the object is where it is, however
 * the bytes are cut into writes, and what a request says is checked. */
#include "tests/fuzz/fuzz.h"

#include "core/exec_request.h"

static void check_words(const char *const *words)
{
    for (; words && *words; words++) {
        DEMAND(strlen(*words) <= EXEC_REQUEST_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct exec_request request;
    struct err err = ERR_INIT;
    char *text = fuzz_text(data, size);
    int rc = exec_request_parse(text, size, &request, &err);

    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        DEMAND(strlen(buf_str(&request.text)) == request.text.size);
        DEMAND(request.timeout_ms >= 0);
        DEMAND(request.timeout_ms <= EXEC_TIMEOUT_MAX);
        DEMAND(!request.argv || request.argv[0]);
        check_words(request.argv);
        check_words(request.env);
        for (const char **env = request.env; env && *env; env++) {
            DEMAND(strchr(*env, '='));
        }
        exec_request_done(&request);
    }
    free(text);
    return 0;
}

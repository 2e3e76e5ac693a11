/* Parses any bytes as the body of a request to serve; if it is accepted, everything that follows
 * from it is within its bounds. The first byte chooses a completion or a chat. */
#include "serve/request.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strait_serve_ask ask = {0};
    if (size == 0) return 0;
    const int is_chat = data[0] % 2;
    if (strait_serve_ask_parse((const char *)data + 1, size - 1, is_chat, &ask) == STRAIT_OK) {
        if (strait_sampling_check(&ask.sampling) != STRAIT_OK) abort();
        if (ask.n_tokens < 1 || ask.n_tokens > STRAIT_SERVE_TOKENS_MAX) abort();
        if (ask.n_stops < 0 || ask.n_stops >= STRAIT_STOPS_MAX) abort();
        if (is_chat ? !json_is_array(ask.messages) : ask.prompt == NULL) abort();
    }
    strait_serve_ask_close(&ask);
    return 0;
}

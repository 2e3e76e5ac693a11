/* Requests to a relay, replies from a relay, and relay addresses that people paste. */
#include "net/relay/relay_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

static void check_request(const unsigned char *data) {
    strait_relay_role role;
    strait_relay_token token;
    unsigned char again[STRAIT_RELAY_REQUEST];
    if (strait_relay_request_unpack(data, &role, &token) != STRAIT_OK) return;
    strait_relay_request_pack(role, &token, again);
    if (memcmp(data, again, sizeof again) != 0) abort(); // each request has one encoding
}

static void check_address(const unsigned char *data, size_t bytes) {
    char text[512], where[128], again[512];
    strait_relay_token token;
    if (bytes >= sizeof text) return;
    memcpy(text, data, bytes);
    text[bytes] = 0;
    if (strait_relay_address_parse(text, where, sizeof where, &token) != STRAIT_OK) return;
    if (strait_relay_address_print(where, &token, again, sizeof again) != STRAIT_OK) abort();
    if (strlen(again) != strlen(text)) abort(); // equal except for the case of digits
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes) {
    if (bytes >= STRAIT_RELAY_REQUEST) check_request(data);
    if (bytes >= STRAIT_RELAY_REPLY) (void)strait_relay_reply_unpack(data);
    check_address(data, bytes);
    return 0;
}

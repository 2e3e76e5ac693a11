/* batch_ids.c - token ids of a microbatch as a message. */
#include "swarm/protocol.h"

/* Ids of a small vocabulary take two bytes, which halves the traffic of the host. */
static void put_ids(strait_writer *w, const int32_t *ids, int64_t n, int width) {
    for (int64_t i = 0; i < n; i++)
        strait_writer_uint(w, (uint64_t)(uint32_t)ids[i] & (width == 4 ? UINT32_MAX : UINT16_MAX),
                           width);
}

/* A position without a target is -1, all ones on the wire in both widths. */
static void get_ids(strait_reader *r, int32_t *ids, int64_t n, int width) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)strait_reader_uint(r, width);
        ids[i] = width == 2 && id == UINT16_MAX ? -1 : (int32_t)id;
    }
}

strait_err strait_batch_ids_pack(struct strait_msg_pool *pool, const strait_batch_ids *ids,
                                 struct strait_msg **out) {
    const int width = ids->is_wide ? 4 : 2;
    const int n_arrays = (ids->tokens != NULL) + (ids->targets != NULL);
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_IDS,
                               8 + 4 + (size_t)ids->n * (size_t)(width * n_arrays), out));
    (*out)->flags = (uint8_t)((ids->is_valid ? STRAIT_IDS_VALID : 0) |
                              (ids->tokens != NULL ? STRAIT_IDS_TOKENS : 0) |
                              (ids->targets != NULL ? STRAIT_IDS_TARGETS : 0) |
                              (ids->is_wide ? STRAIT_IDS_WIDE : 0));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_writer_uint(&w, (uint64_t)ids->step, 8);
    strait_writer_uint(&w, (uint64_t)ids->batch, 4);
    if (ids->tokens != NULL) put_ids(&w, ids->tokens, ids->n, width);
    if (ids->targets != NULL) put_ids(&w, ids->targets, ids->n, width);
    return STRAIT_OK;
}

/* The receiver knows how many ids a microbatch has, so any other length is an error. */
strait_err strait_batch_ids_unpack(const struct strait_msg *msg, int32_t *memory, int64_t n,
                                   strait_batch_ids *out) {
    const int has_tokens = (msg->flags & STRAIT_IDS_TOKENS) != 0;
    const int has_targets = (msg->flags & STRAIT_IDS_TARGETS) != 0;
    const int width = (msg->flags & STRAIT_IDS_WIDE) != 0 ? 4 : 2;
    strait_reader r = {msg->body, msg->size, 0};
    *out = (strait_batch_ids){.is_valid = (msg->flags & STRAIT_IDS_VALID) != 0,
                              .n = n,
                              .is_wide = width == 4,
                              .tokens = has_tokens ? memory : NULL,
                              .targets = has_targets ? memory + n : NULL};
    out->step = (int64_t)strait_reader_uint(&r, 8);
    out->batch = (int64_t)strait_reader_uint(&r, 4);
    if (r.is_short || r.left != (size_t)n * (size_t)(width * (has_tokens + has_targets)))
        return STRAIT_FAIL(STRAIT_EPROTO, "a peer sent a malformed microbatch of ids");
    if (has_tokens) get_ids(&r, memory, n, width);
    if (has_targets) get_ids(&r, memory + n, n, width);
    return STRAIT_OK;
}

#include "stage/boundary/crossing_hash.h"

#include <string.h>

void strait_crossing_hash_begin(struct strait_crossing_hash *hash) {
    memset(hash->groups, 0, sizeof hash->groups);
}

strait_err strait_crossing_hash_add(struct strait_crossing_hash *hash, strait_crossing_way way,
                                    const strait_groups *groups, const struct strait_msg *msg) {
    const int group = groups != NULL ? strait_groups_of(groups, msg->microbatch) : 0;
    return hash->is_on ? strait_digest_extend(&hash->groups[way][group], msg->body, msg->size)
                       : STRAIT_OK;
}

strait_err strait_crossing_hash_step(const strait_digest *groups, int n_groups,
                                     strait_digest *out) {
    *out = (strait_digest){{0}};
    for (int i = 0; i < n_groups; i++)
        STRAIT_TRY(strait_digest_extend(out, groups[i].bytes, sizeof groups[i].bytes));
    return STRAIT_OK;
}

/* reach.c - which workers will dial which others (worker/neighbours.c has their rule). */
#include "net/core/address_class.h"
#include "swarm/host/state.h"

#include <string.h>

int strait_host_is_near(const struct connection *a, const struct connection *b) {
    if (a == NULL || b == NULL || a->link == NULL || b->link == NULL) return 0;
    return strait_address_class_of(a->link->address) == STRAIT_ADDRESS_PUBLIC &&
           strait_address_class_of(b->link->address) == STRAIT_ADDRESS_PUBLIC &&
           memcmp(a->link->source_address, b->link->source_address, STRAIT_SOURCE_BYTES) == 0;
}

/* A worker in the class of its own address has most likely reached us in a network of that class. A
 * name has no class before it is resolved: it is tried. */
int strait_host_can_dial(const struct connection *from, const struct connection *to) {
    if (to == NULL || to->address[0] == '\0') return 0;
    const strait_address_class wanted = strait_address_class_of(to->address);
    if (wanted == STRAIT_ADDRESS_NONE || wanted == STRAIT_ADDRESS_PUBLIC || from == NULL ||
        from->link == NULL)
        return 1;
    return wanted == strait_address_class_of(from->link->address) ||
           (wanted == STRAIT_ADDRESS_PRIVATE && strait_host_is_near(from, to));
}

/* without_tls.c - stands in for GnuTLS where the program is linked statically.
 *
 * Debian's libmicrohttpd.a is built with HTTPS and so refers to GnuTLS, which cannot be linked
 * statically (p11-kit has no archive). The page is served over plain HTTP and never asks the
 * library for TLS, so that it calls none of these but the first two, at start and at exit; all
 * others fail, as GnuTLS functions do, with a negative number. */

/* Names and linkage are those of GnuTLS; the arguments do not matter for functions that ignore
 * them. NOLINTBEGIN(*-naming) */
int gnutls_global_init(void);
int gnutls_global_init(void) {
    return 0;
}

void gnutls_global_deinit(void);
void gnutls_global_deinit(void) {
}

void *(*gnutls_malloc)(unsigned long);
void (*gnutls_free)(void *);

#define ABSENT(name) \
    int name(void);  \
    int name(void) { \
        return -1;   \
    }
#include "absent.inc" // one line for each other function that the archive refers to
/* NOLINTEND(*-naming) */

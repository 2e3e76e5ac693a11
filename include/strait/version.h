/* version.h - the version of the headers and of the library. */
#pragma once

#include <strait/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_VERSION "0.1.0"

/* The date of that version, which manual pages show. */
#define STRAIT_VERSION_DATE "2026-11-16"

/* The version of the library that is linked, which may differ from STRAIT_VERSION of the headers
 * that a program was compiled with. Static. Any thread. */
STRAIT_API const char *strait_version(void);

#ifdef __cplusplus
}
#endif

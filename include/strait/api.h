/* api.h - marks what libstrait exports.
 *
 * The library is compiled with hidden visibility: only functions declared with STRAIT_API can be
 * called from outside it. tests/headers/exports.txt lists them all. */
#pragma once

#if defined(__GNUC__)
    #define STRAIT_API               __attribute__((visibility("default")))
    #define STRAIT_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
    #define STRAIT_API
    #define STRAIT_PRINTF(at, first)
#endif

/* mixed.h - deterministic text of many kinds. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Fills `out` with up to n bytes of words, numbers, code, many scripts, spaces and lines. */
static inline size_t make_mixed(char *out, size_t n, uint32_t seed) {
    static const char *const parts[] = {"the ",
                                        "quick ",
                                        "Brown",
                                        " fox",
                                        "'s",
                                        "'ll",
                                        " don't",
                                        "\n",
                                        "\n\n",
                                        "\n",
                                        ".\n",
                                        "  ",
                                        "\t",
                                        "\r\n",
                                        "1",
                                        "23",
                                        "456789",
                                        " 10",
                                        "(x)",
                                        " != ",
                                        "->",
                                        "...",
                                        "é",
                                        "e\xcc\x81",
                                        " naïve",
                                        "Привет",
                                        " мир",
                                        "世界",
                                        "こんにちは",
                                        "한국어",
                                        " مرحبا",
                                        "हिन्दी",
                                        "😀",
                                        "👍🏽",
                                        "\xc2\xa0",
                                        "\xe2\x80\x83",
                                        "\n  ",
                                        " \n",
                                        "for (;;) {\n",
                                        "\tx++;\n}\n",
                                        "<|endoftext|>",
                                        "<|end",
                                        "'S",
                                        ",\n\"",
                                        "!\n'",
                                        "?\n1",
                                        "\n\xc3\xa9",
                                        "\xe3\x80\x80\n",
                                        "a\n",
                                        "b\nc",
                                        "Z"};
    size_t at = 0;
    for (;;) {
        seed = seed * 1664525u + 1013904223u;
        const char *part = parts[(seed >> 12) % (sizeof parts / sizeof *parts)];
        const size_t length = strlen(part);
        if (at + length > n) return at;
        for (size_t i = 0; i < length; i++) // bytes, not a string: no terminating zero
            out[at + i] = part[i];
        at += length;
    }
}

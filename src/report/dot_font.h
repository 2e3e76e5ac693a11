/* dot_font.h - a font of five by seven dots, as character displays have. */
#pragma once

enum {
    STRAIT_DOT_COLUMNS = 5,
    STRAIT_DOT_ROWS = 7
};

/* The columns of a printable ASCII character, its top row in the lowest bit; a box for others. */
const unsigned char *strait_dot_font(char c);

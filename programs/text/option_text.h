/* option_text.h - how the help, the manual and the completions describe the value of an option. */
#pragma once

#include "base/options/options.h"

enum {
    STRAIT_OPTION_VALUE_MAX = 2 * STRAIT_OPTION_TEXT_MAX + 16
};

/* What a key accepts, and its default: "whole number, 1 to 64; default 4". In cmd_options.c. */
void strait_cmd_options_value(const strait_options *table, const strait_option *option,
                              char out[STRAIT_OPTION_VALUE_MAX]);

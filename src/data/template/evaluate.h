/* evaluate.h - expressions of a template that is being rendered. */
#pragma once

#include "data/buffer.h"
#include "data/template/value.h"

struct strait_variable {
    const char *name;
    strait_value value;
    struct strait_variable *next;
};

struct strait_template_state {
    struct strait_render r;
    struct strait_variable *variables; // the newest first; a loop restores those before it
    strait_buffer *text, *marks;
    int depth;
};

/* The value of a variable; undefined if there is none. */
strait_value strait_template_lookup(struct strait_template_state *s, const char *name);
strait_err strait_template_evaluate(struct strait_template_state *s, const strait_node *node,
                                    strait_value *out);

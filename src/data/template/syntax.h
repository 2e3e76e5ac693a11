/* syntax.h - the tree of a template, and the memory of trees and values. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Memory that is released all at once. Zeroed is empty. */
struct strait_arena {
    struct strait_arena_chunk *chunks;
    size_t used, limit; // bytes; in all
};

/* Zeroed bytes. STRAIT_EDATA beyond the limit; STRAIT_ENOMEM: the machine has no memory left. */
strait_err strait_arena_alloc(struct strait_arena *arena, size_t bytes, void **out);
void strait_arena_fini(struct strait_arena *arena);

typedef enum strait_node_kind {
    /* Statements; a block is a list through `next`. */
    STRAIT_NODE_TEXT, // text
    STRAIT_NODE_OUT,  // a
    STRAIT_NODE_IF,   // a: condition, b: block, c: else block
    STRAIT_NODE_FOR,  // text: variable, a: list, b: block, c: else block, d: condition
    STRAIT_NODE_SET,  // text: variable, attribute: of a namespace or NULL, a: value
    /* Expressions. */
    STRAIT_NODE_STRING, // text
    STRAIT_NODE_INT,    // number
    STRAIT_NODE_CONST,  // number: 0 none, 1 false, 2 true
    STRAIT_NODE_NAME,   // text
    STRAIT_NODE_LIST,   // a: elements through `next`
    STRAIT_NODE_UNARY,  // text: "not" or "-", a
    STRAIT_NODE_BINARY, // text: operator, a, b
    STRAIT_NODE_CHOICE, // a if b else c; c may be NULL
    STRAIT_NODE_MEMBER, // a.text
    STRAIT_NODE_INDEX,  // a[b]
    STRAIT_NODE_SLICE,  // a[b:c:d], each may be NULL
    STRAIT_NODE_CALL,   // text(args): a function; a: arguments through `next`
    STRAIT_NODE_METHOD, // b.text(args)
    STRAIT_NODE_FILTER, // b | text(args)
    STRAIT_NODE_TEST,   // b is text; number 1: is not
} strait_node_kind;

typedef struct strait_node {
    strait_node_kind kind;
    const char *text, *attribute; // attribute: also the name of a keyword argument
    size_t n;                     // bytes of text
    int64_t number;
    struct strait_node *a, *b, *c, *d, *next;
} strait_node;

enum {
    STRAIT_TEMPLATE_DEPTH = 64 // nested statements, or expressions
};

/* Where a parser is. */
struct strait_parser {
    struct strait_arena *arena;
    const char *at, *end;
    int depth;
    int has_no_choice; // "if" ends an expression instead of choosing
};

strait_err strait_node_new(struct strait_parser *p, strait_node_kind kind, strait_node **out);
/* Copies n bytes with a terminating zero. */
strait_err strait_node_text(struct strait_parser *p, const char *text, size_t n, const char **out);

/* expression.c: an expression from p->at on; white space before it is skipped. */
strait_err strait_parse_expression(struct strait_parser *p, strait_node **out);
/* The name at p->at, after white space; empty if there is none. */
size_t strait_parse_peek_name(struct strait_parser *p);
/* Whether `token` (an operator or a name) is next; then it is skipped. */
int strait_parse_accept(struct strait_parser *p, const char *token);

/* statement.c: a whole template. */
strait_err strait_parse_template(struct strait_arena *arena, const char *text, size_t n,
                                 strait_node **out);

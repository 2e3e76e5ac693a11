/* subspace_parts.h - what the two files of the subspace codec share. */
#pragma once

#include "codec/builder.h"
#include "codec/subspace.h"

/* Which state is which, and what stands in the book. */
enum {
    BASIS, // [d x k]
    BOOK,  // i32 [1 x BOOK_ENTRIES]
    GRAM   // tail of the last boundary: sum of G' G U [d x k]
};
enum {
    BOOK_VERSION,
    BOOK_LEAKS,       // the last leak was over the limit
    BOOK_UPDATES,     // calls of after_update
    BOOK_CORRECTIONS, // of them, those that corrected a leak
    BOOK_ENTRIES
};

struct strait_subspace {
    int32_t book[BOOK_ENTRIES]; // the truth; the state on the device follows it
    strait_tensor fixed;        // T_fixed [vocab x d]; the head of a middle stage has its tail's
    strait_tensor wide;         // [N x d], of the stream's type where padded
    strait_tensor code;         // [N x k]
    strait_tensor narrow;       // [k x widest]
    strait_tensor turn;         // R = U' U_new [k x k]
    /* Padded: K is k padded, T the type of the stream. */
    strait_tensor crossing;   // [N x K] f32
    strait_tensor side;       // [N x K] T: crossing, rounded
    strait_tensor half_basis; // [d x K] T: a copy
    strait_tensor half_gram;  // [d x K] f32: a share of GRAM on its way
};

strait_err strait_subspace_write_book(struct strait_codec *c, struct strait_stream *s);

int strait_subspace_gathers(const struct strait_codec *c); // whether it has a GRAM

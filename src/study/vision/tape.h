/* tape.h - a small graph of matrix operations with their gradients, for models that the trainer of
 * language models does not have. Plain loops in f32: meant for thousands of values, not for speed.
 *
 * A graph is built once and then run for every batch: fill the values of the inputs, call forward,
 * which returns the loss, then backward, which fills the gradients of every node. One thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct strait_tape;

strait_err strait_tape_open(struct strait_tape **out);
void strait_tape_close(struct strait_tape **tape); // accepts NULL

/* Each appends a node and returns its number; after an error, the number of the first node. Errors,
 * such as shapes that do not fit, are kept and returned by check. A gather takes value index[i] of
 * its input as value i, or 0 where index[i] is -1; the index is copied. attention is the softmax
 * attention of every `tokens` rows among themselves; mean averages every `group` rows. */
int strait_tape_input(struct strait_tape *tape, int rows, int columns);
int strait_tape_param(struct strait_tape *tape, const char *name, int rows, int columns);
int strait_tape_matmul(struct strait_tape *tape, int a, int b);
int strait_tape_add(struct strait_tape *tape, int a, int b);
int strait_tape_relu(struct strait_tape *tape, int a);
int strait_tape_norm(struct strait_tape *tape, int a); // every row divided by its root mean square
int strait_tape_gather(struct strait_tape *tape, int a, int rows, int columns, const int *index);
int strait_tape_attention(struct strait_tape *tape, const int qkv[3], int tokens);
int strait_tape_mean(struct strait_tape *tape, int a, int group);
strait_err strait_tape_check(const struct strait_tape *tape);

/* The values and gradients of a node, [rows x columns]. */
float *strait_tape_values(struct strait_tape *tape, int number);
float *strait_tape_gradients(struct strait_tape *tape, int number);
int strait_tape_rows(const struct strait_tape *tape, int number);
int strait_tape_columns(const struct strait_tape *tape, int number);

/* The i-th parameter's node, -1 past the last, and its name. */
int strait_tape_param_at(const struct strait_tape *tape, int i);
const char *strait_tape_name(const struct strait_tape *tape, int number);

/* The mean cross-entropy of the last node's rows, as logits, with the labels, one per row. */
double strait_tape_forward(struct strait_tape *tape, const int *labels);
void strait_tape_backward(struct strait_tape *tape, const int *labels);

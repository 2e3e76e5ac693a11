/* background.h - continues a command in a process without a terminal. */
#pragma once

#include <strait/error.h>

/* Where the child reports to, or the parent listens; -1: the command runs in the foreground. */
typedef struct strait_background {
    int fd;
    int is_parent;
} strait_background;

/* Splits the process in two. The child has a session of its own and no standard input; its output
 * stays where it is until strait_background_log. STRAIT_ENOMEM. */
strait_err strait_background_begin(strait_background *out);

/* In the child: appends standard output and error to a file that only this user can read. */
strait_err strait_background_log(const char *path);

/* In the child: tells the parent that the command has begun, or why it cannot. Does nothing in the
 * foreground, and nothing the second time. */
void strait_background_report(strait_background *b, strait_err err, const char *text);

/* In the parent: waits for that. Returns the child's error, or STRAIT_OK with its text in `out`. */
strait_err strait_background_wait(strait_background *b, char *out, int capacity);

#include "approval.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    APPROVED_MAX = 256,
    APPROVED_LEAST = 16, // digits of a key; fewer would be easy to match by generating keys
};

/* Reads the next word of hexadecimal digits from standard input without blocking, because it is
 * called from the event loop. Returns 0 when none is complete. */
static int read_word(char out[STRAIT_FINGERPRINT_TEXT]) {
    static char word[STRAIT_FINGERPRINT_TEXT];
    static size_t n;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char c = 0;
    while (poll(&input, 1, 0) == 1 && (input.revents & POLLIN) != 0 &&
           read(STDIN_FILENO, &c, 1) == 1) {
        if (strchr("0123456789abcdef", c) != NULL && c != '\0' && n + 1 < sizeof word) {
            word[n++] = c;
            continue;
        }
        if (n == 0) continue;
        memset(out, 0, STRAIT_FINGERPRINT_TEXT);
        memcpy(out, word, n);
        n = 0;
        return 1;
    }
    return 0;
}

/* The keys that asked to join, and what was typed to admit some of them. */
static struct {
    char typed[APPROVED_MAX][STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint asked[APPROVED_MAX];
    int n_typed, n_asked;
} approval;

/* Returns how many of the keys that asked begin with these digits. */
static int count_asked(const char *digits) {
    char text[STRAIT_FINGERPRINT_TEXT];
    int n = 0;
    for (int i = 0; i < approval.n_asked; i++) {
        strait_fingerprint_text(&approval.asked[i], text);
        n += strncmp(text, digits, strlen(digits)) == 0;
    }
    return n;
}

/* Takes what was typed. Too few digits, or digits of several keys, admit nobody. */
static void read_typed(void (*noted)(void *user, const char *text), void *user) {
    char word[STRAIT_FINGERPRINT_TEXT], line[256];
    while (approval.n_typed < APPROVED_MAX && read_word(word)) {
        const int n = count_asked(word);
        if (strlen(word) >= APPROVED_LEAST && n <= 1) {
            memcpy(approval.typed[approval.n_typed++], word, sizeof *approval.typed);
            continue;
        }
        (void)snprintf(line, sizeof line, "nobody was admitted: '%s' %s", word,
                       n > 1 ? "begins several keys that asked; type a whole key"
                             : "is too short; type at least 16 digits of the key");
        noted(user, line);
    }
}

int strait_approval_is_given(const strait_fingerprint *key, const char *name,
                             void (*noted)(void *user, const char *text), void *user) {
    char text[STRAIT_FINGERPRINT_TEXT], line[256];
    strait_fingerprint_text(key, text);
    read_typed(noted, user);
    int is_known = 0;
    for (int i = 0; i < approval.n_asked; i++)
        is_known |= strait_fingerprint_equal(&approval.asked[i], key);
    if (!is_known && approval.n_asked < APPROVED_MAX) approval.asked[approval.n_asked++] = *key;
    for (int i = 0; i < approval.n_typed; i++)
        if (strncmp(text, approval.typed[i], strlen(approval.typed[i])) == 0 &&
            count_asked(approval.typed[i]) <= 1)
            return 1;
    if (is_known) return 0;
    (void)snprintf(line, sizeof line, "worker '%s' asks to join: type %s and Enter to admit it",
                   name, text);
    noted(user, line);
    return 0;
}

#include "bench_against.h"

#include "base/program.h"
#include "report/statistics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    COMMAND_MAX = 8192,
    LINE_MAX_BYTES = 65536
};

/* One program's speeds, in tokens per second. */
struct speeds {
    double values[STRAIT_BENCH_PAIRS];
};

/* Appends a word so that a shell reads it back as it is. */
static strait_err append_quoted(char out[COMMAND_MAX], const char *word) {
    size_t n = strlen(out);
    for (const char *c = word; n + 8 < COMMAND_MAX; c++) {
        if (c == word) n += (size_t)snprintf(out + n, COMMAND_MAX - n, "%s'", n > 0 ? " " : "");
        if (*c == '\0') {
            (void)snprintf(out + n, COMMAND_MAX - n, "'");
            return STRAIT_OK;
        }
        n += (size_t)snprintf(out + n, COMMAND_MAX - n, *c == '\'' ? "'\\''" : "%c", *c);
    }
    return STRAIT_FAIL(STRAIT_ECONFIG, "--against: the command line is too long");
}

/* Whether a word is a flag of this comparison, and whether its value is the next word. */
static int is_own_flag(const char *word, int *has_value) {
    static const char *const names[] = {"--against", "--pairs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(word, names[i], n) != 0 || (word[n] != '\0' && word[n] != '=')) continue;
        *has_value = word[n] == '\0';
        return 1;
    }
    return 0;
}

/* The command line of this process without the flags of the comparison. */
static strait_err own_command(char out[COMMAND_MAX]) {
    char words[COMMAND_MAX];
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t n = file != NULL ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file != NULL) (void)fclose(file);
    if (n == 0) return STRAIT_FAIL(STRAIT_EIO, "/proc/self/cmdline: cannot be read");
    words[n] = '\0';
    out[0] = '\0';
    char program[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_program_path(program));
    STRAIT_TRY(append_quoted(out, program));
    for (const char *word = words + strlen(words) + 1; word < words + n; word += strlen(word) + 1) {
        int has_value = 0;
        if (!is_own_flag(word, &has_value))
            STRAIT_TRY(append_quoted(out, word));
        else if (has_value)
            word += strlen(word) + 1;
    }
    return STRAIT_OK;
}

/* Runs a command and reads the last "tokens_per_s" that it prints. */
static strait_err measure(const char *command, double *out) {
    static const char key[] = "\"tokens_per_s\":";
    static char line[LINE_MAX_BYTES];
    *out = 0.0;
    (void)fflush(stdout);
    FILE *pipe = popen(command, "r"); // NOLINT(bugprone-command-processor): the user's own command
    if (pipe == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: cannot be started", command);
    while (fgets(line, sizeof line, pipe) != NULL) {
        const char *found = strstr(line, key);
        if (found != NULL) *out = strtod(found + sizeof key - 1, NULL);
    }
    const int status = pclose(pipe);
    if (status != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" ended with code %d", command,
                           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (*out > 0.0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" printed no line with \"tokens_per_s\"", command);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct speeds *speeds, int n) {
    struct speeds sorted = *speeds;
    qsort(sorted.values, (size_t)n, sizeof *sorted.values, by_value);
    return n % 2 == 1 ? sorted.values[n / 2]
                      : 0.5 * (sorted.values[n / 2 - 1] + sorted.values[n / 2]);
}

/* The ratio of each pair, because the speed of a machine drifts between pairs. */
static void print_summary(const struct speeds *ours, const struct speeds *theirs, int n) {
    struct speeds ratios;
    double least = 1e300, most = 0.0;
    for (int i = 0; i < n; i++) {
        const double ratio = ratios.values[i] = ours->values[i] / theirs->values[i];
        if (ratio < least) least = ratio;
        if (ratio > most) most = ratio;
    }
    const strait_estimate mean = strait_estimate_mean(ratios.values, n);
    printf("{\"bench\": \"against\", \"pairs\": %d, \"tokens_per_s\": %.1f, "
           "\"reference_tokens_per_s\": %.1f, \"ratio\": %.4f, \"ratio_least\": %.4f, "
           "\"ratio_most\": %.4f, \"ratio_mean\": %.4f",
           n, median(ours, n), median(theirs, n), median(&ratios, n), least, most, mean.mean);
    if (n > 1) printf(", \"ratio_half_95\": %.4f", mean.half);
    printf("}\n");
}

strait_err strait_bench_against(const char *command, int n_pairs) {
    static struct speeds ours, theirs;
    char own[COMMAND_MAX];
    STRAIT_TRY(own_command(own));
    for (int i = 0; i < n_pairs; i++) {
        /* Each begins every other pair: a load that grows or falls favours neither. */
        const int we_begin = i % 2 == 0;
        STRAIT_TRY(
            measure(we_begin ? own : command, we_begin ? &ours.values[i] : &theirs.values[i]));
        STRAIT_TRY(
            measure(we_begin ? command : own, we_begin ? &theirs.values[i] : &ours.values[i]));
        printf("{\"bench\": \"pair\", \"tokens_per_s\": %.1f, \"reference_tokens_per_s\": %.1f, "
               "\"ratio\": %.4f}\n",
               ours.values[i], theirs.values[i], ours.values[i] / theirs.values[i]);
    }
    print_summary(&ours, &theirs, n_pairs);
    return STRAIT_OK;
}

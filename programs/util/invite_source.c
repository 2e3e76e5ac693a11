/* invite_source.c - see invite_source.h. Arguments of a program are visible to other users of the
 * machine; a file, standard input and the environment are not. */
#include "invite_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static strait_err read_line(FILE *file, const char *name, char out[STRAIT_INVITE_LINE]) {
    if (fgets(out, STRAIT_INVITE_LINE, file) != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "%s: no invite in it", name);
}

strait_err strait_invite_read_input(char out[STRAIT_INVITE_LINE]) {
    return read_line(stdin, "standard input", out);
}

strait_err strait_invite_from(const strait_command *command, int n_args, const char **args,
                              const char *file, strait_invite *out) {
    const char *environment = getenv("STRAIT_INVITE"); // NOLINT(concurrency-mt-unsafe)
    char line[STRAIT_INVITE_LINE];
    if (file != NULL && n_args > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "give the invite or --invite-file FILE, not both");
    if (file != NULL) {
        FILE *opened = fopen(file, "re");
        if (opened == NULL) {
            char reason[128] = "";
            (void)strerror_r(errno, reason, sizeof reason);
            return STRAIT_FAIL(STRAIT_EIO, "--invite-file %s: %s", file, reason);
        }
        const strait_err err = read_line(opened, file, line);
        (void)fclose(opened);
        STRAIT_TRY(err);
        return strait_invite_parse(line, out);
    }
    if (n_args == 0 && environment != NULL) {
        const strait_err err = strait_invite_parse(environment, out);
        if (err != STRAIT_OK) strait_err_prefix("STRAIT_INVITE");
        return err;
    }
    STRAIT_TRY(strait_args_expect_one(command, "invite, the line that \"strait host\" printed",
                                      NULL, n_args, args));
    if (strcmp(args[0], "-") != 0) return strait_invite_parse(args[0], out);
    STRAIT_TRY(strait_invite_read_input(line));
    return strait_invite_parse(line, out);
}

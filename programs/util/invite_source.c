#include "invite_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first line of a file. */
static strait_err read_invite(FILE *file, const char *name, strait_invite *out) {
    char line[2 * STRAIT_INVITE_TEXT];
    const char *got = fgets(line, sizeof line, file);
    if (got == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: no invite in it", name);
    return strait_invite_parse(line, out);
}

strait_err strait_invite_from(const strait_command *command, int n_args, const char **args,
                              const char *file, strait_invite *out) {
    const char *environment = getenv("STRAIT_INVITE");
    if (file != NULL && n_args > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "give the invite or --invite-file FILE, not both");
    if (file != NULL) {
        FILE *opened = fopen(file, "re");
        if (opened == NULL)
            return STRAIT_FAIL(STRAIT_EIO, "--invite-file %s: %s", file, strerror(errno));
        const strait_err err = read_invite(opened, file, out);
        (void)fclose(opened);
        return err;
    }
    if (n_args == 0 && environment != NULL) {
        const strait_err err = strait_invite_parse(environment, out);
        if (err != STRAIT_OK) strait_err_prefix("STRAIT_INVITE");
        return err;
    }
    STRAIT_TRY(strait_args_expect_one(command, "invite, the line that \"strait host\" printed",
                                      NULL, n_args, args));
    if (strcmp(args[0], "-") == 0) return read_invite(stdin, "standard input", out);
    return strait_invite_parse(args[0], out);
}

#include "device_auto.h"

#include "backend/backend.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writes the name of the device, or why it cannot be used; ends with 0 or 1. */
static void try_device(int ordinal, int out) {
    struct strait_backend *backend = NULL;
    const strait_err err = strait_backend_open(
        (strait_backend_spec){.name = "cuda", .ordinal = ordinal}, &backend);
    const char *text = err == STRAIT_OK ? backend->ops->describe(backend) : strait_err_detail();
    (void)!write(out, text, strlen(text));
    _exit(err == STRAIT_OK ? 0 : 1);
}

/* Advice to use the processor is left out: that is what happens. */
static void drop_advice(char *reason) {
    char *advice = strstr(reason, ": set device.kind");
    if (advice != NULL) *advice = '\0';
}

const char *strait_device_auto(int ordinal, char reason[STRAIT_DEVICE_REASON]) {
    int ends[2], status = 1;
    ssize_t n = 0;
    (void)snprintf(reason, STRAIT_DEVICE_REASON, "a GPU could not be looked for");
    if (pipe(ends) != 0) return "cpu";
    const pid_t child = fork();
    if (child == 0) try_device(ordinal, ends[1]);
    (void)close(ends[1]);
    size_t used = 0;
    while (child > 0 && used + 1 < STRAIT_DEVICE_REASON &&
           (n = read(ends[0], reason + used, STRAIT_DEVICE_REASON - 1 - used)) > 0)
        used += (size_t)n;
    if (used > 0) reason[used] = '\0';
    (void)close(ends[0]);
    if (child > 0) (void)waitpid(child, &status, 0);
    drop_advice(reason);
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "cuda" : "cpu";
}

#include "base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MemAvailable also counts caches that the kernel would drop; free pages alone are far too few on a
 * machine that has read its shards. */
double strait_machine_spare_bytes(void) {
    FILE *meminfo = fopen("/proc/meminfo", "re");
    char line[128];
    double kilobytes = 0.0;
    static const char key[] = "MemAvailable:";
    while (meminfo != NULL && kilobytes == 0.0 && fgets(line, sizeof line, meminfo) != NULL)
        if (strncmp(line, key, sizeof key - 1) == 0)
            kilobytes = strtod(line + sizeof key - 1, NULL);
    if (meminfo != NULL) (void)fclose(meminfo);
    if (kilobytes > 0.0) return 1024.0 * kilobytes;
    return (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

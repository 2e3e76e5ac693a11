#include "base/machine.h"

#include <stdio.h>
#include <unistd.h>

double strait_machine_spare_bytes(void) {
    FILE *facts = fopen("/proc/meminfo", "re");
    char line[128];
    double kilobytes = 0.0;
    while (facts != NULL && kilobytes == 0.0 && fgets(line, sizeof line, facts) != NULL)
        if (sscanf(line, "MemAvailable: %lf kB", &kilobytes) != 1) kilobytes = 0.0;
    if (facts != NULL) (void)fclose(facts);
    if (kilobytes > 0.0) return 1024.0 * kilobytes;
    return (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

#include "base/machine.h"

#include <stdio.h>
#include <unistd.h>

double strait_machine_spare_bytes(void) {
    FILE *meminfo = fopen("/proc/meminfo", "re");
    char line[128];
    double kilobytes = 0.0;
    while (meminfo != NULL && kilobytes == 0.0 && fgets(line, sizeof line, meminfo) != NULL)
        if (sscanf(line, "MemAvailable: %lf kB", &kilobytes) != 1) kilobytes = 0.0;
    if (meminfo != NULL) (void)fclose(meminfo);
    if (kilobytes > 0.0) return 1024.0 * kilobytes;
    return (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* machine.h - the free resources of this machine. */
#pragma once

/* Bytes of memory that are available now, including caches that the kernel would drop. 0: unknown.
 */
double strait_machine_spare_bytes(void);

/* machine.h - what the machine at hand has to spare. */
#pragma once

/* Bytes of memory that could be had now: what the kernel would give up of its caches included. */
double strait_machine_spare_bytes(void);

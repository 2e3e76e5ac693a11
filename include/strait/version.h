/* version.h - which strait this is. */
#pragma once

#define STRAIT_VERSION "0.1.0"

/* The day of that version, which manual pages bear. */
#define STRAIT_VERSION_DATE "2026-11-16"

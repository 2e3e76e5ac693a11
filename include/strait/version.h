/* version.h - which strait this is. */
#pragma once

#define STRAIT_VERSION "0.1.0"

/* other_version.h - included before every other line of the files that know the protocol's version:
 * they are compiled once more, as in a release whose version is one higher. */
#pragma once

#include "net/core/frame.h"

#define STRAIT_FRAME_VERSION (STRAIT_FRAME_VERSION + 1) // the inner name is the constant of frame.h

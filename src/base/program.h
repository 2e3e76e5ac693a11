/* program.h - where the strait program and the files installed with it are.
 *
 * The code may run inside the program itself or, as a library, inside a program of someone else.
 * /proc/self/exe tells the two apart badly, so the path is either set (strait_set_program) or found
 * from the place of the library. */
#pragma once

#include <strait/program.h>

#include "base/file.h"

/* The program that stages run: the one set, or the first found. STRAIT_ECONFIG says where it was
 * looked for. Any thread. */
strait_err strait_program_path(char out[STRAIT_PATH_MAX]);

/* The folder of the program that was set, or of the shared library or executable that this code is
 * part of; no slash at its end, empty when unknown. Any thread. */
void strait_program_folder(char out[STRAIT_PATH_MAX]);

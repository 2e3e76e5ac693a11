/* remote_code.h - the Python files of exported models that no class of transformers can hold. CMake
 * turns configuration_strait.py and modeling_strait.py of this folder into these arrays. */
#pragma once

#include <stddef.h>

extern const unsigned char strait_configuration_py[], strait_modeling_py[];
extern const size_t strait_configuration_py_bytes, strait_modeling_py_bytes;

/* strait.h - all of the library. */
#pragma once

#include <strait/error.h>
#include <strait/run.h>
#include <strait/trainer.h>
#include <strait/version.h>

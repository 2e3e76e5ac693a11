/* adamw.h - what AdamW needs to know of a parameter; the arithmetic is the backend's. */
#pragma once

#include "optim/optimizer.h"

/* The shape of the second moment, without memory. */
strait_tensor strait_adamw_second(strait_optim_kind kind, const strait_param *param);

strait_adamw_params strait_adamw_at(const strait_optim_spec *spec, strait_role role, int64_t step,
                                    float rate_factor);

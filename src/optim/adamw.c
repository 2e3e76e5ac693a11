#include "optim/adamw.h"

strait_tensor strait_adamw_second(strait_optim_kind kind, const strait_param *param) {
    strait_tensor v = {NULL, STRAIT_F32, param->value.rows, param->value.cols};
    if (kind != STRAIT_OPTIM_ADAMW_ROWS || strait_role_is_gain(param->role)) return v;
    if (strait_role_is_table(param->role))
        v.cols = 1; // an input is a token, which owns a row
    else
        v.rows = 1;
    return v;
}

strait_adamw_params strait_adamw_at(const strait_optim_spec *spec, strait_role role, int64_t step,
                                    float rate_factor) {
    return (strait_adamw_params){
        .learning_rate = strait_optim_rate(&spec->groups[role], step, rate_factor),
        .beta1 = spec->beta1,
        .beta2 = spec->beta2,
        .epsilon = spec->epsilon,
        .weight_decay = spec->groups[role].decay,
        .step = step,
    };
}

/* ref_conv_rotate.c - a convolution and the rotation after it: the two kernels one after the
 * other. */
#include "backend/cpu/cpu.h"
#include "backend/unfused.h"

void strait_ref_conv_rotate(struct strait_kernel_set *set) {
    set->conv_rotate.forward = strait_conv_rotate_unfused;
    set->conv_rotate.back = strait_conv_rotate_back_unfused;
}

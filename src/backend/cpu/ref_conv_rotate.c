/* ref_conv_rotate.c - a convolution and the rotation after it: the two kernels one after the
 * other. */
#include "backend/apart.h"
#include "backend/cpu/cpu.h"

void strait_ref_conv_rotate(struct strait_kernel_set *set) {
    set->conv_rotate.forward = strait_conv_rotate_apart;
    set->conv_rotate.back = strait_conv_rotate_back_apart;
}

/* doctor_cuda.c - NVIDIA driver, devices, libraries and kernels; and which device will compute. */
#include "backend/backend.h"
#include "backend/cuda/info.h"
#include "doctor.h"
#include "progress.h"

#include <stdio.h>
#include <string.h>

/* Asked once per process: initialising the driver takes a moment. */
static const struct strait_cuda_info *cuda_info(void) {
    static struct strait_cuda_info found;
    static int is_known;
    if (!is_known && strait_cuda_get_info(&found) != STRAIT_OK)
        (void)snprintf(found.problem, sizeof found.problem, "%s", strait_err_detail());
    is_known = 1;
    return &found;
}

/* Less than half the memory free usually means that another program trains there. */
static void look_at_device(struct strait_doctor *doctor, int ordinal,
                           const strait_cuda_device_info *device) {
    char name[32], all[32], free_bytes[32];
    (void)snprintf(name, sizeof name, "device %d", ordinal);
    strait_progress_bytes((double)device->memory, all);
    strait_progress_bytes((double)device->free, free_bytes);
    if (device->free < device->memory / 2)
        strait_doctor_note(doctor, name, "nvidia-smi lists the programs that use it",
                           "%s, sm_%d%d, %s, only %s free", device->name, device->major,
                           device->minor, all, free_bytes);
    else
        strait_doctor_fact(doctor, name, "%s, sm_%d%d, %s, %s free", device->name, device->major,
                           device->minor, all, free_bytes);
}

/* A missing library is a fact here: whether it matters is said under "problem". */
static void look_at_file(struct strait_doctor *doctor, const char *name, const char *path,
                         const char *absent) {
    strait_doctor_fact(doctor, name, "%s", path[0] != '\0' ? path : absent);
}

/* Without a driver there is nothing to list but the reason. */
void strait_doctor_cuda(struct strait_doctor *doctor) {
    const struct strait_cuda_info *s = cuda_info();
    if (s->has_driver) {
        strait_doctor_fact(doctor, "driver", "for CUDA up to %d.%d", s->driver_version / 1000,
                           s->driver_version % 1000 / 10);
        for (int i = 0; i < s->n_devices; i++)
            look_at_device(doctor, i, &s->devices[i]);
        look_at_file(doctor, "cublasLt", s->cublas, "not found");
        look_at_file(doctor, "cudnn", s->cudnn, "not found: attention has kernels of its own");
        look_at_file(doctor, "kernels", s->module, "not found");
    }
    if (s->problem[0] == '\0') return;
    if (doctor->device != NULL && strcmp(doctor->device, "cuda") == 0)
        strait_doctor_fault(doctor, STRAIT_EDEVICE, "problem", "", "%s", s->problem);
    else
        strait_doctor_note(doctor, "problem", "", "%s", s->problem);
}

/* Opens the device as training does, and closes it. */
static int is_usable(struct strait_doctor *doctor, const char *kind, strait_dtype precision) {
    struct strait_backend *backend = NULL;
    const strait_backend_spec spec = {.name = kind, .precision = precision};
    const strait_err err = strait_backend_open(spec, &backend);
    if (err == STRAIT_OK)
        strait_doctor_fact(doctor, kind, "%s", backend->ops->describe(backend));
    else if (doctor->device != NULL && strcmp(doctor->device, kind) == 0)
        strait_doctor_fault(doctor, err, kind, "", "%s", strait_err_detail());
    else
        strait_doctor_note(doctor, kind, "", "%s", strait_err_detail());
    strait_backend_close(&backend);
    return err == STRAIT_OK;
}

/* Tries what training would do: a device that is listed may still fail to open. */
void strait_doctor_use(struct strait_doctor *doctor) {
    const struct strait_cuda_info *s = cuda_info();
    const int is_cpu = doctor->device != NULL && strcmp(doctor->device, "cpu") == 0;
    const int has_cuda = !is_cpu && s->n_devices > 0 && s->problem[0] == '\0';
    const char *why = NULL;
    const strait_dtype precision = strait_backend_precision("cuda", 0, &why);
    const int uses_cuda = has_cuda && is_usable(doctor, "cuda", precision);
    if (!uses_cuda && doctor->device != NULL && !is_cpu) return; // the fault is already reported
    if (!uses_cuda) {
        char kernels[STRAIT_BACKEND_KERNELS];
        (void)is_usable(doctor, "cpu", STRAIT_F32);
        strait_backend_name_kernels("cpu", STRAIT_BF16, kernels, sizeof kernels);
        strait_doctor_fact(doctor, "cpu with bf16", "%s", kernels);
    }
    strait_doctor_fact(doctor, "device.kind", "%s", uses_cuda ? "cuda" : "cpu");
    const int n = strait_backend_count("cuda");
    if (uses_cuda && n > 1)
        strait_doctor_fact(doctor, "device.ordinal",
                           "0 to %d; auto: stage i computes on device i modulo %d", n - 1, n);
    else if (uses_cuda)
        strait_doctor_fact(doctor, "device.ordinal", "0, the only device: stages share it");
    strait_doctor_fact(doctor, "device.precision", "%s%s%s",
                       uses_cuda && precision == STRAIT_BF16 ? "bf16" : "fp32",
                       uses_cuda && why != NULL ? ": " : "", uses_cuda && why != NULL ? why : "");
    if (!uses_cuda) return;
    strait_doctor_fact(doctor, "fp8", "%s",
                       s->devices[0].major >= STRAIT_CUDA_FP8_MAJOR
                           ? "yes, where device.precision is fp8"
                           : "no: devices before sm_90 have no such products");
}

/* distance.c - compares the results of devices that round differently, by the values of their
 * snapshots. */
#include "base/bytes.h"
#include "swarm/host/audit/evidence.h"
#include "swarm/snapshot/header.h"
#include "swarm/snapshot/snapshot.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 16384 // bytes read at a time; a multiple of every width
};

/* What is summed over one tensor. */
struct sums {
    double difference, change, value;
};

static double value_at(const unsigned char *at, strait_dtype dtype) {
    uint32_t bits = dtype == STRAIT_BF16 ? (uint32_t)strait_get_u16(at) << 16 : strait_get_u32(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void add(struct sums *sums, const unsigned char *const chunks[3], size_t bytes,
                strait_dtype dtype) {
    const size_t width = strait_dtype_bytes(dtype);
    for (size_t i = 0; i < bytes; i += width) {
        const double a = value_at(chunks[0] + i, dtype), b = value_at(chunks[1] + i, dtype);
        const double s = chunks[2] != NULL ? value_at(chunks[2] + i, dtype) : 0.0;
        sums->difference += (a - b) * (a - b);
        sums->change += (a - s) * (a - s);
        sums->value += a * a;
    }
}

/* A tensor that the interval hardly changed is compared with itself: rounding is relative to its
 * values. Numbers that are not finite are as far apart as can be. */
static double distance_of(const struct sums *sums) {
    const double least = 1e-6;
    const double scale = sqrt(sums->change) + least * sqrt(sums->value);
    if (sums->difference == 0.0) return 0.0;
    const double distance = sqrt(sums->difference) / scale;
    return isfinite(distance) ? distance : HUGE_VAL;
}

static strait_err compare_tensor(const struct strait_evidence *const all[3], size_t at,
                                 const strait_snapshot_tensor *tensor, double *out) {
    unsigned char memory[3][CHUNK];
    struct sums sums = {0};
    const int is_number = tensor->dtype == STRAIT_F32 || tensor->dtype == STRAIT_BF16;
    for (size_t done = 0; done < tensor->bytes;) {
        const size_t left = tensor->bytes - done;
        const size_t n = left < CHUNK ? left : CHUNK;
        const unsigned char *chunks[3] = {NULL};
        for (int k = 0; k < 3; k++) {
            if (all[k] == NULL) continue;
            STRAIT_TRY(strait_evidence_read(all[k], at + done, memory[k], n));
            chunks[k] = memory[k];
        }
        if (is_number)
            add(&sums, chunks, n, tensor->dtype);
        else if (memcmp(memory[0], memory[1], n) != 0) // only the third may be absent
            sums.difference = HUGE_VAL;
        done += n;
    }
    const double distance = distance_of(&sums);
    if (distance > *out) *out = distance;
    return STRAIT_OK;
}

/* Returns whether the list of tensors at the beginning is that of the stage. */
static strait_err has_header(const struct strait_evidence *e, const struct strait_snapshot *header,
                             int *out) {
    unsigned char chunk[CHUNK];
    for (size_t at = 0; at < header->bytes && *out;) {
        const size_t left = header->bytes - at;
        const size_t n = left < CHUNK ? left : CHUNK;
        STRAIT_TRY(strait_evidence_read(e, at, chunk, n));
        *out = memcmp(chunk, header->data + at, n) == 0;
        at += n;
    }
    return STRAIT_OK;
}

static strait_err compare(const struct strait_evidence *const all[3],
                          const struct strait_snapshot *header, double *out) {
    int is_snapshot = 1;
    int n = 0;
    for (int k = 0; k < 3; k++)
        if (all[k] != NULL) STRAIT_TRY(has_header(all[k], header, &is_snapshot));
    if (!is_snapshot) {
        *out = HUGE_VAL;
        return STRAIT_OK;
    }
    strait_reader r = {header->data, header->bytes, 0};
    size_t at = header->bytes;
    STRAIT_TRY(strait_snapshot_header_read_count(&r, &n));
    for (int i = 0; i < n; i++) {
        strait_snapshot_tensor tensor;
        STRAIT_TRY(strait_snapshot_header_read_tensor(&r, &tensor));
        STRAIT_TRY(compare_tensor(all, at, &tensor, out));
        at += tensor.bytes;
    }
    return STRAIT_OK;
}

strait_err strait_evidence_distance(const strait_run_plan *plan, const struct strait_evidence *a,
                                    const struct strait_evidence *b,
                                    const struct strait_evidence *start, double *out) {
    const struct strait_evidence *const all[3] = {a, b, start};
    struct strait_snapshot header = {0};
    *out = 0.0;
    strait_err err = strait_snapshot_expected_header(plan, a->spec.stage, &header);
    if (err == STRAIT_OK) err = compare(all, &header, out);
    strait_snapshot_fini(&header);
    return err;
}

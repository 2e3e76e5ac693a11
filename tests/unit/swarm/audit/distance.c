/* How far two snapshots are apart, relative to what an interval changed. */
#include "../../config/tiny_run.h"
#include "base/alloc.h"
#include "base/bytes.h"
#include "swarm/host/audit/evidence.h"
#include "swarm/snapshot/snapshot.h"

#include <math.h>

static strait_run_plan plan;
static struct strait_evidence start, owner, auditor;

/* Fills a snapshot of stage 0 with one value; the last value is another. */
static void fill(struct strait_evidence *e, const char *folder, float value, float last) {
    strait_evidence_spec spec = {.folder = folder, .from = 8, .to = 8, .groups = {1, 1, 1}};
    struct strait_snapshot header = {0};
    unsigned char *data = NULL;
    CHECK_OK(strait_snapshot_expected_bytes(&plan, 0, &spec.snapshot_bytes));
    CHECK_OK(strait_snapshot_expected_header(&plan, 0, &header));
    CHECK_OK(strait_alloc(1, spec.snapshot_bytes, "snapshot", (void **)&data));
    memcpy(data, header.data, header.bytes);
    for (size_t at = header.bytes; at + 4 <= spec.snapshot_bytes; at += 4)
        memcpy(data + at, at + 8 <= spec.snapshot_bytes ? &value : &last, 4);
    strait_evidence_fini(e);
    CHECK_OK(strait_evidence_init(e, &spec));
    const strait_piece piece = {
        .step = 8, .total = spec.snapshot_bytes, .data = data, .bytes = spec.snapshot_bytes};
    CHECK_OK(strait_evidence_add_piece(e, &piece));
    strait_alloc_free(data);
    strait_snapshot_fini(&header);
}

static double distance(int has_start) {
    double out = -1.0;
    CHECK_OK(strait_evidence_distance(&plan, &owner, &auditor, has_start ? &start : NULL, &out));
    return out;
}

static void is_relative_to_what_changed(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    CHECK_OK(strait_run_plan_init(&run, 300, &plan));
    fill(&start, folder.path, 1.0f, 1.0f);
    fill(&owner, folder.path, 1.1f, 1.1f);
    fill(&auditor, folder.path, 1.1f, 1.1f);
    assert_true(distance(1) == 0.0);
    fill(&auditor, folder.path, 1.12f, 1.12f); // a fifth more than the owner changed
    assert_true(fabs(distance(1) - 0.2) < 1e-3);
    assert_true(fabs(distance(0) - 0.02 / 1.1) < 1e-3); // from the seed: relative to the values
    fill(&owner, folder.path, 1.0f, 1.0f);              // changed nothing
    assert_true(distance(1) > 1000.0);
    fill(&auditor, folder.path, 1.0f, NAN);
    assert_true(isinf(distance(1)));
    fill(&auditor, folder.path, 1.0f, 1.5f); // one value in one tensor
    assert_true(distance(1) > 1000.0);
    scratch_close(&folder);
}

static void tells_other_bytes_apart(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    CHECK_OK(strait_run_plan_init(&run, 300, &plan));
    fill(&owner, folder.path, 1.0f, 1.0f);
    fill(&auditor, folder.path, 1.0f, 1.0f);
    const strait_evidence_spec spec = auditor.spec;
    strait_evidence_fini(&auditor);
    CHECK_OK(strait_evidence_init(&auditor, &spec));
    unsigned char *zeros = NULL;
    CHECK_OK(strait_alloc(1, spec.snapshot_bytes, "zeros", (void **)&zeros));
    const strait_piece piece = {
        .step = 8, .total = spec.snapshot_bytes, .data = zeros, .bytes = spec.snapshot_bytes};
    CHECK_OK(strait_evidence_add_piece(&auditor, &piece)); // without the list of tensors
    assert_true(isinf(distance(0)));
    strait_alloc_free(zeros);
    strait_evidence_fini(&start);
    strait_evidence_fini(&owner);
    strait_evidence_fini(&auditor);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_relative_to_what_changed),
                                       cmocka_unit_test(tells_other_bytes_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
